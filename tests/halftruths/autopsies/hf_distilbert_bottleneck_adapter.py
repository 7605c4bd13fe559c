"""Bottleneck adapters are put into a bfloat16 model after its conversion and stay float32.

module = "transformer.layer.0.ffn.adapter.down"
op = "linear"
odd = "weight float32"
how = "parameter"
sure = true
cure = true
"""
import torch
from torch import nn
from transformers import DistilBertConfig, DistilBertModel


class Bottleneck(nn.Module):
    def __init__(self, width, inner=4):
        super().__init__()
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden):
        return hidden + self.up(torch.relu(self.down(hidden)))  # fails


class Adapted(nn.Module):
    """A feed-forward block with an adapter after it."""

    def __init__(self, block, width):
        super().__init__()
        self.block, self.adapter = block, Bottleneck(width)

    def forward(self, hidden):
        return self.adapter(self.block(hidden))


def add_adapters(model):
    model.requires_grad_(False)
    for layer in model.transformer.layer:
        layer.ffn = Adapted(layer.ffn, model.config.dim)
    return model


torch.manual_seed(0)
config = DistilBertConfig(vocab_size=40, dim=16, hidden_dim=32, n_layers=2, n_heads=2)
base = DistilBertModel(config).to(torch.bfloat16)
model = add_adapters(base)
ids = torch.tensor([[2, 5, 9, 3], [2, 7, 3, 0]])
model(ids, attention_mask=(ids != 0).long()).last_hidden_state[:, 0].float().sum().backward()
