"""A complex time evolution operator is applied to a quantum state that was made real.

module = "evolve"
op = "matmul"
odd = "state float32"
how = "made"
sure = false
cure = true
"""
import torch
from torch import nn


def ground(levels):
    state = torch.zeros(levels)  # enters
    state[0] = 1.0
    return state


class Evolution(nn.Module):
    """exp(-iHt) for a learned, symmetric Hamiltonian."""

    def __init__(self, levels):
        super().__init__()
        self.hamiltonian = nn.Parameter(torch.randn(levels, levels))

    def forward(self, state, time):
        symmetric = (self.hamiltonian + self.hamiltonian.T) / 2
        unitary = torch.linalg.matrix_exp(-1j * time * symmetric)
        return unitary @ state  # fails


class Experiment(nn.Module):
    def __init__(self, levels=4):
        super().__init__()
        self.levels, self.evolve = levels, Evolution(levels)

    def forward(self, times):
        start = ground(self.levels)
        return torch.stack([self.evolve(start, time).abs().square() for time in times])


torch.manual_seed(0)
measured = torch.full((3, 4), 0.25)
(Experiment()([0.1, 0.5, 1.0]) - measured).square().sum().backward()
