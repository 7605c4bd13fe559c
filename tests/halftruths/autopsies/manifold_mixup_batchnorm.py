"""Mixup weights drawn with NumPy are float64 and carry the activations into BatchNorm with them.

module = "norm"
op = "batch_norm"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class SmallNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.head = nn.Linear(6, classes)

    def forward(self, images, mix=None):
        x = self.conv(images)
        if mix is not None:
            share, other = mix
            x = share * x + (1 - share) * x[other]
        x = F.relu(self.norm(x))  # fails
        return self.head(x.mean((2, 3)))


def training_step(model, images, labels, rng):
    share = torch.from_numpy(rng.beta(0.4, 0.4, size=(len(images), 1, 1, 1)))  # enters
    other = torch.from_numpy(rng.permutation(len(images)))
    logits = model(images, mix=(share, other))
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (share.flatten() * losses).mean()


torch.manual_seed(0)
rng = np.random.default_rng(0)
images, labels = torch.rand(4, 1, 12, 12), torch.tensor([0, 1, 2, 1])
training_step(SmallNet(), images, labels, rng).backward()
