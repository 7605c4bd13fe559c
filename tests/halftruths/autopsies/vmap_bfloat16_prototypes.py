"""A function is mapped over single examples with vmap; the prototypes it closes over are bfloat16.

op = "matmul"
odd = "prototypes bfloat16"
how = "cast"
sure = true
cure = true
"""
import torch


def make_score(weight, prototypes):
    prototypes = prototypes.to(torch.bfloat16)  # enters

    def score(example):
        hidden = torch.tanh(weight @ example)
        return (prototypes @ hidden).softmax(dim=-1)  # fails

    return score


def predict(examples, weight, prototypes):
    scores = torch.vmap(make_score(weight, prototypes))(examples)
    return scores.argmax(dim=-1)


torch.manual_seed(0)
predict(torch.randn(5, 6), torch.randn(8, 6), torch.randn(3, 8))
