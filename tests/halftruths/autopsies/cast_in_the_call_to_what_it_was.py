"""The same in the call itself: what is handed over is a cast that gives the very tensor.

module = "encoder.0"
op = "linear"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 6), nn.GELU())
        self.norm = nn.LayerNorm(6)

    def forward(self, inputs):
        return self.norm(self.encoder(inputs))


def score(model, rows):
    return model(inputs=rows.to(torch.float32)).sum(dim=-1)  # enters, and fails


model = Scorer().to(torch.bfloat16)
rows = torch.linspace(-1, 1, 24).view(4, 6)
print(score(model, rows))
