"""The coarsest level of a feature pyramid is resized in float32 and meets its half convolution.

module = "laterals.2"
op = "conv2d"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class Pyramid(nn.Module):
    def __init__(self, channels=(4, 8, 8), width=6):
        super().__init__()
        self.down = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1)
            for before, after in zip((3, *channels), channels, strict=False)
        )
        self.laterals = nn.ModuleList(nn.Conv2d(size, width, 1) for size in channels)

    def levels(self, x):
        levels = []
        for down in self.down:
            x = torch.relu(down(x))
            levels.append(x)
        levels[-1] = F.interpolate(levels[-1].float(), scale_factor=2, mode="bicubic")  # enters
        return levels

    def forward(self, images):
        levels = self.levels(images)
        return [conv(level) for conv, level in zip(self.laterals, levels, strict=True)]  # fails


pyramid = Pyramid().bfloat16()
pyramid(torch.ones(1, 3, 32, 32, dtype=torch.bfloat16))
