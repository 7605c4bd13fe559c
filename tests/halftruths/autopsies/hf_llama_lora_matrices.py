"""LoRA written by hand: the low-rank matrices are float32 Parameters beside bfloat16 weights.

module = "model.layers.0.self_attn.q_proj"
op = "matmul"
odd = "A float32"
how = "parameter"
sure = true
cure = true
"""
import math

import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaForCausalLM


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear, r=2, alpha=4):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.empty(base.in_features, r))
        self.B = nn.Parameter(torch.zeros(r, base.out_features))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.A @ self.B) * self.scaling  # fails


def inject(model, names=("q_proj", "v_proj")):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names:
                setattr(parent, name, LoRA(child))


torch.manual_seed(0)
cfg = LlamaConfig(vocab_size=48, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                  num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32)
lm = LlamaForCausalLM(cfg).to(torch.bfloat16)
inject(lm)
trainable = [p for p in lm.parameters() if p.requires_grad]
opt = torch.optim.AdamW(trainable, lr=1e-3)
ids = torch.tensor([[1, 9, 4, 7, 7, 2]])
for _ in range(2):
    loss = lm(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
