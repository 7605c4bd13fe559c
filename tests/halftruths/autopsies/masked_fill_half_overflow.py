"""Scores are float16, and the -1e9 that hides padding does not fit in float16.

op = "masked_fill"
sure = true
cure = true
"""
import torch


def hide(scores, padding):
    return scores.masked_fill(padding[:, None, None, :], -1e9)  # fails


def attention(query, key, value, padding):
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return torch.softmax(hide(scores, padding), dim=-1) @ value


def main():
    torch.manual_seed(0)
    states = torch.randn(2, 3, 5, 4).half()
    padding = torch.arange(5) >= torch.tensor([[5], [3]])
    attention(states, states, states, padding)


main()
