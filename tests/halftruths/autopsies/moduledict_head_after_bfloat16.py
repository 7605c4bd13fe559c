"""A head for a new task joins the ModuleDict after the model was converted to bfloat16.

module = "heads.topic"
op = "linear"
odd = "weight float32"
how = "parameter"
sure = true
cure = true
"""

import torch
from torch import nn


class MultiTask(nn.Module):
    def __init__(self, vocab=40, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(vocab, width)
        self.trunk = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.heads = nn.ModuleDict({"sentiment": nn.Linear(width, 2), "spam": nn.Linear(width, 2)})

    def forward(self, ids, task):
        pooled = self.trunk(self.words(ids))
        return self.heads[task](pooled)  # fails


model = MultiTask().bfloat16().eval()
ids = torch.tensor([[3, 5, 8], [1, 0, 2]])
print(model(ids, "spam").argmax(-1).tolist())

model.heads["topic"] = nn.Linear(16, 7)  # enters
print(model(ids, "topic").argmax(-1).tolist())
