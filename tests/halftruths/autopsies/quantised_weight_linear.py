"""Weights were quantised to eight bits for storage and reach a float linear without dequantize.

op = "linear"
odd = "weight qint8"
how = "cast"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F


def pack(weight):
    scale = weight.abs().max().item() / 127
    return torch.quantize_per_tensor(weight, scale, 0, torch.qint8)  # enters


def forward(inputs, layers):
    hidden = inputs
    for weight, bias in layers:
        hidden = F.relu(F.linear(hidden, weight, bias))  # fails
    return hidden


torch.manual_seed(0)
shapes = [(8, 6), (3, 8)]
layers = [(pack(torch.randn(shape)), torch.zeros(shape[0])) for shape in shapes]
forward(torch.randn(4, 6), layers)
