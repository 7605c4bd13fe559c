"""The axes of a projection come out of NumPy in float64, the embeddings are float32.

op = "matmul"
odd = "axes float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch


def principal_axes(samples, count):
    centred = samples - samples.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return torch.from_numpy(directions[:count].T.copy())  # enters


def project(embeddings, axes):
    embeddings = embeddings - embeddings.mean(dim=0)
    return embeddings @ axes  # fails


def main():
    samples = np.random.default_rng(0).normal(size=(40, 8))
    axes = principal_axes(samples, count=2)
    torch.manual_seed(0)
    table = torch.randn(12, 8)
    points = project(table[torch.tensor([3, 1, 4, 1, 5])], axes)
    print(points.shape)


main()
