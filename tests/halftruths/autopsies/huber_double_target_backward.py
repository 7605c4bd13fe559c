"""The loss takes float64 targets without a word; only its backward refuses them.

op = "huber_loss"
odd = "prices float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
import torch.nn.functional as F


def house_prices(count):
    rng = np.random.default_rng(0)
    rooms = rng.normal(size=(count, 4)).astype(np.float32)
    prices = rooms.sum(axis=1) * 2.5 + rng.normal(size=count)
    return rooms, prices


def fit(weight, rooms, prices, steps=3, rate=0.05):
    for _ in range(steps):
        predicted = rooms @ weight
        loss = F.huber_loss(predicted, prices)
        loss.backward()  # fails
        with torch.no_grad():
            weight -= rate * weight.grad
            weight.grad = None
    return weight


rooms, prices = house_prices(30)
weight = torch.zeros(4, requires_grad=True)
fit(weight, torch.tensor(rooms), torch.tensor(prices))  # enters
