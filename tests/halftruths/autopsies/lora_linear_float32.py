"""LoRA adapters are wrapped around a half model and keep their own float32 matrices.

module = "blocks.1.q_proj.down"
op = "linear"
odd = "weight float32"
how = "parameter"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))  # fails


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.kv_proj = nn.Linear(width, 2 * width)

    def forward(self, x):
        k, v = self.kv_proj(x).chunk(2, dim=-1)
        return x + F.scaled_dot_product_attention(self.q_proj(x), k, v)


class Decoder(nn.Module):
    def __init__(self, vocab=50, width=32):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return x


def add_adapters(model, first):
    for block in model.blocks[first:]:
        block.q_proj = LoRALinear(block.q_proj)


model = Decoder().half()
add_adapters(model, first=1)
model(torch.arange(6).view(1, 6))
