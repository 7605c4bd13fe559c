"""A small decoder in half precision. Prompts of unequal length are padded, and the padding masked.

The mask is added to the scores before the softmax: 0 where a position may look, and a large
negative constant where it may not, which is at padding and ahead of itself.
"""

import math

import torch
from torch import nn

PAD = 1


class Decoder(nn.Module):
    def __init__(self, constant=-1e9, width=64, layers=2, vocabulary=32):
        super().__init__()
        self.constant = constant
        self.embedding = nn.Embedding(vocabulary, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))

    def mask(self, keep):
        """(rows, length, length), float32. keep: bool (rows, length), False at padding."""
        length = keep.shape[1]
        ahead = torch.full((length, length), self.constant, device=keep.device).triu(1)
        padding = torch.zeros(keep.shape, device=keep.device).masked_fill(~keep, self.constant)
        return ahead + padding[:, None, :]

    def scores(self, q, k):
        return q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])

    def weights(self, scores, mask):
        return torch.softmax(scores + mask, dim=-1)

    def attend(self, q, k, v, mask):
        return self.weights(self.scores(q, k), mask) @ v

    def forward(self, tokens, keep):
        x = self.embedding(tokens)
        mask = self.mask(keep).to(x.dtype)  # fails here
        for qkv in self.qkv:
            q, k, v = qkv(x).chunk(3, dim=-1)
            x = x + self.attend(q, k, v, mask)
        return x


def padded(prompts, side="left"):
    """Token ids (rows, length) of prompts of unequal length, and where they are not padding."""
    length = max(map(len, prompts))
    fill = [[PAD] * (length - len(prompt)) for prompt in prompts]
    rows = [pad + prompt if side == "left" else prompt + pad
            for prompt, pad in zip(prompts, fill, strict=True)]
    tokens = torch.tensor(rows)
    return tokens, tokens != PAD


def step(model, batch):
    return model(batch["tokens"], batch["keep"])


if __name__ == "__main__":  # alone, as a script: the first prompt's last row is nan
    tokens, keep = padded([[5, 9, 13], [4, 8, 12, 16, 20, 24]])
    print(step(Decoder().half(), {"tokens": tokens, "keep": keep})[:, -1, :4])
