"""Gates are a float32 softmax, so what an expert adds is float32 and the sum it adds to bfloat16.

module = "1"
op = "index_add_"
odd = "y float32"
how = "cast"
sure = true
cure = true
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Sequential):
    def __init__(self, d, h):
        super().__init__(nn.Linear(d, h), nn.SiLU(), nn.Linear(h, d))


class SparseMoE(nn.Module):
    def __init__(self, d, h, n=4, k=2):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(d, n, bias=False)
        self.experts = nn.ModuleDict({f"e{i}": Expert(d, h) for i in range(n)})

    def route(self, x):
        p = F.softmax(self.gate(x), dim=-1, dtype=torch.float)  # enters
        w, idx = p.topk(self.k, dim=-1)
        w /= w.sum(-1, keepdim=True)
        return w, idx

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        w, idx = self.route(flat)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts.values()):
            tok, slot = torch.where(idx == i)
            if not len(tok):
                continue
            y = expert(flat[tok]) * w[tok, slot].unsqueeze(-1)
            out.index_add_(0, tok, y)  # fails
        return out.view_as(x)


torch.manual_seed(0)
lm = nn.Sequential(nn.Embedding(20, 8), SparseMoE(8, 16), nn.Linear(8, 20)).bfloat16()
logits = lm(torch.randint(20, (2, 6)))
