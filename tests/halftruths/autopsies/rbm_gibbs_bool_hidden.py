"""Hidden units are drawn by a comparison and stay bool in the next half of the Gibbs step.

op = "linear"
odd = "hidden bool"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


class BoltzmannMachine(nn.Module):
    def __init__(self, visible=12, hidden=6):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(hidden, visible))
        self.visible_bias = nn.Parameter(torch.zeros(visible))
        self.hidden_bias = nn.Parameter(torch.zeros(hidden))

    def draw_hidden(self, visible):
        chance = torch.sigmoid(F.linear(visible, self.weight, self.hidden_bias))
        return torch.rand_like(chance) < chance  # enters

    def draw_visible(self, hidden):
        chance = torch.sigmoid(F.linear(hidden, self.weight.t(), self.visible_bias))  # fails
        return torch.bernoulli(chance)

    def gibbs(self, visible, rounds):
        for _ in range(rounds):
            hidden = self.draw_hidden(visible)
            visible = self.draw_visible(hidden)
        return visible

    def free_energy(self, visible):
        inner = F.softplus(F.linear(visible, self.weight, self.hidden_bias)).sum(1)
        return -inner - visible @ self.visible_bias


def contrastive_divergence(machine, data, rounds=2):
    with torch.no_grad():
        dreamt = machine.gibbs(data, rounds)
    return (machine.free_energy(data) - machine.free_energy(dreamt)).mean()


torch.manual_seed(0)
contrastive_divergence(BoltzmannMachine(), (torch.rand(8, 12) > 0.5).float()).backward()
