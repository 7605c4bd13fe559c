"""TF-IDF weights come from NumPy's logarithm as float64; the embedding bag's table is float32.

module = "encoder.bag"
op = "embedding_bag"
odd = "per_sample_weights float64"
how = "numpy"
sure = true
cure = true
"""
from collections import Counter

import numpy as np
import torch
from torch import nn


class Vectoriser:
    def __init__(self, texts):
        counts = Counter(word for text in texts for word in set(text.split()))
        self.index = {word: place for place, word in enumerate(sorted(counts))}
        self.idf = {word: np.log(len(texts) / count) + 1 for word, count in counts.items()}

    def __call__(self, texts):
        ids, weights, offsets = [], [], []
        for text in texts:
            offsets.append(len(ids))
            for word, count in Counter(text.split()).items():
                ids.append(self.index[word])
                weights.append(count * self.idf[word])
        weights = torch.as_tensor(np.array(weights))  # enters
        return torch.tensor(ids), torch.tensor(offsets), weights


class Encoder(nn.Module):
    def __init__(self, words, width=8):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width, mode="sum")
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, offsets, weights):
        return self.norm(self.bag(ids, offsets, per_sample_weights=weights))  # fails


class SpamFilter(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.encoder = Encoder(words)
        self.head = nn.Linear(8, 1)

    def forward(self, *bags):
        return self.head(self.encoder(*bags)).squeeze(1)


torch.manual_seed(0)
mails = ["win money now", "see you at lunch", "money for lunch", "win win win"]
vectorise = Vectoriser(mails)
SpamFilter(len(vectorise.index))(*vectorise(mails))
