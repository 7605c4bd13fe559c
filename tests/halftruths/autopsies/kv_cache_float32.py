"""The key and value cache is reserved in float32, and half keys cannot be written into it.

module = "layers.0"
op = "index_put"
odd = "cache float32"
how = "made"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)

    def forward(self, x, cache, positions):
        cache[:, positions] = self.kv(x)  # fails
        k, v = cache[:, : positions[-1] + 1].chunk(2, dim=-1)
        return x + F.scaled_dot_product_attention(self.q(x), k, v)


class Decoder(nn.Module):
    def __init__(self, vocab=40, width=16, depth=2):
        super().__init__()
        self.width = width
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(CachedAttention(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids, caches, positions):
        x = self.embed(ids)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, positions)
        return self.head(x[:, -1])


@torch.no_grad()
def generate(model, ids, new):
    room = ids.shape[1] + new
    caches = torch.zeros(len(model.layers), len(ids), room, 2 * model.width)  # enters
    positions = torch.arange(ids.shape[1])
    for _ in range(new):
        ids = model(ids, caches, positions).argmax(-1, keepdim=True)
        positions = positions[-1:] + 1
    return ids


generate(Decoder().half().eval(), torch.tensor([[5, 6, 7]]), new=4)
