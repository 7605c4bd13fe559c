"""double() leaves complex parameters alone, so spectral weights stay complex64.

module = "spectral.0"
op = "einsum"
odd = "weight complex64"
how = "parameter"
sure = true
cure = true
"""
import torch
import torch.nn as nn


class SpectralConv1d(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / channels**2
        self.weight = nn.Parameter(
            scale * torch.randn(channels, channels, modes, dtype=torch.cfloat)
        )

    def forward(self, x):
        x_ft = torch.fft.rfft(x)
        out_ft = torch.zeros_like(x_ft)
        kept = x_ft[..., : self.modes]
        out_ft[..., : self.modes] = torch.einsum("bix,iox->box", kept, self.weight)  # fails
        return torch.fft.irfft(out_ft, n=x.shape[-1])


class FNO(nn.Module):
    def __init__(self, channels=6, modes=5, depth=2):
        super().__init__()
        self.lift = nn.Conv1d(1, channels, 1)
        self.spectral = nn.ModuleList(SpectralConv1d(channels, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(depth))
        self.project = nn.Conv1d(channels, 1, 1)

    def forward(self, u):
        v = self.lift(u)
        for spectral, local in zip(self.spectral, self.local, strict=True):
            v = torch.nn.functional.gelu(spectral(v) + local(v))
        return self.project(v)


grid = torch.linspace(0, 1, 32, dtype=torch.float64)
u0 = torch.sin(2 * torch.pi * grid)[None, None]
model = FNO().double()
with torch.no_grad():
    u1 = model(u0)
