"""The beam of a candidate is its number divided by the vocabulary's size, and / makes floats.

op = "index"
odd = "beam float32"
sure = true
cure = true
"""
import torch


def log_probs(last, table):
    return torch.log_softmax(table[last], dim=-1)


def beam_search(table, bos, eos, width=3, max_len=6):
    vocab = table.shape[0]
    seqs = torch.full((width, 1), bos)
    scores = torch.tensor([0.0] + [-1e9] * (width - 1))
    cache = torch.zeros(width, 0, vocab)
    while seqs.shape[1] < max_len:
        step = log_probs(seqs[:, -1], table)
        total = scores[:, None] + step
        scores, flat = total.flatten().topk(width)
        beam, token = flat / vocab, flat % vocab  # enters
        seqs = torch.cat([seqs[beam], token[:, None]], dim=1)  # fails
        cache = torch.cat([cache[beam], step[beam][:, None]], dim=1)
        if (token == eos).all():
            break
    return seqs, scores


torch.manual_seed(1)
best, _ = beam_search(torch.randn(9, 9), bos=0, eos=8)
