"""Rotary positions as complex numbers: there is no complex bfloat16 to view the queries as.

module = "attn"
op = "view_as_complex"
odd = "q bfloat16"
sure = true
cure = true
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / theta ** (torch.arange(0, dim, 2) / dim)
    return torch.polar(torch.ones(end, dim // 2), torch.outer(torch.arange(end), freqs))


def rotate(q, freqs_cis):
    pairs = torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2))  # fails
    return torch.view_as_real(pairs * freqs_cis).flatten(-2)


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, freqs_cis):
        b, t, d = x.shape
        q, k, v = self.wqkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        q, k = (rotate(z, freqs_cis) for z in (q, k))
        y = F.scaled_dot_product_attention(q.type_as(v), k.type_as(v), v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, d))


class Model(nn.Module):
    def __init__(self, dim=16, n_heads=2, max_len=32):
        super().__init__()
        self.tok = nn.Embedding(50, dim)
        self.attn = Attention(dim, n_heads)
        self.freqs_cis = precompute_freqs_cis(dim // n_heads, max_len)

    def forward(self, ids):
        return self.attn(self.tok(ids), self.freqs_cis[: ids.size(1)])


Model().to(torch.bfloat16)(torch.tensor([[1, 2, 3, 4]]))
