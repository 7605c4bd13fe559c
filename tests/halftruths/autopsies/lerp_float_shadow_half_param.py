"""Averaged weights are kept in float32 on purpose and blended with the half parameters of a model.

op = "lerp_"
odd = "shadow float32"
how = "cast"
sure = false
cure = true
"""
import torch
from torch import nn


class WeightAverage:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        copies = (parameter.detach().float() for parameter in model.parameters())  # enters
        self.shadows = list(copies)

    @torch.no_grad()
    def update(self, model):
        for shadow, parameter in zip(self.shadows, model.parameters(), strict=True):
            shadow.lerp_(parameter, 1 - self.decay)  # fails


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).half()
    average = WeightAverage(model)
    for _ in range(2):
        loss = model(torch.randn(3, 4).half()).sum()
        gradients = torch.autograd.grad(loss, tuple(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
        average.update(model)


main()
