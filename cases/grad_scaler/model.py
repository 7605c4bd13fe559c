"""A training loop in mixed precision: autocast, a GradScaler, and gradients that are clipped."""

import torch
from torch import nn

STEPS = 16
WEIGHT = 4e-6  # of this loss, one of several
MAX_NORM = 4e-4  # far above the norm of a gradient here: a guard against spikes
LEARNING_RATE = 0.2 / WEIGHT


class Net(nn.Module):
    """8 features through a layer, a norm and a head to one number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        h = self.layer(x)
        h = h / (h * h).mean(-1, keepdim=True).sqrt()
        return self.head(h).squeeze(-1)


def grad_scaler(device, **options):
    """torch.amp has one from 2.3 on. Before, there is CUDA's alone, which is off without a GPU."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device, **options)
    return torch.cuda.amp.GradScaler(**options)


def clip(model, optimizer, scaler):
    return nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # fails here


def autocast(device, dtype):
    """Mixed precision in `dtype`; None is plain float32."""
    return torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None)


def train(model, batch):
    optimizer, scaler = batch["optimizer"], batch["scaler"]
    for _ in range(STEPS):
        optimizer.zero_grad()
        with autocast(batch["device"], batch["dtype"]):
            output = model(batch["x"])
        loss = WEIGHT * nn.functional.mse_loss(output.float(), batch["y"])
        scaler.scale(loss).backward()
        norm = batch["clip"](model, optimizer, scaler)
        batch["log"].append((float(loss.detach()) / WEIGHT, float(norm), scaler.get_scale()))
        scaler.step(optimizer)
        scaler.update()
    with torch.no_grad(), autocast(batch["device"], batch["dtype"]):
        return model(batch["x"]).float()


if __name__ == "__main__":  # alone, as a script; in float32 the loss falls tenfold and more
    model, x = Net(), torch.randn(256, 8)
    batch = {
        "x": x, "y": Net()(x).detach(), "device": "cpu", "dtype": torch.float16, "clip": clip,
        "optimizer": torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        "scaler": grad_scaler("cpu"), "log": [],
    }
    train(model, batch)
    print("loss, first and last:", batch["log"][0][0], batch["log"][-1][0])
