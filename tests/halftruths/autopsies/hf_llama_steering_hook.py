"""A forward hook adds a float32 steering direction to the hidden states of a bfloat16 model.

module = "model.layers.1.self_attn.q_proj"
op = "linear"
odd = "input float32"
sure = false
cure = true
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Steer:
    """Adds a direction to what a layer returns, while the block runs."""

    def __init__(self, layer, direction, strength=4.0):
        self.layer, self.strength = layer, strength
        self.direction = direction / direction.norm()

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self.hook)
        return self

    def __exit__(self, *exc):
        self.handle.remove()

    def hook(self, module, args, output):
        return output + self.strength * self.direction  # enters


def contrast(positive, negative):
    return torch.tensor(positive).mean(0) - torch.tensor(negative).mean(0)


torch.manual_seed(0)
config = LlamaConfig(vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=3,
                     num_attention_heads=2, num_key_value_heads=2)
model = LlamaForCausalLM(config).bfloat16().eval()
direction = contrast([[1.0] * 8, [0.5] * 8], [[0.0] * 4 + [1.0] * 4])
with torch.no_grad(), Steer(model.model.layers[0], direction):
    model(torch.tensor([[1, 2, 3]]))  # fails
