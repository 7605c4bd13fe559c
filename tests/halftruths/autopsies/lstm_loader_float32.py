"""The loader hands out float32 windows, and the LSTM was converted to bfloat16.

module = "lstm"
op = "lstm"
odd = "input float32"
how = "loader"
sure = true
cure = true
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Windows of a sensor's readings, with the reading that follows each."""

    def __init__(self, readings, size):
        self.readings, self.size = readings, size

    def __len__(self):
        return len(self.readings) - self.size

    def __getitem__(self, i):
        window = self.readings[i : i + self.size]
        return torch.tensor(window)[:, None], torch.tensor(self.readings[i + self.size])


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, windows):
        states, _ = self.lstm(windows)  # fails
        return self.out(states[:, -1]).squeeze(-1)


def mean_error(model, loader):
    total = 0.0
    for windows, following in loader:  # enters
        total += (model(windows) - following).abs().sum().item()
    return total / len(loader.dataset)


loader = DataLoader(Windows([0.1 * (i % 7) for i in range(40)], size=8), batch_size=4)
with torch.no_grad():
    print(mean_error(Forecaster().to(torch.bfloat16), loader))
