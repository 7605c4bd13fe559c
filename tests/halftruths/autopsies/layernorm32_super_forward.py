"""A LayerNorm that always computes in float32 returns float32 to a half attention.

module = "blocks.0.attn.in_proj"
op = "linear"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import torch
from torch import nn


class LayerNorm32(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float())  # enters


class Attn(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.in_proj = nn.Linear(d, 3 * d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.in_proj(x).chunk(3, -1)  # fails
        return self.out_proj((q @ k.mT).div(q.shape[-1] ** 0.5).softmax(-1) @ v)


class Residual:
    """Adds what goes in to what comes out of the rest of the class."""

    def forward(self, x):
        return x + super().forward(x)


class Inner(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = LayerNorm32(d)
        self.attn = Attn(d)

    def forward(self, x):
        return self.attn(self.norm(x))


class Block(Residual, Inner):
    pass


class Encoder(nn.Module):
    def __init__(self, d=8, depth=2):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(d) for _ in range(depth)))

    def forward(self, x):
        return self.blocks(x)


def to_half(model):
    """Everything but the norms, as the paper says."""
    for m in model.modules():
        if not isinstance(m, nn.LayerNorm):
            for p in m.parameters(recurse=False):
                p.data = p.data.half()
    return model


to_half(Encoder())(torch.ones(1, 4, 8, dtype=torch.float16))
