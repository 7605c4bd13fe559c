"""Autocast for CUDA is trusted to take half images, but the tensors are on the CPU.

module = "features.0"
op = "conv2d"
odd = "input float16"
how = "cast"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.head = nn.Linear(8 * 4 * 4, classes)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))  # fails


def train(model, images, labels, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        batch = images.half()  # enters
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(batch)
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
train(Classifier(), torch.rand(2, 3, 16, 16), torch.tensor([0, 3]))
