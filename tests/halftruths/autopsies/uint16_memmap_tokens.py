"""Tokens are stored as uint16 to keep the file small and reach the embedding like that.

module = "wte"
op = "embedding"
odd = "input uint16"
how = "numpy"
sure = true
cure = true
"""
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


class GPT(nn.Module):
    def __init__(self, vocab=64, d=16):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx)  # fails
        logits = self.lm_head(x + self.mlp(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


block_size, batch_size = 8, 4


def get_batch(data):
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(np.array(data[i:i + block_size])) for i in ix])  # enters
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


torch.manual_seed(1337)
with tempfile.TemporaryFile() as file:
    file.write((np.arange(400) % 50).astype(np.uint16).tobytes())
    file.flush()
    data = np.memmap(file, dtype=np.uint16, mode="r")
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        xb, yb = get_batch(data)
        logits, loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
