"""Eleven pixels halve to five and double to ten: the skip does not fit. No dtype is wrong here.

op = "cat"
sure = false
cure = true
dtype = false
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.bottom = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(2 * width, 1, 3, padding=1)
        self.register_buffer("mean", torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x):
        x = x - self.mean
        skip = F.relu(self.stem(x))
        low = F.relu(self.bottom(F.avg_pool2d(skip, 2)))
        up = F.interpolate(low, scale_factor=2)
        return self.out(torch.cat([up, skip], dim=1))  # fails


torch.manual_seed(0)
model = TinyUNet()
noisy = torch.rand(4, 1, 11, 11)
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    loss = F.l1_loss(model(noisy), noisy)
    opt.zero_grad()
    loss.backward()
    opt.step()
