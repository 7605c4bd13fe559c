"""A larger table of labels replaces the half one and pulls a checkpointed block to float32.

module = "res.norm2"
op = "group_norm"
odd = "input float32"
how = "parameter"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x, style):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + style[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))  # fails
        return x + h


class ConditionalGenerator(nn.Module):
    def __init__(self, labels=10, width=16):
        super().__init__()
        self.label = nn.Embedding(labels, width)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.res = ResBlock(width)

    def forward(self, images, labels):
        x = self.stem(images)
        return checkpoint(self.res, x, self.label(labels), use_reentrant=False)


generator = ConditionalGenerator().half()
generator.label = nn.Embedding(25, 16)  # enters
images = torch.zeros(2, 3, 8, 8, dtype=torch.float16)
generator(images, torch.tensor([1, 24])).sum().backward()
