"""One helper unscales to clip, another to log the norm: the second call is refused.

op = "unscale_"
sure = false
cure = true
"""
import torch
from torch import nn


def clip(model, optimizer, scaler, limit):
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), limit)


def log_norm(model, optimizer, scaler, history):
    scaler.unscale_(optimizer)  # fails
    norms = [parameter.grad.norm() for parameter in model.parameters()]
    history.append(torch.stack(norms).norm().item())


def train(model, optimizer, scaler, batches):
    history = []
    for inputs in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(inputs).float().pow(2).mean()
        scaler.scale(loss).backward()
        clip(model, optimizer, scaler, limit=1.0)
        log_norm(model, optimizer, scaler, history)
        scaler.step(optimizer)
        scaler.update()
    return history


torch.manual_seed(0)
model = nn.Linear(6, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train(model, optimizer, torch.amp.GradScaler("cpu"), torch.randn(3, 4, 6))
