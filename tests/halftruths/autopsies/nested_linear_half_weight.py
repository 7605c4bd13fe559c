"""A nested tensor of sentences meets a weight that was cast to float16, with a float32 bias.

op = "linear"
odd = "weight float16"
how = "cast"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F


def load_weights(rows, columns):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(rows, columns, generator=generator)
    weight = weight.to(torch.float16)  # enters
    return weight, torch.zeros(rows)


def tag(sentences, weight, bias):
    ragged = torch.nested.nested_tensor(sentences, layout=torch.jagged)
    logits = F.linear(ragged, weight, bias)  # fails
    return [piece.argmax(dim=-1) for piece in logits.unbind()]


def main():
    torch.manual_seed(0)
    sentences = [torch.randn(length, 8) for length in (2, 5, 3)]
    weight, bias = load_weights(4, 8)
    print(tag(sentences, weight, bias))


main()
