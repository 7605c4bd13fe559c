"""The heads are put side by side with view() although the transpose left gaps; nothing is odd.

module = "blocks.0.attention"
op = "view"
sure = false
cure = true
dtype = false
"""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden, mask):
        batch, length, width = hidden.shape
        parts = self.qkv(hidden).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = (query.float() @ key.float().mT).masked_fill(mask, -1e9)
        mixed = F.softmax(scores, dim=-1).to(value.dtype) @ value
        return self.out(mixed.transpose(1, 2).view(batch, length, width))  # fails


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 2)

    def forward(self, hidden, mask):
        return hidden + self.attention(self.norm(hidden), mask)


class Reader(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.words = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))

    def forward(self, ids):
        mask = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        hidden = self.words(ids)
        for block in self.blocks:
            hidden = block(hidden, mask)
        return hidden


torch.manual_seed(0)
Reader().bfloat16()(torch.tensor([[1, 5, 3, 2]]))
