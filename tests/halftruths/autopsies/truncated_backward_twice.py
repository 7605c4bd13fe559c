"""The recurrent state isn't detached between two windows, so its graph is walked a second time.

op = "backward"
sure = false
cure = true
dtype = false
"""
import torch
import torch.nn.functional as F
from torch import nn


class CharModel(nn.Module):
    def __init__(self, letters=12, width=8):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.next = nn.Linear(width, letters)

    def forward(self, ids, state=None):
        hidden, state = self.cell(self.letters(ids), state)
        return self.next(hidden), state


def train(model, text, window=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = None
    for start in range(0, text.shape[1] - window, window):
        part = text[:, start:start + window + 1]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores, state = model(part[:, :-1], state)
        loss = F.cross_entropy(scores.float().flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # fails
        optimizer.step()


torch.manual_seed(0)
train(CharModel(), torch.randint(12, (2, 20)))
