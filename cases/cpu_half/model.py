"""A model that was saved in half, loaded and run where there is no GPU. `op` is its one layer."""

import torch
from torch import nn


class Call(nn.Module):
    """A torch function as a layer."""

    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, x):
        if self.op == "bmm":
            return torch.bmm(x, x.transpose(1, 2))
        if self.op == "cumsum":
            return torch.cumsum(x, dim=-1)
        if self.op == "topk":
            return torch.topk(x, 5, dim=-1).values
        if self.op == "erfinv":
            return torch.erfinv(x)
        if self.op == "fft":
            return torch.fft.rfft(x).abs()
        if self.op == "inverse":
            return torch.linalg.inv(x)
        if self.op == "cdist":
            return torch.cdist(x[:, :3], x[:, 3:])
        return torch.quantile(x, 0.9, dim=-1)


LAYERS = {
    "linear": lambda: nn.Linear(16, 16),
    "conv2d": lambda: nn.Conv2d(16, 8, kernel_size=3),
    "layer_norm": lambda: nn.LayerNorm(16),
    "softmax": lambda: nn.Softmax(dim=-1),
}


class Model(nn.Module):
    """A learned gain on each of 16 features, then the layer."""

    def __init__(self, op):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(16))
        self.layer = LAYERS[op]() if op in LAYERS else Call(op)

    def forward(self, x):
        return self.layer(x * self.gain)  # fails here


def forward(model, batch):
    model.eval()
    with torch.no_grad():
        return model(batch["x"])


def train_forward(model, batch):
    model.train()
    return model(batch["x"])


def loss(output, batch):
    return nn.functional.mse_loss(output.float(), batch["target"])


if __name__ == "__main__":  # alone, as a script: raises under torch 1.13, runs under 2.13
    forward(Model("linear").half(), {"x": torch.randn(32, 16).half()})
