"""A spectrum goes into a half layer as it is, complex: a cast would run, and drop half of it.

module = "readout"
op = "linear"
odd = "input complex64"
how = "made"
sure = false
cure = true
"""
import torch
from torch import nn


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.readout = nn.Linear(5, 2)

    def forward(self, spectrum):
        return self.readout(spectrum)


listener = Listener().half()
spectrum = torch.fft.rfft(torch.linspace(-1, 1, 24).view(3, 8))  # enters
print(listener(spectrum))  # fails
