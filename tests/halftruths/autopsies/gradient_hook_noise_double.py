"""A gradient hook adds NumPy noise, so it returns float64 for a float32 parameter.

op = "backward"
sure = false
cure = true
"""
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(11)


def private(sigma, clip=1.0):
    """A hook that clips a gradient and adds Gaussian noise."""

    def hook(grad):
        clipped = grad * (clip / grad.norm().clamp(min=clip))
        noise = torch.from_numpy(rng.normal(0, sigma, size=tuple(grad.shape)))
        return clipped + noise

    return hook


model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
for p in model.parameters():
    p.register_hook(private(sigma=0.01))

x = torch.linspace(-1, 1, 20).view(4, 5)
target = torch.tensor([0, 1, 1, 0])
loss = nn.CrossEntropyLoss()(model(x), target)
loss.backward()  # fails
