"""Windows over a float64 series come out of the loader as they are, and PatchTST is float32.

module = "model.encoder.embedder.input_embedding"
op = "linear"
odd = "input float64"
how = "loader"
sure = true
cure = true
"""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import PatchTSTConfig, PatchTSTForPrediction


class Windows(Dataset):
    def __init__(self, series, past, future):
        self.series, self.past, self.future = series, past, future

    def __len__(self):
        return len(self.series) - self.past - self.future + 1

    def __getitem__(self, start):
        middle = start + self.past
        return {"past_values": self.series[start:middle],
                "future_values": self.series[middle:middle + self.future]}


def epoch(model, loader, optimizer):
    total = 0.0
    for batch in loader:  # enters
        optimizer.zero_grad()
        loss = model(**batch).loss  # fails
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


torch.manual_seed(0)
hours = np.arange(60)
load = np.stack([np.sin(hours / 24 * 2 * np.pi), np.cos(hours / 12 * np.pi)], axis=1)
config = PatchTSTConfig(num_input_channels=2, context_length=16, prediction_length=4,
                        patch_length=4, patch_stride=4, d_model=8, num_hidden_layers=1,
                        num_attention_heads=2, ffn_dim=16)
model = PatchTSTForPrediction(config)
loader = DataLoader(Windows(load, 16, 4), batch_size=8)
epoch(model, loader, torch.optim.Adam(model.parameters()))
