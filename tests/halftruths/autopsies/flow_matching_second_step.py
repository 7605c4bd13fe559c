"""Each Euler step multiplies by a float32 step size, so the second step gets float32 latents.

module = "stem"
op = "conv2d"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
import torch
from torch import nn


class Velocity(nn.Module):
    def __init__(self, channels=4, width=8):
        super().__init__()
        self.time = nn.Linear(1, width)
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, latents, time):
        shift = self.time(time[:, None].to(self.time.weight.dtype))
        hidden = self.stem(latents) + shift[:, :, None, None]  # fails
        return self.out(torch.nn.functional.silu(hidden))


def time_grid(steps, shift=3.0):
    linear = torch.linspace(1, 0, steps + 1)  # enters
    return shift * linear / (1 + (shift - 1) * linear)


@torch.no_grad()
def sample(model, shape, steps=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(shape, generator=generator).to(next(model.parameters()).dtype)
    grid = time_grid(steps)
    for start, end in zip(grid[:-1], grid[1:], strict=True):
        time = start.expand(shape[0])
        size = (end - start).expand(shape[0])
        latents = latents + size[:, None, None, None] * model(latents, time)
    return latents


torch.manual_seed(0)
sample(Velocity().to(torch.bfloat16), (2, 4, 8, 8))
