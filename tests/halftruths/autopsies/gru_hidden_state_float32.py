"""The first hidden state of a half GRU is made without a dtype.

module = "rnn"
op = "gru"
odd = "hx float32"
how = "made"
sure = true
cure = true
"""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, letters=27, width=12):
        super().__init__()
        self.width = width
        self.letters = nn.Embedding(letters, width)
        self.rnn = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.decode = nn.Linear(width, letters)

    def start(self, batch):
        return torch.zeros(2, batch, self.width)  # enters

    def forward(self, letters, hidden=None):
        if hidden is None:
            hidden = self.start(len(letters))
        out, hidden = self.rnn(self.letters(letters), hidden)  # fails
        return self.decode(out), hidden


def sample(model, letter, length):
    text, hidden = [], None
    for _ in range(length):
        logits, hidden = model(torch.tensor([[letter]]), hidden)
        letter = int(logits[0, -1].argmax())
        text.append(letter)
    return text


with torch.no_grad():
    sample(LanguageModel().half().eval(), letter=3, length=5)
