"""The values of a sparse adjacency come from NumPy degrees, so the graph is float64.

op = "matmul"
odd = "adjacency float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch


def normalised_ring(nodes):
    """A ring where each node also sees itself, as CSR, each row divided by its degree."""
    columns = np.sort((np.arange(nodes)[:, None] + np.array([-1, 0, 1])) % nodes, axis=1)
    degrees = np.full(nodes, 3)
    values = torch.from_numpy(np.repeat(1 / degrees, 3))  # enters
    starts = torch.arange(0, 3 * nodes + 1, 3)
    return torch.sparse_csr_tensor(starts, torch.from_numpy(columns.ravel()), values)


def propagate(adjacency, hidden, weights):
    for weight in weights:
        hidden = torch.relu(adjacency @ hidden @ weight)  # fails
    return hidden


def main():
    torch.manual_seed(0)
    adjacency = normalised_ring(8)
    propagate(adjacency, torch.randn(8, 4), [torch.randn(4, 4), torch.randn(4, 2)])


main()
