"""The precision option converts the model; the features stay float32.

module = "layers.0"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
import argparse

import torch
from torch import nn


def set_precision(model, precision):
    match precision:
        case "fp32":
            return model
        case "fp16" | "half":
            return model.half()
        case "bf16":
            return model.to(torch.bfloat16)
        case other:
            raise ValueError(f"unknown precision {other!r}")


class Scorer(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        pairs = zip(widths[:-1], widths[1:], strict=True)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)

    def forward(self, x):
        *hidden, last = self.layers
        for layer in hidden:
            x = torch.relu(layer(x))  # fails
        return last(x)


def build_features(rows):
    out = []
    for name, age, *marks in rows:
        out.append(torch.tensor([len(name), age, *marks], dtype=torch.float))  # enters
    return torch.stack(out)


parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="bf16")
args = parser.parse_args([])
features = build_features([("ada", 36, 1.0, 0.5), ("grace", 85, 0.9, 0.7)])
model = set_precision(Scorer(4, 8, 1), args.precision)
if (scores := model(features)).isnan().any():
    print("not a number")
