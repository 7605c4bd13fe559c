"""A camera's position is computed by NumPy in float64; the up vector is a float32 constant.

op = "cross"
odd = "forward float64"
how = "numpy"
sure = false
cure = true
"""
import math

import numpy as np
import torch

UP = torch.tensor([0.0, 1.0, 0.0])


def on_circle(k, n, radius=4.0, height=1.0):
    angle = 2 * math.pi * k / n
    eye = np.array([radius * math.cos(angle), height, radius * math.sin(angle)])
    return torch.from_numpy(eye)  # enters


def normalise(v):
    return v / v.norm()


def look_at(eye, target=None):
    target = torch.zeros(3) if target is None else target
    forward = normalise(target - eye)
    right = normalise(torch.linalg.cross(forward, UP))  # fails
    up = torch.linalg.cross(right, forward)
    pose = torch.eye(4)
    pose[:3, :3] = torch.stack([right, up, -forward], dim=1)
    pose[:3, 3] = eye
    return pose


def orbit(n=6):
    return torch.stack([look_at(on_circle(k, n)) for k in range(n)])


poses = orbit()
