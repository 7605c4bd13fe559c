"""Image tokens of a float32 vision tower are joined with half word vectors.

module = "language.layers.0.q_proj"
op = "linear"
odd = "input float32"
how = "parameter"
sure = true
cure = true
"""

import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)  # fails
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Language(nn.Module):
    def __init__(self, vocab=50, width=16):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(SelfAttention(width) for _ in range(3))

    def forward(self, embeddings):
        for layer in self.layers:
            embeddings = layer(embeddings)
        return embeddings


class Captioner(nn.Module):
    def __init__(self, vision, language):
        super().__init__()
        self.vision, self.language = vision, language

    def forward(self, images, ids):
        patches = self.vision(images).transpose(1, 2)
        words = self.language.embed_tokens(ids)
        return self.language(torch.cat([patches, words], dim=1))


vision = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), nn.Flatten(2))  # enters
language = Language().half()
captioner = Captioner(vision, language).eval()
captioner(torch.rand(1, 3, 8, 8), torch.tensor([[1, 2, 3]]))
