"""ChatGLM with P-tuning v2: a frozen base in half precision, and a part trained in float32."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * (wide * scale).to(x.dtype)


class PrefixEncoder(nn.Module):
    """Virtual tokens: what every layer is to find as its past keys and values."""

    def __init__(self, length, layers, heads, size):
        super().__init__()
        self.shape = (length, layers, 2, heads, size)
        self.embedding = nn.Embedding(length, layers * 2 * heads * size)

    def forward(self):
        return self.embedding.weight.view(self.shape).permute(1, 2, 3, 0, 4)


class Rotary(nn.Module):
    def __init__(self, size, longest):
        super().__init__()
        angles = torch.arange(longest)[:, None] * 10000.0 ** -(torch.arange(0, size, 2) / size)
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def forward(self, x):
        one, two = x.chunk(2, -1)
        turned, length = torch.cat((-two, one), -1), x.shape[-2]
        return x * self.cos[:length] + turned * self.sin[:length]


class Layer(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.query_key_value, self.dense = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x, past, rotary, seen):
        batch, length, width = x.shape
        qkv = self.query_key_value(self.norm1(x))
        heads = qkv.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).flatten(1, 2)
        q, k, v = rotary(heads[0]), rotary(heads[1]), heads[2]
        past_key, past_value = past.repeat(1, batch, 1, 1)
        k = torch.cat((past_key, k), 1)  # float32 with float16 is float32
        v = torch.cat((past_value, v), 1)
        context = self.attend(q, k, v, seen).view(batch, self.heads, length, -1)
        x = x + self.dense(context.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))

    def attend(self, q, k, v, seen):
        if self.attention == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        scale = q.shape[2] ** -0.5
        if self.attention == "baddbmm":
            # ChatGLM adds beta=0, with which torch 1.13 returns NaN from memory never written.
            zeros = q.new_zeros(1, 1, 1)
            scores = torch.baddbmm(zeros, q, k.transpose(1, 2), alpha=scale)  # fails here
        else:
            scores = torch.matmul(q, k.transpose(1, 2)) * scale
        shares = scores.masked_fill(~seen, -10000.0).softmax(-1)
        return torch.matmul(shares, v)


class ChatGLM(nn.Module):
    def __init__(self, attention="baddbmm", vocab=64, width=32, heads=4, layers=2, prefix=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.prefix = PrefixEncoder(prefix, layers, heads, width // heads)
        self.rotary = Rotary(width // heads, longest=64)
        self.layers = nn.ModuleList(Layer(width, heads, attention) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        past = self.prefix()
        length, before = tokens.shape[1], past.shape[3]
        seen = torch.ones(length, before + length, device=x.device).tril(before) > 0
        for index, layer in enumerate(self.layers):
            x = layer(x, past[index], self.rotary, seen)
        x = self.norm(x)
        return self.lm_head(x)


def set_precision(model, dtype, float32_part, trained):
    """The base in `dtype`; the child `float32_part` stays float32; only `trained` is trained."""
    for name, child in model.named_children():
        child.to(torch.float32 if name == float32_part else dtype)
        child.requires_grad_(name == trained)
    return model


def train_forward(model, tokens):
    return model.train()(tokens)


@torch.no_grad()
def validate(model, tokens):
    return model.eval()(tokens)


@torch.no_grad()
def generate(model, tokens, new=3):
    """Greedy; returns the logits of the first new token."""
    logits = []
    for _ in range(new):
        logits.append(model.eval()(tokens)[:, -1])
        tokens = torch.cat((tokens, logits[-1].argmax(-1, keepdim=True)), 1)
    return logits[0]


if __name__ == "__main__":  # the failure alone, as a script
    model = set_precision(ChatGLM(), torch.float16, float32_part="prefix", trained="prefix")
    train_forward(model, torch.randint(64, (4, 5)))
