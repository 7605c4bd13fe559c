"""ChatGLM with P-tuning v2: a frozen base in half precision, and a prefix trained in float32."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = x.float().pow(2).mean(-1, keepdim=True).add(1e-5).rsqrt()
        return self.weight * (x.float() * scale).to(x.dtype)


class PrefixEncoder(nn.Module):
    """Virtual tokens: what every layer is to find as its past keys and values."""

    def __init__(self, length, layers, heads, size):
        super().__init__()
        self.shape = (layers, 2, heads, length, size)
        self.embedding = nn.Embedding(length, layers * 2 * heads * size)

    def forward(self, batch):
        layers, _, heads, length, size = self.shape
        past = self.embedding.weight.view(length, layers, 2, 1, heads, size)
        past = past.permute(1, 2, 3, 4, 0, 5).expand(layers, 2, batch, heads, length, size)
        return past.reshape(layers, 2, batch * heads, length, size)


class Rotary(nn.Module):
    def __init__(self, size, longest):
        super().__init__()
        angles = torch.outer(torch.arange(longest), 10000.0 ** -(torch.arange(0, size, 2) / size))
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def forward(self, x):
        one, two = x.chunk(2, -1)
        turned = torch.cat((-two, one), -1)
        return x * self.cos[: x.shape[1]] + turned * self.sin[: x.shape[1]]


class Layer(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, past_key, past_value, rotary):
        batch, length, width = x.shape
        qkv = self.query_key_value(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).flatten(1, 2)
        q, k = rotary(q), rotary(k)
        k, v = torch.cat((past_key, k), 1), torch.cat((past_value, v), 1)
        seen = torch.ones(length, k.shape[1], dtype=torch.bool, device=x.device)
        seen = seen.tril(k.shape[1] - length)
        if self.attention == "sdpa":
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        else:
            scale = q.shape[2] ** -0.5
            if self.attention == "baddbmm":
                empty = q.new_zeros(1, 1, 1)
                scores = torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=scale)
            else:
                scores = torch.matmul(q, k.transpose(1, 2)) * scale
            context = torch.matmul(scores.masked_fill(~seen, -10000.0).softmax(-1), v)
        context = context.view(batch, self.heads, length, -1).transpose(1, 2)
        x = x + self.dense(context.reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))
