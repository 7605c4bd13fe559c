"""An observer takes a quantile of float16 activations, which quantile does not accept.

op = "quantile"
odd = "activations float16"
how = "cast"
sure = true
cure = true
"""
import torch


class RangeObserver:
    def __init__(self, level=0.99):
        self.level = level
        self.limit = torch.tensor(0.0)

    def observe(self, activations):
        limit = torch.quantile(activations.abs().flatten(), self.level)  # fails
        self.limit = torch.maximum(self.limit, limit)


def calibrate(observers, batches, weights):
    for batch in batches:
        hidden = batch
        for weight, observer in zip(weights, observers, strict=True):
            hidden = torch.relu(hidden @ weight)
            observer.observe(hidden)


def main():
    torch.manual_seed(0)
    weights = torch.randn(2, 6, 6).half()
    batches = torch.rand(3, 4, 6).half()  # enters
    calibrate([RangeObserver(), RangeObserver()], batches, weights)


main()
