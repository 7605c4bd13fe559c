"""The jitter of the depths along a ray is drawn in float32 and makes the sample points float32.

module = "field.0"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
import torch
from torch import nn


def stratified(near, far, count, rays):
    edges = torch.linspace(near, far, count + 1, dtype=rays.dtype)
    jitter = torch.rand(len(rays), count)  # enters
    return edges[:-1] + (edges[1:] - edges[:-1]) * jitter


class Renderer(nn.Module):
    def __init__(self, near=2.0, far=6.0, count=8, width=16):
        super().__init__()
        self.near, self.far, self.count = near, far, count
        self.field = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 4))

    def query(self, points):
        colour, density = self.field(points).split([3, 1], -1)  # fails
        return colour.sigmoid(), torch.relu(density.squeeze(-1))

    def forward(self, origins, directions):
        depths = stratified(self.near, self.far, self.count, directions)
        colour, density = self.query(origins[:, None] + directions[:, None] * depths[..., None])
        gaps = torch.diff(depths, append=depths[:, -1:] + 1)
        alpha = 1 - torch.exp(-density * gaps)
        through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha[:, :-1]], 1), 1)
        return ((alpha * through)[..., None] * colour).sum(1)


torch.manual_seed(0)
renderer = Renderer().bfloat16()
rays = torch.randn(4, 3).bfloat16()
renderer(torch.zeros_like(rays), rays).square().mean().backward()
