"""The first step has no cache yet, and its dtype is asked all the same.

op = "to"
sure = false
cure = false
dtype = false
"""
import torch


class Decoder:
    def __init__(self, dim):
        self.weight = torch.eye(dim, dtype=torch.bfloat16)
        self.cache = None

    def step(self, hidden):
        keys = hidden.to(self.cache.dtype) @ self.weight  # fails
        self.cache = keys if self.cache is None else torch.cat([self.cache, keys])
        return keys


decoder = Decoder(4)
for position in range(2):
    decoder.step(torch.full((1, 4), float(position)))
