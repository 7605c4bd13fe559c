"""The autopsy reads models that are not whole: half built, tampered with, lazy, scripted."""

import warnings

import torch
from scenes import HALF, Counting, Net, as_local, batch, caught, finds, read, step
from torch import nn


def test_a_model_that_is_half_built():
    class Early(nn.Module):
        def __init__(self, x):
            self.odd = "no"
            y = x @ torch.ones(4, 4, dtype=HALF)
            super().__init__()
            self.y = y

    found = read(caught(Early, torch.ones(2, 4)))
    assert found.where["op"] == "matmul"

    class Later(nn.Module):
        def __init__(self, x):
            super().__init__()
            self.layer = nn.Linear(4, 4).half()
            self.y = self.layer(x)

    finds(read(caught(Later, torch.ones(2, 4))))
    read(caught(lambda: nn.Module.__new__(Net)(torch.ones(2, 4))))
    read(caught(as_local, Net().half(), nn.Module.__new__(Net)))


def test_a_model_that_was_tampered_with():
    for name, value in (("_modules", None), ("_parameters", None), ("_buffers", None),
                        ("_parameters", {"weight": None, 3: torch.ones(1)}),
                        ("_modules", {"a": None, "b": 3, 4: nn.Linear(1, 1)}),
                        ("_modules", Counting(inner=nn.Linear(1, 1))), ("_modules", [1])):
        model, other = Net().half(), Net().half()
        object.__setattr__(other, name, value)
        read(caught(as_local, model, other))
    knot = nn.Sequential(Net().half())
    knot.add_module("again", knot)
    knot[0].parent = [knot]
    finds(read(caught(lambda model, x: model[0](x), knot, torch.ones(2, 4))))


def test_a_lazy_module():
    model = nn.Sequential(nn.LazyLinear(4), Net()).half()
    read(caught(step, model, batch()))
    fresh = nn.Sequential(Net().half(), nn.LazyLinear(4), nn.LazyBatchNorm1d())
    finds(read(caught(step, fresh, batch())))
    lazy = nn.parameter.UninitializedParameter(dtype=HALF)
    read(caught(lambda p, x: torch.matmul(x, p), lazy, torch.ones(2, 2)))


def test_scripted_and_traced_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since torch 2.9
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4))).half()
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)).half()
    read(caught(lambda model, x: model(x), scripted, torch.ones(2, 4)))
    read(caught(lambda model, x: model(x), nn.Sequential(traced), torch.ones(2, 4)))
    read(caught(lambda model, x: model(x), torch.fx.symbolic_trace(Net()).half(),
                torch.ones(2, 4)))
