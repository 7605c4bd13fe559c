"""A list of NumPy scalars looks like Python floats, but torch.tensor makes it float64.

op = "scatter_"
odd = "fresh float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch


class Priorities:
    """Sampling weights of a replay buffer."""

    def __init__(self, size, floor=1e-3):
        self.values = torch.ones(size)
        self.floor = floor

    def update(self, slots, errors):
        fresh = torch.tensor([np.sqrt(error) + self.floor for error in errors])  # enters
        self.values.scatter_(0, slots, fresh)  # fails

    def sample(self, count, generator):
        return torch.multinomial(self.values, count, generator=generator)


def replay(priorities, steps):
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        slots = priorities.sample(4, generator)
        errors = [0.5 / (step + slot + 1) for slot in slots.tolist()]
        priorities.update(slots, errors)


replay(Priorities(size=20), steps=3)
