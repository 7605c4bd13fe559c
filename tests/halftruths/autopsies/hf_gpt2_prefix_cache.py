"""Prefix tuning: the learned keys and values are float32 and are put before bfloat16 ones.

module = "lm.transformer.h.0.attn"
op = "scaled_dot_product_attention"
odd = "key float32"
how = "parameter"
sure = true
cure = true
"""
import torch
import torch.nn as nn
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel


class Prefix(nn.Module):
    def __init__(self, cfg, length=3):
        super().__init__()
        shape = (cfg.n_layer, 2, cfg.n_head, length, cfg.n_embd // cfg.n_head)
        self.kv = nn.Parameter(0.02 * torch.randn(shape))
        self.length = length

    def forward(self, batch):
        cache = DynamicCache()
        for i, (k, v) in enumerate(self.kv):
            cache.update(k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1), i)
        return cache


class PrefixLM(nn.Module):
    def __init__(self, lm):
        super().__init__()
        self.lm = lm.requires_grad_(False)
        self.prefix = Prefix(lm.config)

    def forward(self, ids):
        mask = torch.ones(ids.shape[0], ids.shape[1] + self.prefix.length, dtype=torch.long)
        past = self.prefix(len(ids))
        out = self.lm(input_ids=ids, past_key_values=past, attention_mask=mask)  # fails
        return out.logits


torch.manual_seed(0)
lm = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2))
tuned = PrefixLM(lm.to(torch.bfloat16))
optimizer = torch.optim.Adam(tuned.prefix.parameters(), lr=1e-2)
ids = torch.tensor([[4, 8, 15, 16], [23, 3, 2, 1]])
for _ in range(2):
    logits = tuned(ids)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
