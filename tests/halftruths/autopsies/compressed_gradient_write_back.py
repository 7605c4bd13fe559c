"""Gradients are sent as float16, averaged, and written back to float32 parameters.

op = "grad"
odd = "average float16"
how = "cast"
sure = true
cure = true
"""
import torch
from torch import nn


def compress(gradients):
    return [gradient.half() for gradient in gradients]  # enters


def all_reduce(messages):
    """The mean over workers of each parameter's gradient."""
    return [torch.stack(parts).mean(dim=0) for parts in zip(*messages, strict=True)]


def synchronise(model, messages):
    for parameter, average in zip(model.parameters(), all_reduce(messages), strict=True):
        parameter.grad = average  # fails


def worker(model, seed):
    inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed))
    loss = model(inputs).pow(2).mean()
    return compress(torch.autograd.grad(loss, tuple(model.parameters())))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
synchronise(model, [worker(model, seed) for seed in range(2)])
with torch.no_grad():
    for parameter in model.parameters():
        parameter -= 0.1 * parameter.grad
