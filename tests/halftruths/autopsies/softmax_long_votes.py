"""Votes are counted in integers, and softmax is asked of the counts.

op = "softmax"
odd = "row int64"
how = "made"
sure = true
cure = true
"""
import torch


def count_votes(ballots, candidates):
    votes = torch.zeros(len(ballots), candidates, dtype=torch.int64)  # enters
    return votes.scatter_add_(1, ballots, torch.ones_like(ballots))


def confidence(votes):
    shares = map(lambda row: row.softmax(dim=-1), votes)  # fails
    return torch.stack(list(shares)).amax(dim=-1)


ballots = torch.tensor([[0, 1, 1, 2], [2, 2, 2, 0]])
print(confidence(count_votes(ballots, candidates=3)))
