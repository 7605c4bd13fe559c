"""Multi-label targets are left as integers, and the binary cross entropy wants floats.

op = "binary_cross_entropy_with_logits"
odd = "target int64"
how = "made"
sure = true
cure = true
"""
import torch
from transformers import BertConfig, BertForSequenceClassification

TOPICS = ["sport", "politics", "music"]
NEWS = [([2, 11, 12, 3], ["sport"]), ([2, 14, 3], ["politics", "music"]), ([2, 9, 3], [])]


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([[int(topic in has) for topic in TOPICS] for _, has in rows])  # enters
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def train(model, news, steps=2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = model(**collate(news)).loss  # fails
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
config = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=16, num_labels=len(TOPICS),
                    problem_type="multi_label_classification")
train(BertForSequenceClassification(config), NEWS)
