"""A step compiled as one graph gets float32 noise from its caller, for a bfloat16 model.

module = "out"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, noise):
        return self.out(torch.relu(self.inner(x)) + noise)


def denoise(model, steps):
    @torch.compile(backend="eager", fullgraph=True)  # fails
    def step(x, noise):
        return x - 0.1 * model(x, noise)

    x = torch.zeros(3, 12, dtype=torch.bfloat16)
    for _ in range(steps):
        noise = torch.randn(3, 12)  # enters
        x = step(x, noise)
    return x


torch.manual_seed(0)
with torch.no_grad():
    denoise(Denoiser().bfloat16(), steps=2)
