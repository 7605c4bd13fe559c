"""A decorator runs a norm's forward in float32 and hands its float32 result on.

module = "layers.0.ff.0"
op = "linear"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import functools

import torch
from torch import nn


def full_precision(forward):
    """Run forward on float32 copies of its tensors."""

    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        args = [a.float() if torch.is_floating_point(a) else a for a in args]  # enters
        return forward(self, *args, **kwargs)

    return wrapper


class ScaleNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(dim**0.5))

    @full_precision
    def forward(self, x):
        return self.g * x / x.norm(dim=-1, keepdim=True).clamp(min=1e-5)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = ScaleNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.ff(self.norm(x))  # fails


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.mean(dim=1)


model = Net().bfloat16()
print(model(torch.ones(2, 5, 8, dtype=torch.bfloat16)).shape)
