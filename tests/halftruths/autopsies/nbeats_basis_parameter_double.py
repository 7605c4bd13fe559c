"""The trend basis of a forecaster is a frozen parameter made from a float64 NumPy array.

module = "blocks.0"
op = "matmul"
odd = "backcast float64"
how = "parameter"
sure = true
cure = true
"""
import numpy as np
import torch
from torch import nn


class TrendBlock(nn.Module):
    def __init__(self, past, future, degree=3, width=16):
        super().__init__()
        powers = np.arange(degree)[:, None]
        time = np.linspace(-1, 1, past + future)[None] ** powers
        self.backcast = nn.Parameter(torch.tensor(time[:, :past]), requires_grad=False)
        self.forecast = nn.Parameter(torch.tensor(time[:, past:]), requires_grad=False)
        self.body = nn.Sequential(nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width),
                                  nn.ReLU())
        self.theta = nn.Linear(width, 2 * degree)

    def forward(self, history):
        back, fore = self.theta(self.body(history)).chunk(2, dim=-1)
        return back @ self.backcast, fore @ self.forecast  # fails


class Forecaster(nn.Module):
    def __init__(self, past=12, future=4, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(TrendBlock(past, future) for _ in range(depth))

    def forward(self, history):
        total = 0
        for block in self.blocks:
            backcast, forecast = block(history)
            history, total = history - backcast, total + forecast
        return total


torch.manual_seed(0)
prices = torch.rand(32, 12).cumsum(1)
Forecaster()(prices - prices[:, -1:])
