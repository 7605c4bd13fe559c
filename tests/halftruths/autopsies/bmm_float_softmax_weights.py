"""The softmax is asked for float32 to keep it exact, and its result is not cast back.

op = "bmm"
odd = "weights float32"
how = "cast"
sure = true
cure = true
"""
import math

import torch


def attend(query, key, value):
    scores = torch.bmm(query, key.transpose(1, 2)) / math.sqrt(query.shape[-1])
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32)  # enters
    return torch.bmm(weights, value)  # fails


def block(hidden, projections):
    query, key, value = (hidden @ matrix for matrix in projections)
    return hidden + attend(query, key, value)


torch.manual_seed(0)
dim = 16
projections = torch.randn(3, dim, dim, dtype=torch.bfloat16) * dim**-0.5
hidden = torch.randn(2, 5, dim, dtype=torch.bfloat16)
for _ in range(2):
    hidden = block(hidden, projections)
