"""A key cache allocated in float16 by default is filled from a float32 projection.

op = "index_put_"
odd = "keys float16"
how = "attribute"
sure = false
cure = true
"""
import torch


class KeyCache:
    """Keys of earlier positions. Whether it should follow the weights is not written anywhere."""

    def __init__(self, slots, dim, dtype=torch.float16):
        self.keys = torch.zeros(slots, dim, dtype=dtype)  # enters
        self.filled = 0

    def append(self, new):
        positions = torch.arange(self.filled, self.filled + len(new))
        self.keys.index_put_((positions,), new)  # fails
        self.filled += len(new)


def decode(prompt, weight, cache, steps):
    hidden = prompt
    for _ in range(steps):
        cache.append(hidden @ weight)
        hidden = torch.tanh(hidden[-1:])
    return cache


torch.manual_seed(0)
decode(torch.randn(3, 8), torch.randn(8, 4), KeyCache(slots=16, dim=4), steps=2)
