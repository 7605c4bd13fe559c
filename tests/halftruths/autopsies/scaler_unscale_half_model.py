"""The model is cast to half although autocast and GradScaler are used: its gradients are half too.

op = "unscale_"
odd = "param float16"
how = "parameter"
sure = true
cure = true
"""
import torch
from torch import nn


def train_step(model, optimizer, scaler, inputs, targets):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (model(inputs).squeeze(-1) - targets).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # fails
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model = model.half()  # enters
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        train_step(model, optimizer, scaler, torch.randn(4, 8), torch.randn(4))


main()
