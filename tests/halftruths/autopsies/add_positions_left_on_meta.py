"""The position table was made on the meta device and never filled: no dtype is wrong here.

op = "add"
sure = false
cure = true
dtype = false
"""
import torch


def build(vocabulary, length, dim):
    table = torch.randn(vocabulary, dim)
    with torch.device("meta"):
        positions = torch.zeros(length, dim)
    return table, positions


def embed(tokens, table, positions):
    words = table[tokens]
    return words + positions[: tokens.shape[-1]]  # fails


torch.manual_seed(0)
table, positions = build(vocabulary=30, length=16, dim=8)
embed(torch.tensor([[3, 1, 4], [1, 5, 9]]), table, positions)
