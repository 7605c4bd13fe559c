"""ALiBi slopes from NumPy make a float64 mask that goes through **kwargs down to attention.

module = "module.inner"
op = "scaled_dot_product_attention"
odd = "attn_mask float64"
how = "numpy"
sure = true
cure = true
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class AlibiEncoder(nn.Module):
    def __init__(self, vocab=30, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, width)
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, ids, bias=None):
        x = self.embed(ids)
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(*qkv, attn_mask=bias)  # fails
        return x + out.transpose(1, 2).flatten(2)


class Pooled(nn.Module):
    """Whatever the inner model takes, averaged over the words."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs).mean(1)


def make_batch(ids, heads=4):
    slopes = 2.0 ** -np.arange(1, heads + 1)
    places = np.arange(ids.shape[1])
    distance = -np.abs(places[:, None] - places[None])
    bias = slopes[:, None, None] * distance
    return {"ids": ids, "bias": torch.from_numpy(bias)}  # enters


model = nn.DataParallel(Pooled(AlibiEncoder()))
batch = make_batch(torch.tensor([[4, 7, 2], [9, 9, 1]]))
model(**batch)
