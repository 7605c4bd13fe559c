"""Queries are scaled by a float32 logarithm of their position; keys and values stay bfloat16.

module = "0.attn"
op = "scaled_dot_product_attention"
odd = "q float32"
how = "made"
sure = true
cure = true
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class LongAttention(nn.Module):
    def __init__(self, width, heads, trained=8):
        super().__init__()
        self.heads, self.trained = heads, trained
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, length, width = x.shape
        qkv = self.qkv(x).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        # Past the trained length attention goes flat: sharpen it with log n.
        position = torch.arange(1, length + 1, dtype=torch.float32)  # enters
        sharpen = (position.log() / math.log(self.trained)).clamp(min=1)
        q = q * sharpen[:, None]
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # fails
        return self.proj(x.transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = LongAttention(width, heads=2)

    def forward(self, x):
        return x + self.attn(self.norm(x))


stack = nn.Sequential(Block(16), Block(16)).to(torch.bfloat16)
stack(torch.zeros(1, 12, 16, dtype=torch.bfloat16))
