"""Between forward and backward a part is exported in half, and the recompute meets that.

module = "decoder.0"
op = "linear"
odd = "weight float16"
how = "parameter"
sure = true
cure = true
"""

import io

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Autoencoder(nn.Module):
    def __init__(self, width=24, code=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, code))
        self.decoder = nn.Sequential(nn.Linear(code, 16), nn.ReLU(), nn.Linear(16, width))

    def forward(self, x):
        return checkpoint(self.decoder, self.encoder(x), use_reentrant=False)


def train(model, data, file, steps=4):
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        loss = (model(data) - data).square().mean()
        if step == 2:
            torch.save(model.decoder.half().state_dict(), file)  # enters
        optimizer.zero_grad()
        loss.backward()  # fails
        optimizer.step()


torch.manual_seed(0)
train(Autoencoder(), torch.rand(8, 24), io.BytesIO())
