"""The layers of a half model are mixed with float32 weights, and the probe is half like the model.

module = "probe"
op = "linear"
odd = "input float32"
how = "made"
sure = true
cure = true
"""
import torch
from torch import nn
from transformers import DistilBertConfig, DistilBertModel


class Probe(nn.Module):
    def __init__(self, n_layers, dim, n_tags):
        super().__init__()
        self.body = DistilBertModel(DistilBertConfig(
            vocab_size=30, dim=dim, hidden_dim=2 * dim, n_layers=n_layers, n_heads=2,
            max_position_embeddings=16))
        self.mix = [0.0] * (n_layers + 1)
        self.probe = nn.Linear(dim, n_tags)

    @property
    def weights(self):
        return torch.tensor(self.mix).softmax(0)  # enters

    def forward(self, ids):
        states = self.body(ids, output_hidden_states=True).hidden_states
        mixed = sum(w * s for w, s in zip(self.weights.view(-1, 1, 1, 1), states, strict=True))
        return self.probe(mixed)  # fails


with torch.no_grad():
    Probe(2, 8, 5).half().eval()(torch.tensor([[4, 5, 6]]))
