"""A learned float32 scale makes the values float32; the attention weights stay bfloat16.

module = "layers.0.attention"
op = "matmul"
odd = "value float32"
how = "parameter"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


class Scaled(nn.Module):
    """A frozen projection whose output is rescaled, one learned number a channel."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(base.out_features))

    def forward(self, hidden):
        return self.base(hidden) * self.scale  # enters


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, hidden):
        query, key, value = self.query(hidden), self.key(hidden), self.value(hidden)
        weights = F.softmax(torch.einsum("bid,bjd->bij", query, key), dim=-1)
        return self.out(weights @ value)  # fails


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm = Attention(width), nn.LayerNorm(width)

    def forward(self, hidden):
        return hidden + self.attention(self.norm(hidden))


class Encoder(nn.Module):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def tune(model):
    for layer in model.layers:
        layer.attention.value = Scaled(layer.attention.value)
    return [param for param in model.parameters() if param.requires_grad]


torch.manual_seed(0)
encoder = Encoder().to(torch.bfloat16)
optimizer = torch.optim.Adam(tune(encoder), lr=1e-2)
encoder(torch.randn(2, 5, 8).bfloat16()).square().mean().backward()
