"""Trainable weights are put back to float32, so that a parametrized half weight reads as float32.

module = "body.0"
op = "linear"
odd = "weight float32"
how = "parameter"
sure = true
cure = true
"""

import torch
from torch import nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """Adds B A to the frozen weight whenever it is read."""

    def __init__(self, rows, columns, rank=2):
        super().__init__()
        self.a = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.b = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight):
        return weight + self.b @ self.a


class Scorer(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))
        self.out = nn.Linear(width, 1)

    def forward(self, pairs):
        return self.out(self.body(pairs)).squeeze(-1)  # fails


scorer = Scorer().requires_grad_(False)
parametrize.register_parametrization(scorer.body[0], "weight", LowRank(48, 24))
scorer.half()
for parameter in scorer.parameters():
    if parameter.requires_grad:
        parameter.data = parameter.data.float()  # enters
scorer(torch.randn(5, 24, dtype=torch.float16))
