"""A loop over the parameters makes the model half but misses a buffer of distance biases.

module = "layers.0.attention"
op = "matmul"
odd = "weights float32"
how = "buffer"
sure = true
cure = true
"""

import torch
from torch import nn


class DistanceAttention(nn.Module):
    def __init__(self, width, longest=32):
        super().__init__()
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.scale = width**-0.5
        place = torch.arange(longest)
        self.register_buffer("distance", -0.1 * (place[:, None] - place).abs())

    def forward(self, x):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        n = x.shape[1]
        scores = q @ k.transpose(1, 2) * self.scale + self.distance[:n, :n]
        weights = scores.softmax(dim=-1)
        return weights @ v  # fails


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = DistanceAttention(width)
        self.mlp = nn.Linear(width, width)

    def forward(self, x):
        return self.mlp(x + self.attention(x))


class Network(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width), Layer(width)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


network = Network()
for parameter in network.parameters():
    parameter.data = parameter.data.half()
network(torch.randn(1, 10, 16).half())
