"""A replay buffer samples by rank, and ranks are integers, which multinomial does not take.

op = "multinomial"
odd = "weights int64"
sure = true
cure = true
"""
from collections import deque
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Transition(NamedTuple):
    s: torch.Tensor
    a: torch.Tensor
    r: torch.Tensor
    s2: torch.Tensor


class Replay:
    def __init__(self, size):
        self.items = deque(maxlen=size)
        self.errors = deque(maxlen=size)

    def push(self, *parts, error=1.0):
        self.items.append(Transition(*parts))
        self.errors.append(error)

    def sample(self, n):
        order = torch.tensor(self.errors).argsort()
        weights = torch.empty_like(order)
        weights[order] = torch.arange(1, len(order) + 1)
        picked = torch.multinomial(weights, n)  # fails
        return Transition(*map(torch.stack, zip(*(self.items[i] for i in picked), strict=True)))


def learn(q, target, replay, opt, gamma=0.99):
    s, a, r, s2 = replay.sample(4)
    with torch.no_grad():
        goal = r + gamma * target(s2).amax(-1)
    loss = F.smooth_l1_loss(q(s).gather(-1, a[:, None])[:, 0], goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(0)
q, target = nn.Linear(3, 2), nn.Linear(3, 2)
replay = Replay(size=50)
for step in range(10):
    state, reward = torch.rand(3), torch.tensor(float(step % 2))
    replay.push(state, torch.tensor(step % 2), reward, torch.rand(3), error=step * 0.1)
learn(q, target, replay, torch.optim.SGD(q.parameters(), lr=0.1))
