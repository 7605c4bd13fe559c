"""Someone wrote float16 for a window, and the only other tensor in sight is float32.

# Nothing says which is meant: one tensor is no majority.
op = "matmul"
odd = "torch.ones(4, 2, dtype=torch.float16) float16"
how = "made"
sure = false
cure = true
"""
import torch


def smooth(signal):
    return signal @ torch.ones(4, 2, dtype=torch.float16)  # enters, and fails


print(smooth(torch.linspace(-1, 1, 12).view(3, 4)))
