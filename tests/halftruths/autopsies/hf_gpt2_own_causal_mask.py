"""A mask that lets packed documents see only themselves is cast to ones and zeros.

module = "transformer.h.0.attn"
op = "scaled_dot_product_attention"
odd = "attn_mask int64"
how = "cast"
sure = true
cure = true
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def document_mask(docs):
    """(batch, 1, n, n): 1 where a token may look, 0 elsewhere."""
    n = docs.shape[-1]
    same = docs[:, None, :] == docs[:, :, None]
    allowed = same & torch.ones(n, n, dtype=torch.bool).tril()
    return allowed.unsqueeze(1).long()  # enters


class Packed:
    def __init__(self, texts):
        self.texts = texts

    def __iter__(self):
        ids = [t for text in self.texts for t in text]
        docs = [i for i, text in enumerate(self.texts) for _ in text]
        yield torch.tensor([ids]), torch.tensor([docs])


def evaluate(model, data):
    losses = []
    for ids, docs in data:
        out = model(ids, attention_mask=document_mask(docs), labels=ids)  # fails
        losses.append(out.loss.item())
    return sum(losses) / len(losses)


torch.manual_seed(0)
gpt = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2))
gpt = gpt.to(torch.bfloat16).eval()
with torch.no_grad():
    evaluate(gpt, Packed([[3, 4, 5], [6, 7]]))
