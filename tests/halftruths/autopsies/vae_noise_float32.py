"""The noise of the reparametrisation takes its shape from mu but not its dtype.

module = "decoder.0"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
from typing import NamedTuple

import torch
from torch import nn


class Posterior(NamedTuple):
    mu: torch.Tensor
    logvar: torch.Tensor

    def sample(self):
        eps = torch.randn(self.mu.shape)  # enters
        return self.mu + eps * (0.5 * self.logvar).exp()

    def kl(self):
        return 0.5 * (self.mu**2 + self.logvar.exp() - self.logvar - 1).sum(-1).mean()


class VAE(nn.Module):
    def __init__(self, pixels=36, code=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 16), nn.Tanh(), nn.Linear(16, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, 16), nn.Tanh(), nn.Linear(16, pixels))

    def forward(self, x):
        q = Posterior(*self.encoder(x).chunk(2, dim=-1))
        return self.decoder(q.sample()), q  # fails


def elbo(model, x):
    recon, q = model(x)
    return ((recon - x) ** 2).sum(-1).mean() + q.kl()


torch.manual_seed(0)
vae = VAE().to(torch.bfloat16)
optim = torch.optim.Adam(vae.parameters(), lr=1e-3)
for _ in range(3):
    optim.zero_grad(set_to_none=True)
    elbo(vae, torch.rand(8, 36, dtype=torch.bfloat16)).backward()
    optim.step()
