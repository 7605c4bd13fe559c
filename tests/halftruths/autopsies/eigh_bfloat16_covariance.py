"""Features in bfloat16 give a bfloat16 covariance, and the CPU has no eigh for it.

op = "eigh"
odd = "covariance bfloat16"
how = "cast"
sure = true
cure = true
"""
import torch


def encode(images, weight):
    return torch.relu(images @ weight).to(torch.bfloat16)  # enters


def whitening(features):
    centred = features - features.mean(dim=0)
    covariance = centred.T @ centred / len(features)
    values, vectors = torch.linalg.eigh(covariance)  # fails
    return vectors / (values.clamp(min=0) + 1e-3).sqrt()


def whiten(images, weight):
    features = encode(images, weight)
    return features @ whitening(features)


torch.manual_seed(0)
print(whiten(torch.randn(32, 10), torch.randn(10, 4)).std(dim=0))
