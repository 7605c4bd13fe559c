"""Weights stored as float8 are multiplied without being dequantised first.

module = "fc1"
op = "matmul"
odd = "weight_fp8 float8_e4m3fn"
how = "buffer"
sure = true
cure = true
"""
import torch
from torch import nn


class Float8Linear(nn.Module):
    """Keeps a linear layer's weight in eight bits, with one scale for the whole of it."""

    MAX = 448.0

    def __init__(self, linear):
        super().__init__()
        w = linear.weight.detach()
        scale = w.abs().max() / self.MAX
        self.register_buffer("weight_fp8", (w / scale).to(torch.float8_e4m3fn))  # enters
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return (x @ self.weight_fp8.t()) * self.scale + self.bias  # fails


def compress(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Float8Linear(child))
        else:
            compress(child)
    return module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


compress(MLP())(torch.ones(3, 8))
