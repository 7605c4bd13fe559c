"""Token ids are padded with torch.zeros, which is float32, and so the ids are no integers any more.

module = "embed"
op = "embedding"
odd = "input float32"
how = "made"
sure = true
cure = true
"""

import torch
from torch import nn


class Reviews(nn.Module):
    def __init__(self, vocab=30, width=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, padding_idx=0)
        self.score = nn.Linear(width, 1)

    def forward(self, ids):
        words = self.embed(ids)  # fails
        return self.score(words.mean(1))


def collate(reviews):
    longest = max(len(review) for review in reviews)
    rows = []
    for review in reviews:
        padding = torch.zeros(longest - len(review))  # enters
        rows.append(torch.cat([torch.tensor(review), padding]))
    return torch.stack(rows)


ids = collate([[4, 17, 2], [9, 1, 1, 28, 3]])
print(Reviews()(ids))
