"""Half of the model is bfloat16 and half float32, on purpose, and their outputs are multiplied.

module = "towers"
op = "matmul"
sure = false
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


def tower(features, width):
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))


class TwoTowers(nn.Module):
    def __init__(self, features=20, width=8):
        super().__init__()
        self.people = tower(features, width)
        self.films = tower(features, width)

    def forward(self, people, films):
        people = F.normalize(self.people(people), dim=-1)
        films = F.normalize(self.films(films), dim=-1)
        return people @ films.T  # fails


class Recommender(nn.Module):
    def __init__(self, towers):
        super().__init__()
        self.towers = towers

    def forward(self, people, films, k=3):
        return self.towers(people, films).topk(k).indices


towers = TwoTowers()
towers.films.to(torch.bfloat16)  # there are many films
films = torch.rand(50, 20).to(torch.bfloat16)
Recommender(towers)(torch.rand(2, 20), films)
