"""Sequences of different lengths come from NumPy in float64 and are packed as they are.

module = "rnn"
op = "lstm"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self, n_in, n_tags, hidden=8):
        super().__init__()
        self.rnn = nn.LSTM(n_in, hidden, bidirectional=True)
        self.out = nn.Linear(2 * hidden, n_tags)

    def forward(self, packed):
        h, _ = self.rnn(packed)  # fails
        h, lengths = pad_packed_sequence(h, batch_first=True)
        return self.out(h), lengths


def load(path=None, seed=3):
    r = np.random.RandomState(seed)
    return [r.randn(n, 5) for n in (4, 7, 2)]


seqs = [torch.from_numpy(s) for s in load()]  # enters
packed = pack_sequence(seqs, enforce_sorted=False)
logits, lengths = Tagger(5, 3)(packed)
