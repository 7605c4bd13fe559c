"""A custom function saves its weight as float16 to spare memory; its backward multiplies with it.

op = "matmul"
odd = "weight float16"
how = "cast"
sure = true
cure = true
"""
import torch


class FrugalMatmul(torch.autograd.Function):
    """x @ weight that keeps a small copy of the weight for the backward pass."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight.half())  # enters
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_weight = x.t() @ grad
        grad_x = grad @ weight.t()  # fails
        return grad_x, grad_weight


def step(inputs, layers, rate=0.01):
    hidden = inputs
    for weight in layers:
        hidden = torch.relu(FrugalMatmul.apply(hidden, weight))
    hidden.pow(2).mean().backward()
    with torch.no_grad():
        for weight in layers:
            weight -= rate * weight.grad


torch.manual_seed(0)
layers = [torch.randn(6, 6, requires_grad=True) for _ in range(2)]
step(torch.randn(4, 6), layers)
