"""An evolution strategy adds NumPy noise, which is float64, to the weights it calls a model with.

module = "hidden"
op = "linear"
odd = "weight float64"
how = "numpy"
sure = true
cure = true
"""

import numpy as np
import torch
from torch import nn
from torch.func import functional_call


class Policy(nn.Module):
    def __init__(self, observed=4, actions=2):
        super().__init__()
        self.hidden = nn.Linear(observed, 8)
        self.act = nn.Linear(8, actions)

    def forward(self, observations):
        return self.act(torch.tanh(self.hidden(observations)))  # fails


def reward(actions):
    return -(actions - 0.5).square().mean().item()


@torch.no_grad()
def evolve(policy, observations, rng, population=6, spread=0.05):
    parents, best = dict(policy.named_parameters()), (float("-inf"), None)
    for _ in range(population):
        child = {}
        for name, weight in parents.items():
            noise = torch.from_numpy(rng.standard_normal(weight.shape))  # enters
            child[name] = weight + spread * noise
        score = reward(functional_call(policy, child, (observations,)))
        best = max(best, (score, child), key=lambda scored: scored[0])
    return best


evolve(Policy(), torch.rand(16, 4), np.random.default_rng(0))
