"""The optimizer holds the parameters of a copy, so there is no gradient to check for infinities.

op = "step"
sure = false
cure = true
"""
import copy

import torch
from torch import nn


def build():
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))
    teacher = copy.deepcopy(student).requires_grad_(True)
    return student, teacher


def distil(student, teacher, optimizer, scaler, inputs):
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.no_grad():
            wanted = teacher(inputs)
        loss = (student(inputs) - wanted).pow(2).mean() + 1e-3 * student[0].weight.square().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # fails
    scaler.update()


student, teacher = build()
optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
distil(student, teacher, optimizer, torch.amp.GradScaler("cpu"), torch.randn(4, 6))
