"""The decoder upsamples in float32, and the cat with the half skip makes everything float32.

module = "ups.0.0"
op = "conv2d"
odd = "input float32"
how = "cast"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, cin=3, classes=2, widths=(8, 16, 32)):
        super().__init__()
        self.downs = nn.ModuleList()
        for w in widths:
            self.downs.append(conv_block(cin, w))
            cin = w
        self.ups = nn.ModuleList(
            conv_block(a + b, b) for a, b in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def grow(x, like):
        x = F.interpolate(x.float(), size=like.shape[-2:], mode="bicubic")  # enters
        return x

    def forward(self, x):
        skips = []
        for i, down in enumerate(self.downs):
            x = down(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up in self.ups:
            skip = skips.pop()
            x = up(torch.cat([self.grow(x, skip), skip], dim=1))  # fails
        return self.head(x)


net = UNet().half().eval()
with torch.inference_mode():
    net(torch.rand(1, 3, 16, 16).half())
