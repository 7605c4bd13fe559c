"""A causal mask made with tril(ones) is float32 and cannot be combined with a boolean one by &.

module = "block.attn"
op = "bitwise_and"
odd = "causal float32"
how = "made"
sure = true
cure = true
"""
import torch
from torch import nn


class MaskMixin:
    @property
    def causal(self):
        return torch.tril(torch.ones(self.context, self.context))  # enters


class SelfAttention(MaskMixin, nn.Module):
    def __init__(self, dim, context):
        super().__init__()
        self.context = context
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))

    def forward(self, x, /, *, keep):
        causal = self.causal[: x.shape[1], : x.shape[1]]
        allowed = causal & keep[:, None, :]  # fails
        att = self.q(x) @ self.k(x).transpose(-2, -1)
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        return att @ self.v(x)


class Block(nn.Module):
    def __init__(self, dim, context):
        super().__init__()
        self.attn = SelfAttention(dim, context)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, **masks):
        return x + self.attn(self.norm(x), **masks)


class Model(nn.Module):
    def __init__(self, vocab=20, dim=8, context=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.block = Block(dim, context)

    def forward(self, ids):
        return self.block(self.embed(ids), keep=ids.ne(0))


Model()(torch.tensor([[3, 7, 2], [5, 0, 0]]))
