"""Totals copy the dtype of integer labels, then float weights are added into them in place.

op = "add_"
odd = "totals int64"
how = "made"
sure = true
cure = true
"""
import torch


def weighted_totals(labels, weights, rounds):
    totals = torch.zeros_like(labels)  # enters
    for _ in range(rounds):
        totals += weights * labels  # fails
    return totals


def report(labels, decay=0.9, rounds=3):
    weights = decay ** torch.arange(len(labels))
    return weighted_totals(labels, weights, rounds).tolist()


print(report(torch.tensor([3, 0, 2, 7])))
