"""Losses scaled by hand overflow float16, and the clipping refuses gradients that are not finite.

op = "clip_grad_norm_"
sure = false
cure = true
"""
import torch
from torch import nn


class LossScale:
    def __init__(self, scale=2.0**16):
        self.scale = scale

    def __rmul__(self, loss):
        return loss * self.scale

    def unscale(self, params):
        for p in params:
            p.grad.div_(self.scale)


def run(model, data, accumulate=2, lr=1e-2):
    scaler = LossScale()
    for i, (x, y) in enumerate(data, start=1):
        loss = (model(x) - y).square().mean() / accumulate
        (loss * scaler.scale).backward()
        if i % accumulate:
            continue
        scaler.unscale(model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)  # fails
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad
                p.grad = None


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).half()
data = [(torch.randn(8, 4).half(), torch.randn(8, 1).half() * 3) for _ in range(4)]
run(net, data)
