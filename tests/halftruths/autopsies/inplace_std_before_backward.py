"""The output of exp is changed in place though its backward needs it: no dtype is wrong here.

sure = false
cure = true
dtype = false
"""
import torch
from torch import nn


class GaussianHead(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mean = nn.Linear(d, 1)
        self.log_std = nn.Linear(d, 1)

    def forward(self, h):
        std = self.log_std(h).exp()
        std += 1e-3
        return self.mean(h), std


class Regressor(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 16), nn.SiLU())
        self.head = GaussianHead(16)

    def nll(self, x, y):
        mean, std = self.head(self.body(x))
        return (((y.to(mean.dtype) - mean) / std) ** 2 / 2 + std.log()).mean()


torch.manual_seed(0)
model = Regressor().to(torch.bfloat16)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in [(torch.randn(8, 6).bfloat16(), torch.randn(8, 1).double())] * 2:
    loss = model.nll(x, y)
    opt.zero_grad()
    loss.backward()  # fails
    opt.step()
