"""A classifier on top of a bfloat16 T5 encoder: the head was made after the conversion.

module = "head.0"
op = "linear"
odd = "weight float32"
how = "parameter"
sure = false
cure = true
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import T5Config, T5EncoderModel


class T5Classifier(nn.Module):
    def __init__(self, dtype, n_classes=3):
        super().__init__()
        cfg = T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
        self.encoder = T5EncoderModel(cfg).to(dtype)
        self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, n_classes))

    def forward(self, batch):
        ids, mask = batch["input_ids"], batch["attention_mask"]
        h = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        pooled = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(pooled)  # fails


def main(steps=2):
    torch.manual_seed(0)
    model = T5Classifier(torch.bfloat16)
    opt = torch.optim.Adafactor(model.parameters(), lr=1e-3)
    batch = {
        "input_ids": torch.randint(1, 32, (4, 6)),
        "attention_mask": torch.ones(4, 6, dtype=torch.long),
        "labels": torch.tensor([0, 2, 1, 1]),
    }
    for _ in range(steps):
        loss = F.cross_entropy(model(batch), batch["labels"])
        loss.backward()
        opt.step()
        opt.zero_grad()


main()
