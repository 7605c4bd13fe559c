"""A causal mask is filled with -1e9 in the dtype of the hidden states, which is float16.

op = "full"
sure = true
cure = true
"""
import torch

HIDE = -1e9


def causal_mask(length, like):
    mask = torch.full((length, length), HIDE, dtype=like.dtype, device=like.device)  # fails
    return mask.triu(diagonal=1)


def generate(prompt, table, steps):
    tokens = prompt
    for _ in range(steps):
        hidden = table[tokens]
        scores = hidden @ hidden.T + causal_mask(len(tokens), like=hidden)
        mixed = scores.softmax(dim=-1)[-1] @ hidden
        tokens = torch.cat([tokens, (mixed @ table.T).argmax().reshape(1)])
    return tokens


torch.manual_seed(0)
generate(torch.tensor([1, 5]), torch.randn(12, 8, dtype=torch.float16), steps=2)
