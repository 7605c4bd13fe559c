"""The sinusoids of the time step are float32 and meet the first layer of a half denoiser.

module = "time_mlp.0"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""

import math

import torch
from torch import nn


def sinusoids(steps, width):
    """Sines and cosines (len(steps), width) of integer time steps."""
    octaves = torch.arange(width // 2, dtype=torch.float32) / (width // 2)  # enters
    rates = torch.exp(-math.log(10000) * octaves)
    angles = steps[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.time_mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.stem = nn.Conv2d(4, width, 3, padding=1)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, latents, steps):
        when = sinusoids(steps, self.width)
        shift = self.time_mlp(when)[:, :, None, None]  # fails
        return self.out(torch.relu(self.stem(latents) + shift))


denoiser = Denoiser().half().eval()
latents = torch.zeros(2, 4, 8, 8, dtype=torch.float16)
with torch.no_grad():
    for step in (900, 600, 300):
        latents = latents - 0.1 * denoiser(latents, torch.full((2,), step))
