"""In eval the encoder leaves for its fast path, where autocast and padding do not go together.

module = "encoder.layers.0"
op = "_transformer_encoder_layer_fwd"
sure = true
cure = true
"""

import torch
from torch import nn


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=60, width=16):
        super().__init__()
        self.words = nn.Embedding(vocab, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)

    def forward(self, ids):
        padding = ids == 0
        x = self.encoder(self.words(ids), src_key_padding_mask=padding)  # fails
        return x[:, 0]


def validate(model, batches):
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return [model(batch) for batch in batches]


torch.manual_seed(0)
validate(SentenceEncoder(), [torch.tensor([[5, 9, 31, 2], [8, 2, 0, 0]])])
