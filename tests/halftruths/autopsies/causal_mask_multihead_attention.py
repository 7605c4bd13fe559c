"""The causal mask that torch makes is float32 and is added to half attention scores.

module = "blocks.0.attn"
op = "baddbmm"
odd = "attn_mask float32"
how = "made"
sure = true
cure = true
"""

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, mask):
        h = self.norm(x)
        h, weights = self.attn(h, h, h, attn_mask=mask)  # fails
        return x + h, weights


class MusicModel(nn.Module):
    def __init__(self, notes=88, width=32):
        super().__init__()
        self.notes = nn.Embedding(notes, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads=4) for _ in range(2))
        self.next_note = nn.Linear(width, notes)

    def forward(self, notes):
        mask = nn.Transformer.generate_square_subsequent_mask(notes.shape[1])  # enters
        x, maps = self.notes(notes), []
        for block in self.blocks:
            x, weights = block(x, mask)
            maps.append(weights)
        return self.next_note(x), maps


model = MusicModel().half().eval()
logits, maps = model(torch.tensor([[60, 62, 64, 65, 67]]))
