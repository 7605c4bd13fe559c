"""The int8 weight is dequantised with a float32 scale and meets bfloat16 activations.

module = "0"
op = "linear"
odd = "dequant() float32"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


class Int8Linear(nn.Linear):
    @classmethod
    def from_float(cls, lin):
        new = cls(lin.in_features, lin.out_features, bias=lin.bias is not None)
        new.bias = lin.bias
        del new.weight
        absmax = lin.weight.detach().float().abs().amax(dim=1, keepdim=True)  # enters
        new.scale = absmax / 127
        new.q = torch.round(lin.weight.detach() / new.scale).to(torch.int8)
        return new

    def dequant(self):
        return self.q * self.scale

    def forward(self, x):
        return F.linear(x, self.dequant(), self.bias)  # fails


net = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 4)).to(torch.bfloat16)
for i, m in enumerate(net):
    if type(m) is nn.Linear:
        net[i] = Int8Linear.from_float(m)

x = torch.randn(2, 16, dtype=torch.bfloat16)
print(net(x))
