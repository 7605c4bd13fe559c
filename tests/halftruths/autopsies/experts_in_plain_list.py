"""The experts are kept in a plain Python list, so the model's .bfloat16() never sees them.

op = "linear"
odd = "weight float32"
how = "parameter"
sure = true
cure = true
"""
import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = [nn.Linear(width, width) for _ in range(experts)]

    def forward(self, tokens):
        chances = self.router(tokens).softmax(-1)
        best, choice = chances.max(-1)
        mixed = torch.zeros_like(tokens)
        for place, expert in enumerate(self.experts):
            chosen = choice == place
            if chosen.any():
                mixed[chosen] = best[chosen, None] * expert(tokens[chosen])  # fails
        return mixed


class Block(nn.Module):
    def __init__(self, width, experts=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mixture = Mixture(width, experts)

    def forward(self, tokens):
        return tokens + self.mixture(self.norm(tokens))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), Block(8), Block(8), nn.Linear(8, 6)).bfloat16()
model(torch.randn(10, 6).bfloat16())
