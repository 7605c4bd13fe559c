"""A buffer made for token numbers is reused as the output of a cat of float scores.

op = "cat"
odd = "out int64"
how = "made"
sure = true
cure = true
"""
import torch


def score(chunk):
    return chunk.to(torch.float32).cumsum(dim=0) / 10


def collect(pieces, buffer):
    torch.cat(pieces, out=buffer)  # fails
    return buffer


def main():
    tokens = torch.arange(12)
    buffer = torch.empty_like(tokens)  # enters
    chunks = tokens.split(4)
    collect(chunks, buffer)
    pieces = [score(chunk) for chunk in chunks]
    print(collect(pieces, buffer).max())


main()
