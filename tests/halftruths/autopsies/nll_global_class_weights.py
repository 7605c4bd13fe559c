"""Class weights written as a constant of the script are float32; the model runs in bfloat16.

op = "nll_loss"
odd = "weight float32"
how = "made"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F

CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0])  # enters


def tag_loss(logits, tags):
    log_probs = F.log_softmax(logits, dim=-1).flatten(0, 1)
    return F.nll_loss(log_probs, tags.flatten(), weight=CLASS_WEIGHTS)  # fails


def evaluate(table, head, sentences):
    hidden = table[sentences].cumsum(dim=1)
    return tag_loss(hidden @ head, sentences % 3)


torch.manual_seed(0)
table = torch.randn(20, 8).to(torch.bfloat16)
head = torch.randn(8, 3).to(torch.bfloat16)
evaluate(table, head, torch.randint(0, 20, (2, 6)))
