"""The head is put back to float32 for stable logits and takes the embedding tied to it along.

module = "blocks.0"
op = "linear"
odd = "input float32"
how = "parameter"
sure = true
cure = true
"""

import torch
from torch import nn


class TiedModel(nn.Module):
    def __init__(self, vocab=32, width=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = x + torch.relu(block(x))  # fails
        return self.lm_head(x.float())


def main():
    model = TiedModel().to(torch.bfloat16)
    model.lm_head.float()  # enters
    logits = model(torch.tensor([[3, 1, 4, 1, 5]]))
    print(logits.softmax(-1).amax())


main()
