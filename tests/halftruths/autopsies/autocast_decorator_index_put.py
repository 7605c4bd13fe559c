"""Under the decorator the layer's output is bfloat16 and the tensor it is written into float32.

module = "words"
op = "index_put"
odd = "out float32"
how = "made"
sure = false
cure = true
"""

import torch
from torch import nn


class MaskedProjection(nn.Module):
    """Projects the words that are there; padding stays zero."""

    def __init__(self, width, to):
        super().__init__()
        self.to = to
        self.project = nn.Linear(width, to)

    def forward(self, x, present):
        out = torch.zeros(*present.shape, self.to)  # enters
        out[present] = self.project(x[present])  # fails
        return out


class TextModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = MaskedProjection(12, 8)
        self.pool = nn.Linear(8, 2)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x, lengths):
        present = torch.arange(x.shape[1]) < lengths[:, None]
        return self.pool(self.words(x, present).mean(1))


TextModel()(torch.ones(2, 4, 12), lengths=torch.tensor([4, 2]))
