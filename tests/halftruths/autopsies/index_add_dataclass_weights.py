"""A dataclass batch is built from NumPy arrays; its weights stay float64.

op = "index_add_"
odd = "events.weights float64"
how = "numpy"
sure = true
cure = true
"""
from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Events:
    bins: torch.Tensor
    weights: torch.Tensor

    @classmethod
    def from_arrays(cls, bins, weights):
        return cls(torch.from_numpy(bins), torch.from_numpy(weights))  # enters


class Histogram:
    def __init__(self, size):
        self.totals = torch.zeros(size)

    def add(self, events):
        self.totals.index_add_(0, events.bins, events.weights)  # fails
        return self


def main():
    rng = np.random.default_rng(0)
    runs = [(rng.integers(0, 10, size=50), rng.exponential(size=50)) for _ in range(3)]
    histogram = Histogram(10)
    for events in map(lambda run: Events.from_arrays(*run), runs):
        histogram.add(events)
    print(histogram.totals.sum().item())


main()
