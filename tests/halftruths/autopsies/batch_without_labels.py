"""The collate function calls it target, the loss asks the batch for labels.

op = "getitem"
sure = false
cure = false
dtype = false
"""
import torch
import torch.nn.functional as F
from torch import nn


def collate(rows):
    return {
        "inputs": torch.stack([inputs for inputs, _ in rows]).half(),
        "target": torch.tensor([label for _, label in rows]),
    }


def compute_loss(model, batch):
    logits = model(batch["inputs"].float())
    return F.cross_entropy(logits, batch["labels"])  # fails


torch.manual_seed(0)
rows = [(torch.randn(4), label) for label in (0, 2, 1)]
compute_loss(nn.Linear(4, 3), collate(rows))
