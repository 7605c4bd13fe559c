"""A model for spectra with two ways into one nn.TransformerEncoder, in mixed precision.

H: a signal (batch, 10000) goes through a CNN; no padding.
C: 80 binary positions become token ids padded with 0; the padding is masked.
"""

import torch
from torch import nn


class SpectraModel(nn.Module):
    def __init__(self, d_model=32, heads=2, layers=2, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.embedding = nn.Embedding(81, d_model, padding_idx=0)
        self.cnn = nn.Sequential(
            nn.Conv1d(1, 8, kernel_size=16, stride=16),
            nn.ReLU(),
            nn.Conv1d(8, 16, kernel_size=4),
            nn.ReLU(),
            nn.MaxPool1d(4),
        )
        self.project = nn.Linear(16, d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(256, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, heads, 2 * d_model, dropout=0.0, batch_first=batch_first
        )
        self.encoder = nn.TransformerEncoder(layer, layers)

    def forward(self, tokens=None, signal=None, mask=None):
        if tokens is not None:
            x = self.embedding(tokens)
        else:
            x = self.project(self.cnn(signal.unsqueeze(1)).transpose(1, 2))
        x = x + self.positions[: x.shape[1]]
        if self.batch_first:
            return self.encoder(x, src_key_padding_mask=mask)  # fails here
        return self.encoder(x.transpose(0, 1), src_key_padding_mask=mask).transpose(0, 1)


def tokens_of(bits):
    """Row by row, the positions of the ones, counted from 1; the rest is padding, 0."""
    tokens = torch.zeros_like(bits)
    for row, line in enumerate(bits):
        ids = line.nonzero().flatten() + 1
        tokens[row, : len(ids)] = ids
    return tokens


def autocast(device, dtype):
    """Mixed precision in `dtype`; None is plain float32."""
    return torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None)


def train_forward(model, batch, dtype):
    model.train()
    with autocast(batch["device"], dtype):
        return model(batch.get("tokens"), batch.get("signal"), batch.get("mask"))


def validate(model, batch, dtype):
    model.eval()
    with torch.no_grad(), autocast(batch["device"], dtype):
        return model(batch.get("tokens"), batch.get("signal"), batch.get("mask"))


if __name__ == "__main__":  # the failure alone, as a script
    tokens = tokens_of((torch.rand(8, 80) < 0.4).long())
    batch = {"device": "cpu", "tokens": tokens, "mask": tokens == 0}
    validate(SpectraModel(), batch, torch.bfloat16)
