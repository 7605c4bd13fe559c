"""Labels are stored as int32; cross_entropy wants int64 class numbers.

op = "cross_entropy"
odd = "target int32"
how = "loader"
sure = true
cure = true
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def digits(count):
    rng = np.random.default_rng(0)
    images = rng.random((count, 16), dtype=np.float32)
    labels = rng.integers(0, 4, size=count, dtype=np.int32)
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))


def train(model, loader, rate=0.1):
    for images, labels in loader:  # enters
        loss = F.cross_entropy(model(images), labels)  # fails
        gradients = torch.autograd.grad(loss, tuple(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= rate * gradient


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
train(model, DataLoader(digits(12), batch_size=4))
