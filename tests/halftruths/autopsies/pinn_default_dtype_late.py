"""The default becomes float64 after the network was built, and the collocation points follow it.

module = "body.0"
op = "linear"
odd = "input float64"
how = "made"
sure = true
cure = true
"""
import math

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, points):
        return self.body(points)  # fails


def collocation(side):
    axis = torch.linspace(0, 1, side)  # enters
    space, time = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([space.flatten(), time.flatten()], dim=1)


def heat_residual(field, points, conductivity=0.1):
    points = points.requires_grad_()
    (first,) = torch.autograd.grad(field(points).sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)
    return first[:, 1] - conductivity * second[:, 0]


def fit(field, steps=3):
    optimizer = torch.optim.LBFGS(field.parameters(), max_iter=steps)

    def closure():
        optimizer.zero_grad()
        loss = heat_residual(field, collocation(8)).square().mean()
        loss.backward()
        return loss

    return optimizer.step(closure)


torch.manual_seed(0)
field = Field()
torch.set_default_dtype(torch.float64)  # second derivatives are noisy in float32
assert math.isfinite(fit(field))
