"""The autopsy reads models that are not whole: half built, tampered with, lazy, scripted."""

import warnings

import torch
from scenes import (
    HALF,
    INSIDE,
    MASK,
    Counting,
    Net,
    as_local,
    batch,
    caught,
    finds,
    knows_no,
    leaves_open,
    read,
    step,
)
from torch import nn

MADE = "x = torch.ones(2, 4, dtype=torch.float16)"


def test_a_model_that_is_half_built():
    class Early(nn.Module):
        def __init__(self, x):
            self.odd = "no"
            y = x @ torch.ones(4, 4, dtype=HALF)
            super().__init__()
            self.y = y

    finds(read(caught(Early, torch.ones(2, 4))), "x",
          cure="y = x.to(torch.float16) @ torch.ones(4, 4, dtype=HALF)",
          asks="Which dtype is meant at this line")

    class Later(nn.Module):
        def __init__(self, x):
            super().__init__()
            self.layer = nn.Linear(4, 4).half()
            self.y = self.layer(x)

    finds(read(caught(Later, torch.ones(2, 4))), cure="self.y = self.layer(x.to(torch.float16))")
    knows_no(read(caught(lambda: nn.Module.__new__(Net)(torch.ones(2, 4)))))
    finds(read(caught(as_local, Net().half(), nn.Module.__new__(Net))), cure=MADE)


def test_a_model_that_was_tampered_with():
    for name, value in (("_modules", None), ("_parameters", None), ("_buffers", None),
                        ("_parameters", {"weight": None, 3: torch.ones(1)}),
                        ("_modules", {"a": None, "b": 3, 4: nn.Linear(1, 1)}),
                        ("_modules", Counting(inner=nn.Linear(1, 1))), ("_modules", [1])):
        model, other = Net().half(), Net().half()
        object.__setattr__(other, name, value)
        finds(read(caught(as_local, model, other)), cure=MADE)
    knot = nn.Sequential(Net().half())
    knot.add_module("again", knot)
    knot[0].parent = [knot]
    finds(read(caught(lambda model, x: model[0](x), knot, torch.ones(2, 4))), cure=INSIDE)


def test_a_lazy_module():
    model = nn.Sequential(nn.LazyLinear(4), Net()).half()
    finds(read(caught(step, model, batch())), cure=MASK)
    fresh = nn.Sequential(Net().half(), nn.LazyLinear(4), nn.LazyBatchNorm1d())
    finds(read(caught(step, fresh, batch())), cure=MASK)
    lazy = nn.parameter.UninitializedParameter(dtype=HALF)
    leaves_open(read(caught(lambda p, x: torch.matmul(x, p), lazy, torch.ones(2, 2))),
                "float16", "float32")


def test_scripted_and_traced_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since torch 2.9
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4))).half()
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)).half()
    # Their own frames are none of Python's.
    for model in (scripted, nn.Sequential(traced)):
        knows_no(read(caught(lambda model, x: model(x), model, torch.ones(2, 4))),
                 "The operands in sight are float32; the message also names float16.")
    model = torch.fx.symbolic_trace(Net()).half()
    found = finds(read(caught(lambda model, x: model(x), model, torch.ones(2, 4))))
    assert found.sure and "model(x.to(torch.float16))" in found.cure["code"]
