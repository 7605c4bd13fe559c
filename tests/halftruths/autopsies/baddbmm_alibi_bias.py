"""The position bias is built from Python floats, so it is float32 among bfloat16 scores.

op = "baddbmm"
odd = "bias float32"
how = "made"
sure = true
cure = true
"""
import torch


def alibi(heads, length):
    slopes = torch.tensor([2.0 ** -(head + 1) for head in range(heads)])  # enters
    position = torch.arange(length)
    distance = position[None, :] - position[:, None]
    return slopes[:, None, None] * distance


def biased_scores(query, key, bias):
    return torch.baddbmm(bias, query, key.transpose(1, 2), alpha=query.shape[-1] ** -0.5)  # fails


def layer(hidden, weight, bias):
    query, key = torch.matmul(hidden, weight).chunk(2, dim=-1)
    return torch.softmax(biased_scores(query, key, bias), dim=-1) @ hidden


def encode(hidden, weights):
    bias = alibi(hidden.shape[0], hidden.shape[1])
    for weight in weights:
        hidden = layer(hidden, weight, bias)
    return hidden


torch.manual_seed(0)
weights = [torch.randn(8, 16).to(torch.bfloat16) for _ in range(3)]
encode(torch.randn(4, 6, 8).to(torch.bfloat16), weights)
