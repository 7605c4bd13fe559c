"""Weights are what a function of a library gives, or ones, decided in one line.

# The library's function is over, and its source is none of Python's: either may have been run.
module = ""
op = "linear"
odd = "input float32"
sure = false
cure = true
"""
import operator

import torch
from torch import nn

pick = operator.itemgetter("weights")


def weighted(model, rows, given):
    weights = pick(given) if "weights" in given else torch.ones(3, 4)
    return model(rows * weights)  # fails


model = nn.Linear(4, 2).half()
given = {"weights": torch.linspace(0, 1, 12).view(3, 4)}
print(weighted(model, torch.ones(3, 4, dtype=torch.float16), given))
