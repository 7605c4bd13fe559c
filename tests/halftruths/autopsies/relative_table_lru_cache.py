"""A cached table of relative distances is float32, whatever the attention around it uses.

module = "layers.1.attention"
op = "einsum"
odd = "table float32"
how = "made"
sure = true
cure = true
"""
from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=8)
def relative_table(length, width):
    distance = torch.arange(length)[:, None] - torch.arange(length)[None]
    rates = 10.0 ** torch.linspace(0, -3, width)  # enters
    return torch.sin(distance[..., None] * rates)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(hidden).chunk(3, dim=-1))
        table = relative_table(length, width // self.heads)
        scores = query @ key.transpose(-1, -2)
        scores = scores + torch.einsum("bhid,ijd->bhij", query, table)  # fails
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, attention):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), attention

    def forward(self, hidden):
        hidden = self.norm(hidden)
        return hidden + (self.attention(hidden) if self.attention is not None else 0)


class Tagger(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(30, width)
        self.layers = nn.ModuleList([Layer(width, None), Layer(width, Attention(width, 2))])

    def forward(self, ids):
        hidden = self.words(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


torch.manual_seed(0)
Tagger().to(torch.float16)(torch.tensor([[1, 4, 2, 9, 7]]))
