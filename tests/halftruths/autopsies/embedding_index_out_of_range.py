"""One token number is larger than the half embedding table: an index error, not a dtype one.

op = "embedding"
sure = false
cure = false
dtype = false
"""
import torch
import torch.nn.functional as F

WORDS = ["<pad>", "the", "owl", "sleeps", "today"]


def encode(text):
    numbers = {word: number for number, word in enumerate(WORDS, start=1)}
    return torch.tensor([numbers[word] for word in text.split()], dtype=torch.int32)


def sentence_vector(tokens, table):
    return F.embedding(tokens, table).mean(dim=0)  # fails


torch.manual_seed(0)
table = torch.randn(len(WORDS), 6).half()
for text in ("the owl", "the owl sleeps today"):
    sentence_vector(encode(text), table)
