"""The sampler's schedule is float64 from NumPy and turns the half image into float64.

module = "net.0"
op = "conv2d"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
import torch.nn as nn


class Eps(nn.Module):
    def __init__(self, c=3, w=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(c + 1, w, 3, padding=1), nn.GroupNorm(2, w), nn.SiLU(), nn.Conv2d(w, c, 1)
        )

    def forward(self, x, t):
        tmap = (t / 1000).to(x.dtype).view(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])
        return self.net(torch.cat([x, tmap], 1))  # fails


class DDIM:
    def __init__(self, steps, betas=(1e-4, 0.02)):
        beta = np.linspace(*betas, 1000)
        self.abar = torch.as_tensor(np.cumprod(1 - beta))  # enters
        self.ts = torch.linspace(999, 0, steps).long()

    def coef(self, t, x):
        return self.abar[t].reshape(-1, *(1,) * (x.ndim - 1))

    @torch.no_grad()
    def sample(self, model, x):
        for t, s in zip(self.ts[:-1], self.ts[1:], strict=True):
            tb, sb = t.repeat(len(x)), s.repeat(len(x))
            eps = model(x, tb)
            at, as_ = self.coef(tb, x), self.coef(sb, x)
            x0 = (x - (1 - at).sqrt() * eps) / at.sqrt()
            x = as_.sqrt() * x0 + (1 - as_).sqrt() * eps
        return x


torch.manual_seed(0)
img = DDIM(steps=5).sample(Eps().half(), torch.randn(2, 3, 8, 8).half())
