"""The model is cast to half after Adam's first step, so Adam's averages stay float32.

op = "lerp_"
odd = "exp_avg float32"
how = "attribute"
sure = false
cure = true
"""
import torch
from torch import nn


def epoch(model, optimizer, batches):
    for inputs in batches:
        optimizer.zero_grad()
        loss = model(inputs.to(model[0].weight.dtype)).pow(2).mean()
        loss.backward()
        optimizer.step()  # fails


def warm_up_then_shrink(model, batches):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    epoch(model, optimizer, batches)
    model.half()
    epoch(model, optimizer, batches)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
warm_up_then_shrink(model, torch.randn(2, 4, 6))
