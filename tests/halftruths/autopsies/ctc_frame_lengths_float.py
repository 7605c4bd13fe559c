"""The lengths after the convolutions are computed with a true division and are floats.

op = "ctc_loss"
odd = "frames float32"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


class Listener(nn.Module):
    def __init__(self, bins=10, width=16, letters=6):
        super().__init__()
        sizes = [(bins, width), (width, width)]
        self.convs = nn.ModuleList(nn.Conv1d(*size, 3, stride=2, padding=1) for size in sizes)
        self.letters = nn.Linear(width, letters)

    def lengths(self, lengths):
        for conv in self.convs:
            padded = lengths + 2 * conv.padding[0]
            lengths = (padded - conv.kernel_size[0]) / conv.stride[0] + 1  # enters
        return lengths

    def forward(self, mels, lengths):
        for conv in self.convs:
            mels = torch.relu(conv(mels))
        return self.letters(mels.transpose(1, 2)).log_softmax(-1), self.lengths(lengths)


def loss_of(model, batch):
    mels, lengths, text, text_lengths = batch
    scores, frames = model(mels, lengths)
    return F.ctc_loss(scores.transpose(0, 1), text, frames, text_lengths)  # fails


torch.manual_seed(0)
batch = (torch.randn(2, 10, 33), torch.tensor([33, 29]), torch.tensor([[1, 2, 3], [4, 5, 0]]),
         torch.tensor([3, 2]))
loss_of(Listener(), batch).backward()
