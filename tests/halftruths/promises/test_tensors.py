"""The autopsy reads operands of every kind: sparse, nested, quantised, fake, without values."""


import pytest
import torch
from scenes import HALF, MARK, Net, caught, finds, knows_no, leaves_open, read
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
def test_operands_of_every_kind(make, request):
    kind = request.node.callspec.id
    found = read(mixed_with(make))
    assert found.where["op"] == "matmul"
    # The message of these is about the layout: a cast alone would not do.
    if kind in ("nested", "quantised", "channels", "mkldnn", "masked"):
        knows_no(found, "Not about dtypes, by the message and by the operands.")
    elif kind == "bool":
        knows_no(found, "The message may be about dtypes; no operand in sight explains it.")
    else:
        finds(found, "x", {"float8": "float8_e4m3fn", "complex": "complex64"}.get(kind, "float32"))
        doubt = DOUBTS.get(kind)
        assert found.sure == (doubt is None)
        assert doubt is None or any(doubt in question for question in found.asks)
        assert "torch.float16" in found.cure["code"]


DOUBTS = {"csr": "a kernel for sparse_csr tensors", "bsr": "a kernel for sparse_bsr tensors",
          "complex": "the imaginary part of `x`", "neg": "got its dtype cannot be read from here"}


def attend(x, weight):
    return nn.functional.scaled_dot_product_attention(x, weight, weight)


def test_tensors_without_values():
    weight = torch.ones(1, 2, 4, dtype=HALF)
    found = read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight.to("meta")))
    assert found.where["operands"][0]["device"] == "meta"
    leaves_open(found, "float16", "float32")
    found = read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight))
    assert "several devices too (x on meta, weight on cpu)" in leaves_open(
        found, "float16", "float32").asks[0]
    knows_no(read(caught(lambda x: x.item(), torch.ones(1, device="meta"))), "Not about dtypes")


def test_inference_and_functorch_tensors():
    weight = torch.ones(4, 4, dtype=HALF)
    with torch.inference_mode():
        error = caught(lambda x: x @ weight, torch.ones(2, 4))
        leaves_open(read(error), "float16", "float32")
    leaves_open(read(error), "float16", "float32")
    for run in (lambda: torch.func.vmap(lambda x: x @ weight)(torch.ones(2, 4)),
                lambda: torch.func.grad(lambda x: (x @ weight).sum())(torch.ones(2, 4)),
                lambda: torch.func.jvp(lambda x: x @ weight, (torch.ones(2, 4),),
                                       (torch.ones(2, 4),))):
        leaves_open(read(caught(run)), "float16", "float32")


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        error = caught(attend, torch.ones(1, 2, 4), torch.ones(1, 2, 4, dtype=HALF))
        found = leaves_open(read(error), "float16", "float32")
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
    # In its backward: the gradient came from where no frame leads.
    finds(read(caught(lambda: Scale.apply(x, weight).sum().backward())), "weight", "float16",
          cure="return grad @ weight.t().to(torch.float32), None",
          asks="Which dtype is meant at this line: float32")

    class Wrong(Scale):
        @staticmethod
        def forward(ctx, x, weight):
            return x @ weight

    leaves_open(read(caught(Wrong.apply, x, weight)), "float16", "float32")


def test_numpy_and_other_arrays():
    np = pytest.importorskip("numpy")

    def run(model, array):
        return model(torch.from_numpy(array))

    finds(read(caught(run, Net(), np.full((2, 4), MARK))), dtype="float64",
          cure="return model(torch.from_numpy(array).to(torch.float32))")
    knows_no(read(caught(lambda array: torch.add(torch.ones(4), array), np.full((4, 4), MARK))))
    knows_no(read(caught(lambda rows: torch.tensor(rows), [[MARK] * 4, [MARK] * 3])))
