"""A hand-written RMSNorm computes in float32 and forgets to go back to half.

module = "1.mlp.gate_proj"
op = "linear"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x = x.float()  # enters
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x


class GatedMLP(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # fails


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width)
        self.mlp = GatedMLP(width, 3 * width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


model = nn.Sequential(nn.Embedding(64, 16), Layer(16), Layer(16), nn.Linear(16, 64)).half()
with torch.no_grad():
    model(torch.tensor([[1, 2, 3]]))
