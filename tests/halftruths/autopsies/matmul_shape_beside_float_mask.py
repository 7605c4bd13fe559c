"""A weight is stored the wrong way round; a float32 mask lies beside it and is not to blame.

op = "matmul"
sure = false
cure = false
dtype = false
"""
import torch


def project(hidden, weight, mask):
    keys = hidden @ weight  # fails
    return keys.float() * mask


def encode(tokens, table, weight):
    mask = (tokens > 0).float().unsqueeze(-1)
    return project(table[tokens], weight, mask)


torch.manual_seed(0)
table = torch.randn(20, 16).bfloat16()
weight = torch.randn(8, 16).bfloat16()
encode(torch.tensor([[4, 7, 0], [5, 0, 0]]), table, weight)
