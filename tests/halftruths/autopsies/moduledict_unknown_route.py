"""A batch names a task for which no head was made: no dtype is wrong here.

sure = false
cure = true
dtype = false
"""
from typing import TypedDict

import torch
from torch import nn


class Batch(TypedDict):
    task: str
    x: torch.Tensor


class MultiTask(nn.Module):
    def __init__(self, tasks, d=4):
        super().__init__()
        self.shared = nn.Linear(d, d)
        self.heads = nn.ModuleDict({t: nn.Linear(d, n) for t, n in tasks.items()})
        self.heads.half()

    def forward(self, batch: Batch):
        h = torch.relu(self.shared(batch["x"]))
        return self.heads[batch["task"]](h.to(torch.float16))  # fails


stream: list[Batch] = [
    {"task": "topic", "x": torch.ones(2, 4)},
    {"task": "sentiment", "x": torch.ones(2, 4)},
    {"task": "topics", "x": torch.ones(1, 4)},
]
net = MultiTask({"topic": 3, "sentiment": 2}).eval()
with torch.no_grad():
    outs = [net(b) for b in stream]
