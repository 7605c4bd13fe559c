"""A region without autocast is meant to be float32 but gets what autocast made bfloat16.

module = "router.gate"
op = "linear"
odd = "input bfloat16"
how = "cast"
sure = true
cure = true
"""

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)

    def forward(self, x):
        # Which expert wins hangs on small differences: no low precision here.
        with torch.autocast("cpu", enabled=False):
            return self.gate(x).softmax(dim=-1)  # fails


class SparseModel(nn.Module):
    def __init__(self, width=16, experts=4):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.router = Router(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        x = self.inner(x)  # enters
        shares = self.router(x)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (outputs * shares[:, None, :]).sum(-1)


torch.manual_seed(0)
with torch.autocast("cpu", dtype=torch.bfloat16):
    SparseModel()(torch.rand(5, 16))
