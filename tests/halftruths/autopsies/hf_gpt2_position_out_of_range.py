"""The prompt grows past the model's last position: an index error, not a dtype one.

module = "transformer.wpe"
op = "embedding"
sure = false
cure = true
dtype = false
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=30, n_positions=8, n_embd=8, n_layer=1, n_head=2)
model = GPT2LMHeadModel(config).half().eval()
bias = torch.zeros(30)  # added to the logits in float32, on purpose


@torch.no_grad()
def greedy(ids, new_tokens):
    while new_tokens > 0:
        logits = model(ids).logits[:, -1].float() + bias  # fails
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        new_tokens -= 1
    return ids


greedy(torch.tensor([[1, 2, 3]]), new_tokens=10)
