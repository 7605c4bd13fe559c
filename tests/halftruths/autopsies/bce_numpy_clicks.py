"""Clicks read into a NumPy array become float64 targets for float32 probabilities.

op = "binary_cross_entropy"
odd = "target float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
import torch.nn.functional as F

ROWS = "0.2,1\n0.9,0\n-0.4,1\n1.3,0\n"


def read(text):
    table = np.array([[float(cell) for cell in line.split(",")] for line in text.split()])
    return {
        "features": torch.tensor(table[:, :1], dtype=torch.float32),
        "clicked": torch.tensor(table[:, 1]),  # enters
    }


def click_loss(batch, weight, bias):
    probability = torch.sigmoid(batch["features"] @ weight + bias).squeeze(-1)
    return F.binary_cross_entropy(probability, batch["clicked"])  # fails


def main():
    batch = read(ROWS)
    candidates = [-1.0, 0.0, 1.0]
    losses = [click_loss(batch, torch.tensor([[slope]]), 0.1) for slope in candidates]
    print(torch.stack(losses).argmin().item())


main()
