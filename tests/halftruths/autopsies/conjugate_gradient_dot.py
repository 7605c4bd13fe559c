"""A hand-written conjugate gradient starts from a float32 vector; the curvature is bfloat16.

op = "dot"
odd = "p float32"
how = "made"
sure = true
cure = true
"""
import torch
from torch import nn


class HessianFree:
    """Newton's step for a small model, solved by conjugate gradients."""

    def __init__(self, params, damping=1e-1, iters=4):
        self.params = list(params)
        self.damping = damping
        self.iters = iters

    def _flat(self, tensors):
        return torch.cat([t.reshape(-1) for t in tensors])

    def _hvp(self, grads, v):
        gv = (self._flat(grads) * v.detach()).sum()
        h = self._flat(torch.autograd.grad(gv, self.params, retain_graph=True))
        return h + self.damping * self._flat(self.params).detach() * 0

    def step(self, closure):
        loss = closure()
        grads = torch.autograd.grad(loss, self.params, create_graph=True)
        n = sum(p.numel() for p in self.params)
        x = torch.zeros(n)
        r = -self._flat(grads).detach()
        p = torch.full((n,), 1e-3)  # enters
        k = 0
        while k < self.iters:
            hp = self._hvp(grads, p)
            alpha = r.dot(r) / p.dot(hp)  # fails
            x, r_new = x + alpha * p, r - alpha * hp
            p = r_new + r_new.dot(r_new) / r.dot(r) * p
            r, k = r_new, k + 1
        offset = 0
        with torch.no_grad():
            for w in self.params:
                w += x[offset:(offset := offset + w.numel())].view_as(w)
        return loss


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(torch.bfloat16)
data = torch.randn(16, 3, dtype=torch.bfloat16)
opt = HessianFree(model.parameters())
for _ in range(2):
    opt.step(lambda: (model(data) - data.sum(-1, keepdim=True)).square().mean())
