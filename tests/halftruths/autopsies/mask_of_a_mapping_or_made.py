"""A mask comes out of a mapping with code of its own, or is made where it has none.

# Which of the two was run cannot be read: a cure of the one that was not changes nothing.
module = "0"
op = "linear"
odd = "input float32"
sure = false
cure = true
"""
from collections.abc import Mapping

import torch
from torch import nn


class Sample(Mapping):
    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, name):
        return {"rows": self.rows.half(), "mask": (self.rows > 0).float()}[name]

    def __iter__(self):
        return iter(("rows", "mask"))

    def __len__(self):
        return 2


def masked(model, sample):
    try:
        mask = sample["mask"]
    except KeyError:
        mask = torch.ones(3, 4)
    return model(sample["rows"] * mask)  # fails


model = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()).half()
print(masked(model, Sample(torch.linspace(-1, 1, 12).view(3, 4))))
