"""The features come out of the author's own context manager as bfloat16; the head is outside it.

module = "head"
op = "linear"
odd = "input bfloat16"
how = "cast"
sure = true
cure = true
"""
from contextlib import contextmanager

import torch
import torch.nn as nn
import torch.nn.functional as F


@contextmanager
def fast(enabled=True):
    """Low precision and no denormals, for the heavy part of a model."""
    before = torch.get_num_threads()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
        try:
            yield
        finally:
            torch.set_num_threads(before)


class Classifier(nn.Module):
    def __init__(self, dim=12, n_classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, n_classes)

    def forward(self, x):
        with fast():
            h = self.body(x)  # enters
        return self.head(h)  # fails


class Trainer:
    def __init__(self, model, lr=0.05):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)
        self.history = []

    def training_step(self, batch):
        x, y = batch
        return F.cross_entropy(self.model(x), y)

    def fit(self, batches):
        for batch in batches:
            self.opt.zero_grad()
            loss = self.training_step(batch)
            loss.backward()
            self.opt.step()
            self.history.append(loss.item())


torch.manual_seed(0)
Trainer(Classifier()).fit([(torch.randn(6, 12), torch.tensor([0, 1, 2, 0, 1, 2]))] * 2)
