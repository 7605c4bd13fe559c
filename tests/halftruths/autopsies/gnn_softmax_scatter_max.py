"""Graph attention gathers the largest score of each node in a float32 tensor; the scores are half.

module = "convs.0"
op = "scatter_reduce_"
odd = "top float32"
how = "made"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F
from torch import nn


def edge_softmax(scores, target, nodes):
    top = torch.full((nodes, scores.shape[1]), float("-inf"))  # enters
    index = target[:, None].expand_as(scores)
    top.scatter_reduce_(0, index, scores, reduce="amax")  # fails
    weights = torch.exp(scores - top[target])
    total = torch.zeros_like(top).scatter_add_(0, index, weights)
    return weights / total[target]


class GraphAttention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width)
        self.score = nn.Linear(2 * width // heads, 1)

    def forward(self, features, edges):
        source, target = edges
        nodes = self.project(features).unflatten(1, (self.heads, -1))
        scores = F.leaky_relu(self.score(torch.cat([nodes[source], nodes[target]], -1)))
        weights = edge_softmax(scores.squeeze(-1), target, len(features))
        messages = weights[..., None] * nodes[source]
        return torch.zeros_like(nodes).index_add_(0, target, messages).flatten(1)


class Molecule(nn.Module):
    def __init__(self, atoms=10, width=8, depth=2):
        super().__init__()
        self.atoms = nn.Embedding(atoms, width)
        self.convs = nn.ModuleList(GraphAttention(width) for _ in range(depth))

    def forward(self, atoms, edges):
        features = self.atoms(atoms)
        for conv in self.convs:
            features = features + conv(features, edges)
        return features.mean(0)


torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
Molecule().half()(torch.tensor([6, 6, 8, 1]), edges)
