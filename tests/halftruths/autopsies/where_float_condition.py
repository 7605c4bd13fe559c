"""The mask of a word dropout is float, as for a multiplication; where wants a boolean one.

op = "where"
odd = "keep float32"
how = "cast"
sure = true
cure = true
"""
import torch

UNKNOWN = 0


def keep_mask(shape, rate, generator):
    return (torch.rand(shape, generator=generator) > rate).float()  # enters


def drop_words(tokens, keep):
    unknown = torch.full_like(tokens, UNKNOWN)
    return torch.where(keep, tokens, unknown)  # fails


def augment(sentences, rate=0.3):
    generator = torch.Generator().manual_seed(0)
    keep = keep_mask(sentences.shape, rate, generator)
    return drop_words(sentences, keep)


print(augment(torch.arange(1, 13).reshape(2, 6)))
