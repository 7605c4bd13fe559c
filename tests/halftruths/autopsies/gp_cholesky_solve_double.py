"""The observations of a Gaussian process come from NumPy in float64; its kernel is float32.

op = "cholesky_solve"
odd = "y float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch


def rbf(a, b, ell):
    return torch.exp(-0.5 * (a[:, None] - b[None]) ** 2 / ell**2)


rng = np.random.default_rng(7)
grid = np.linspace(0, 3, 12)
y = torch.from_numpy(np.sin(grid) + 0.1 * rng.standard_normal(12))  # enters

t = torch.linspace(0, 3, 12)
log_ell = torch.zeros((), requires_grad=True)
log_noise = torch.tensor(-2.0, requires_grad=True)
opt = torch.optim.Adam([log_ell, log_noise], lr=0.1)

for _ in range(5):
    K = rbf(t, t, log_ell.exp()) + log_noise.exp() * torch.eye(12)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(y[:, None], L).squeeze(-1)  # fails
    nll = 0.5 * (y * alpha).sum() + L.diagonal().log().sum()
    opt.zero_grad()
    nll.backward()
    opt.step()
