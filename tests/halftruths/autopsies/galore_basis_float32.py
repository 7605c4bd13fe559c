"""A low-rank optimizer keeps the float32 basis of an SVD and projects bfloat16 gradients on it.

op = "matmul"
odd = "basis float32"
how = "cast"
sure = true
cure = true
"""
import torch
from torch import nn


def leading(grad, rank):
    left, _, _ = torch.linalg.svd(grad.float(), full_matrices=False)  # enters
    return left[:, :rank]


class LowRankSGD(torch.optim.Optimizer):
    """Momentum in the leading subspace of each matrix's gradient."""

    def __init__(self, params, lr=0.1, rank=2, momentum=0.9):
        super().__init__(params, dict(lr=lr, rank=rank, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self.update(param, group)

    def update(self, param, group):
        if param.ndim != 2:
            param.sub_(param.grad, alpha=group["lr"])
            return
        state = self.state[param]
        if not state:
            state["basis"] = leading(param.grad, group["rank"])
        basis = state["basis"]
        low = basis.T @ param.grad  # fails
        average = state.setdefault("average", torch.zeros_like(low))
        average.mul_(group["momentum"]).add_(low)
        param.sub_(basis @ average, alpha=group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1)).to(torch.bfloat16)
optimizer = LowRankSGD(model.parameters())
for batch in torch.randn(3, 5, 6, dtype=torch.bfloat16):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
