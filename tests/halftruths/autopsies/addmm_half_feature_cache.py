"""A cache keeps features in float16 to save memory, and hands them back to float32 weights.

op = "addmm"
odd = "features float16"
how = "cast"
sure = true
cure = true
"""
import torch


class FeatureCache:
    def __init__(self):
        self.store = {}

    def put(self, key, features):
        self.store[key] = features.half()  # enters

    def get(self, keys):
        return torch.stack([self.store[key] for key in keys])


def logits(features, weight, bias):
    return torch.addmm(bias, features, weight)  # fails


def evaluate(cache, names, weight, bias):
    features = cache.get(names)
    return logits(features, weight, bias).argmax(dim=-1)


torch.manual_seed(0)
cache = FeatureCache()
for name in ("cat", "dog", "owl"):
    cache.put(name, torch.randn(12))
print(evaluate(cache, ["owl", "cat"], torch.randn(12, 4), torch.zeros(4)))
