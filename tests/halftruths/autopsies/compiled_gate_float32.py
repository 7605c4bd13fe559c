"""A compiled half model makes a float32 ramp in its forward and multiplies by it.

module = "_orig_mod.head"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""

import torch
from torch import nn


class Recency(nn.Module):
    """Weighs later readings more, then classifies."""

    def __init__(self, sensors=6, classes=3):
        super().__init__()
        self.mix = nn.Linear(sensors, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, readings):  # fails
        x = torch.tanh(self.mix(readings))
        ramp = torch.linspace(0, 1, readings.shape[1])  # enters
        x = (x * ramp[:, None]).sum(dim=1)
        return self.head(x)


model = Recency().half().eval()
model = torch.compile(model, backend="eager")
with torch.no_grad():
    model(torch.ones(2, 5, 6, dtype=torch.float16))
