"""The autopsy reads operands of every kind: sparse, nested, quantised, fake, without values."""


import pytest
import torch
from scenes import HALF, MARK, Net, caught, finds, read
from torch import nn


def mixed_with(make):
    def run(model, weight):
        x = make()
        return torch.matmul(x, weight)

    return caught(run, Net().half(), torch.ones(4, 4, dtype=HALF))


@pytest.mark.parametrize("make", [
    lambda: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]),
    lambda: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged),
    lambda: torch.eye(4).to_sparse(),
    lambda: torch.eye(4).to_sparse_csr(),
    lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    lambda: torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8),
    lambda: torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), torch.zeros(4), 0,
                                       torch.quint8),
    lambda: torch.ones(4, 4, dtype=torch.float8_e4m3fn),
    lambda: torch.ones(4, 4, dtype=torch.complex64),
    lambda: torch.ones(4, 4).to_mkldnn(),
    lambda: torch.ones(4, 4).expand(3, 4, 4),
    lambda: torch.ones(4, 4, requires_grad=True) * 2,
    lambda: torch.ones(4, 4).neg().conj()._neg_view(),
    lambda: torch.empty(0, 4),
    lambda: nn.Parameter(torch.ones(4, 4)),
    lambda: torch.nn.Buffer(torch.ones(4, 4)),
    lambda: torch.ones(4, 4, dtype=torch.bool),
    lambda: torch.masked.masked_tensor(torch.ones(4, 4), torch.ones(4, 4) > 0),
], ids=["nested", "jagged", "coo", "csr", "bsr", "quantised", "channels", "float8", "complex",
        "mkldnn", "expanded", "graph", "neg", "none", "parameter", "buffer", "bool", "masked"])
@pytest.mark.filterwarnings("ignore")
def test_operands_of_every_kind(make):
    found = read(mixed_with(make))
    assert found.where["op"] == "matmul"


def attend(x, weight):
    return nn.functional.scaled_dot_product_attention(x, weight, weight)


def test_tensors_without_values():
    weight = torch.ones(1, 2, 4, dtype=HALF)
    found = read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight.to("meta")))
    assert found.where["operands"][0]["device"] == "meta"
    read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight))
    read(caught(lambda x: x.item(), torch.ones(1, device="meta")))


def test_inference_and_functorch_tensors():
    weight = torch.ones(4, 4, dtype=HALF)
    with torch.inference_mode():
        error = caught(lambda x: x @ weight, torch.ones(2, 4))
        read(error)
    read(error)
    read(caught(lambda: torch.func.vmap(lambda x: x @ weight)(torch.ones(2, 4))))
    read(caught(lambda: torch.func.grad(lambda x: (x @ weight).sum())(torch.ones(2, 4))))
    read(caught(lambda: torch.func.jvp(lambda x: x @ weight, (torch.ones(2, 4),),
                                       (torch.ones(2, 4),))))


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        error = caught(attend, torch.ones(1, 2, 4), torch.ones(1, 2, 4, dtype=HALF))
        found = read(error)
    assert found.where["op"] == "scaled_dot_product_attention"
    assert [o["dtype"] for o in found.where["operands"]][:2] == ["float32", "float16"]
    assert read(error).text() == found.text()


def test_an_autograd_function():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), None

    x = torch.ones(2, 4, requires_grad=True)
    weight = torch.ones(4, 4, dtype=HALF)
    read(caught(lambda: Scale.apply(x, weight).sum().backward()))

    class Wrong(Scale):
        @staticmethod
        def forward(ctx, x, weight):
            return x @ weight

    read(caught(Wrong.apply, x, weight))


def test_numpy_and_other_arrays():
    np = pytest.importorskip("numpy")

    def run(model, array):
        return model(torch.from_numpy(array))

    finds(read(caught(run, Net(), np.full((2, 4), MARK))), dtype="float64")
    read(caught(lambda array: torch.add(torch.ones(4), array), np.full((4, 4), MARK)))
    read(caught(lambda rows: torch.tensor(rows), [[MARK] * 4, [MARK] * 3]))
