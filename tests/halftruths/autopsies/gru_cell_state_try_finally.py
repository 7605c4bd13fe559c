"""A policy resets its memory with torch.zeros, which is float32; the cell is bfloat16.

module = "cell"
op = "gru_cell"
odd = "hx float32"
how = "attribute"
sure = true
cure = true
"""
import torch
from torch import nn


class Memory:
    def __init__(self, size):
        self.size = size
        self.reset()

    def reset(self, n=1):
        self.state = torch.zeros(n, self.size)  # enters


class Policy(nn.Module):
    def __init__(self, obs=4, actions=2, size=8):
        super().__init__()
        self.memory = Memory(size)
        self.cell = nn.GRUCell(obs, size)
        self.pi = nn.Linear(size, actions)

    def forward(self, obs):
        self.memory.state = self.cell(obs, self.memory.state)  # fails
        return self.pi(self.memory.state)


def rollout(policy, env, limit=5):
    policy.memory.reset(n=1)
    obs, t, total = env(None), 0, 0.0
    try:
        while t < limit:
            action = policy(obs).argmax(-1)
            obs = env(action)
            total += float(obs.sum())
            t += 1
    finally:
        policy.memory.reset()
    return total


def env(action):
    sign = 1.0 if action is None or int(action) else -1.0
    return torch.full((1, 4), sign, dtype=torch.bfloat16)


with torch.no_grad():
    rollout(Policy().bfloat16(), env)
