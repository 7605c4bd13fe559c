"""Three things that training carries from step to step; each step adds a little to them.

fit: the weights. average: their moving average, EMA. log: the sum of the losses.
"""

import torch
from torch import nn


def squared_error(output, target):
    return ((output - target) ** 2).mean()


def fit(model, optimizer, criterion, x, y, steps):
    """Train the weights; return the predictions."""
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        criterion(model(x), y).backward()
        optimizer.step()  # fails here
    with torch.no_grad():
        return model(x)


def average(model, decay, steps):
    """Let the moving average follow the weights; return it as it is saved, in low precision."""
    ema, weights = model["ema"].weight, model["trained"].weight
    with torch.no_grad():
        for _ in range(steps):
            ema.mul_(decay).add_(weights, alpha=1 - decay)  # fails here
        return ema.to(weights.dtype)


def log(losses, total, every):
    """Sum up the losses; now and then log their mean since the last log. Return what was logged."""
    total, before, logged = total.clone(), 0, []
    for step, loss in enumerate(losses, start=1):
        total += loss  # fails here
        if step % every == 0:
            logged.append((total - before) / every)
            before = total.clone()
    return torch.stack(logged).to(losses.dtype)


if __name__ == "__main__":  # alone, as a script: prints 1 and 1
    model = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.ones_(model.weight)
    x = torch.ones(8, 1, dtype=torch.bfloat16)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    fit(model, adamw, squared_error, x, y=0 * x, steps=100)
    print("the weight before:", 1.0, "and after 100 steps towards 0:", model.weight.item())
