"""A new soft prompt is appended in float32 and, put before half words, makes them all float32.

module = "body.0.norm"
op = "layer_norm"
odd = "input float32"
how = "parameter"
sure = true
cure = true
"""

import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + self.mix(self.norm(x))  # fails


class PromptTuned(nn.Module):
    """A frozen body; each task has a few learned vectors before its words."""

    def __init__(self, vocab=50, width=16):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.prompts = nn.ParameterList()
        self.body = nn.Sequential(Mixer(width), Mixer(width))

    def forward(self, ids, task):
        x = self.words(ids)
        prompt = self.prompts[task].expand(len(ids), -1, -1)
        return self.body(torch.cat([prompt, x], dim=1))


model = PromptTuned().half().requires_grad_(False)
for _task in ("translate", "summarise"):
    model.prompts.append(nn.Parameter(torch.zeros(3, 16)))  # enters

model(torch.tensor([[4, 8, 15]]), task=1).sum().backward()
