"""A comparison gives a boolean mask, and 1 - mask is not for booleans.

op = "sub"
odd = "mask bool"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F


def mask_tokens(ids, special, p=0.15, generator=None):
    noise = torch.rand(ids.shape, generator=generator)
    mask = (noise < p) & ~torch.isin(ids, special)  # enters
    return mask


def mlm_loss(logits, ids, mask):
    per_token = F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="none")
    visible = 1 - mask  # fails
    weight = mask + 0.1 * visible
    return (per_token * weight.flatten()).sum() / weight.sum()


g = torch.Generator().manual_seed(0)
ids = torch.randint(0, 30, (2, 12), generator=g)
table = torch.randn(30, 30, generator=g, requires_grad=True)
for _ in range(2):
    mask = mask_tokens(ids, special=torch.tensor([0, 1]), generator=g)
    loss = mlm_loss(table[ids.masked_fill(mask, 2)], ids, mask)
    (grad,) = torch.autograd.grad(loss, table)
    table = (table - 0.1 * grad).detach().requires_grad_()
