"""A forward pre-hook left over from an experiment casts the input of a float32 layer to half.

module = "trunk.2"
op = "linear"
odd = "input float16"
how = "cast"
sure = true
cure = true
"""

import torch
from torch import nn


def save_memory(module, args):
    """Pre-hook: hand the module its inputs in half."""
    return tuple(arg.half() for arg in args)  # enters


class Ranker(nn.Module):
    def __init__(self, features=10):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 32))
        self.score = nn.Linear(32, 1)

    def forward(self, candidates):
        return self.score(torch.relu(self.trunk(candidates)))  # fails


ranker = Ranker()
ranker.trunk[2].register_forward_pre_hook(save_memory)
ranker(torch.linspace(-1, 1, 40).view(4, 10))
