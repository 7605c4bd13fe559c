"""A cache is float16, and also on the meta device: the dtype error comes first and hides the rest.

op = "scaled_dot_product_attention"
odd = "keys float16"
how = "made"
sure = true
cure = false
"""
import torch
import torch.nn.functional as F

LAYOUT = {"dtype": torch.float16, "device": "meta"}


def new_cache(heads, length, dim):
    keys = torch.zeros(1, heads, length, dim, **LAYOUT)  # enters
    values = torch.zeros(1, heads, length, dim, **LAYOUT)
    return keys, values


def attend(hidden, weight, cache):
    query = torch.matmul(hidden, weight).unflatten(-1, (2, 4)).transpose(1, 2)
    keys, values = cache
    return F.scaled_dot_product_attention(query, keys, values)  # fails


torch.manual_seed(0)
cache = new_cache(heads=2, length=6, dim=4)
print(attend(torch.randn(1, 3, 8), torch.randn(8, 8), cache).sum().item())
