"""The table of positions is a plain attribute, so .half() passes it by.

module = "encoder.layers.0.norm"
op = "layer_norm"
odd = "input float32"
how = "attribute"
sure = true
cure = true
"""

import torch
from torch import nn


def sine_table(length, width):
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return x + self.mlp(self.norm(x))  # fails


class Encoder(nn.Module):
    def __init__(self, vocab, width, length):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.positions = sine_table(length, width)  # enters
        self.layers = nn.ModuleList([Layer(width), Layer(width)])

    def forward(self, ids):
        x = self.words(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return x


class Tagger(nn.Module):
    def __init__(self, tags=9, width=16):
        super().__init__()
        self.encoder = Encoder(100, width, length=64)
        self.tags = nn.Linear(width, tags)

    def forward(self, ids):
        return self.tags(self.encoder(ids))


tagger = Tagger().half().eval()
tagger(torch.tensor([[7, 7, 4, 99, 0]]))
