"""A batch is cast to float32 to be sure; it was float32 already, and the cast gives itself.

# A cure of the line that made the batch is undone by the cast.
module = "0"
op = "linear"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import torch
from torch import nn


def evaluate(model, batch):
    inputs = batch.float()  # enters
    return model(inputs).argmax(dim=-1)  # fails


def main():
    model = nn.Sequential(nn.Linear(6, 3), nn.LogSoftmax(dim=-1)).half()
    batch = torch.linspace(-1, 1, 24).view(4, 6)
    print(evaluate(model, batch))


main()
