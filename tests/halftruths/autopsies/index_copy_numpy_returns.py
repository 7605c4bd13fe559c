"""Discounted returns are computed in NumPy and reach a float32 value table four calls later.

op = "index_copy_"
odd = "targets float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch


def discounted(rewards, gamma):
    returns = np.zeros(len(rewards))
    running = 0.0
    for step in reversed(range(len(rewards))):
        running = rewards[step] + gamma * running
        returns[step] = running
    return returns


def store(table, states, targets):
    table.index_copy_(0, states, targets)  # fails


def sweep(table, states, targets, size=4):
    for start in range(0, len(states), size):
        store(table, states[start : start + size], targets[start : start + size])


def learn(episodes, table):
    for states, targets in episodes:
        sweep(table, states, targets)
    return table


def main():
    states = torch.arange(8)
    returns = torch.as_tensor(discounted([0.0] * 7 + [1.0], gamma=0.9))  # enters
    return learn([(states, returns)], table=torch.zeros(16))


main()
