"""A vocoder sums its phases up in float32, and the waves meet a bfloat16 convolution so.

module = "generator.source_convs.0"
op = "conv1d"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class SineSource(nn.Module):
    def __init__(self, rate, hop, harmonics=3):
        super().__init__()
        self.rate, self.hop, self.harmonics = rate, hop, harmonics

    def forward(self, pitch):
        pitch = pitch.float().repeat_interleave(self.hop, dim=1)  # enters
        orders = torch.arange(1, self.harmonics + 1)[None, :, None]
        cycles = torch.cumsum(pitch / self.rate, dim=1)[:, None] * orders
        waves = torch.sin(2 * math.pi * cycles)
        return waves * (pitch[:, None] > 0)


class Generator(nn.Module):
    def __init__(self, bins, hop, width=8):
        super().__init__()
        self.pre = nn.Conv1d(bins, width, 7, padding=3)
        self.ups = nn.ModuleList([nn.ConvTranspose1d(width, width, 2 * hop, hop, hop // 2)])
        self.source_convs = nn.ModuleList([nn.Conv1d(3, width, 1)])
        self.post = nn.Conv1d(width, 1, 7, padding=3)

    def forward(self, mel, source):
        hidden = self.pre(mel)
        for up, conv in zip(self.ups, self.source_convs, strict=True):
            hidden = up(F.leaky_relu(hidden, 0.1)) + conv(source)  # fails
        return torch.tanh(self.post(hidden))


class Vocoder(nn.Module):
    def __init__(self, bins=10, hop=4, rate=8000):
        super().__init__()
        self.source = SineSource(rate, hop)
        self.generator = Generator(bins, hop)

    def forward(self, mel, pitch):
        return self.generator(mel, self.source(pitch))


torch.manual_seed(0)
vocoder = Vocoder().to(torch.bfloat16).eval()
mel, pitch = torch.randn(1, 10, 6), torch.tensor([[110.0, 110.0, 0.0, 120.0, 125.0, 0.0]])
vocoder(mel.bfloat16(), pitch.bfloat16())
