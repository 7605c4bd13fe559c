"""The sampling grid is made with linspace in float32, the image is half.

op = "grid_sample"
odd = "grid float32"
how = "made"
sure = false
cure = true
"""
import itertools
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F


@dataclass
class Jitter:
    """Shifts images by whole steps of a grid, all combinations once."""

    steps: tuple = (-0.5, 0.0, 0.5)
    shifts: list = field(init=False)

    def __post_init__(self):
        self.shifts = list(itertools.product(self.steps, repeat=2))

    def grid(self, height, width):
        ys, xs = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)  # enters
        return torch.stack(torch.meshgrid(xs, ys, indexing="xy"), dim=-1)

    def __call__(self, images):
        base = self.grid(*images.shape[-2:]).expand(len(images), -1, -1, -1)
        for dx, dy in self.shifts:
            grid = base + base.new_tensor([dx, dy])
            yield F.grid_sample(images, grid, align_corners=True)  # fails


images = torch.zeros(2, 1, 6, 6, dtype=torch.float16)
views = torch.stack([*Jitter()(images)])
