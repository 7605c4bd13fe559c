"""The Gaussian window of an SSIM loss is built in NumPy on first use and stays float64.

op = "conv2d"
odd = "window float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class SSIM(nn.Module):
    def __init__(self, size=5, sigma=1.5):
        super().__init__()
        self.size, self.sigma = size, sigma
        self.window = None

    def build(self, channels):
        offsets = np.arange(self.size) - self.size // 2
        line = np.exp(-(offsets ** 2) / (2 * self.sigma ** 2))
        square = np.outer(line, line) / line.sum() ** 2
        return torch.from_numpy(square).expand(channels, 1, -1, -1)  # enters

    def blur(self, images):
        return F.conv2d(images, self.window, groups=images.shape[1])  # fails

    def forward(self, made, wanted):
        if self.window is None:
            self.window = self.build(made.shape[1])
        mean_made, mean_wanted = self.blur(made), self.blur(wanted)
        shared = self.blur(made * wanted) - mean_made * mean_wanted
        spread = self.blur(made ** 2 + wanted ** 2) - mean_made ** 2 - mean_wanted ** 2
        ratio = (2 * mean_made * mean_wanted + 1e-4) / (mean_made ** 2 + mean_wanted ** 2 + 1e-4)
        return 1 - (ratio * (2 * shared + 9e-4) / (spread + 9e-4)).mean()


def step(denoiser, criterion, noisy, clean):
    loss = criterion(denoiser(noisy), clean)
    loss.backward()
    return loss.detach()


torch.manual_seed(0)
clean = torch.rand(2, 3, 12, 12)
denoiser = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))
step(denoiser, SSIM(), clean + 0.1 * torch.randn_like(clean), clean)
