"""What each kind of expression does to a dtype: how it came in, from where, and which it is.

One row an expression. A scene binds the names, the expression is bound last, and then the scene
fails: so the rules see what they see of a reader's program. Both readers of the rules are asked:
the road (how, and the name of its first station) and the past (the dtype alone).
"""

import ast
import linecache

import pytest
import torch

from cases.halftruths.exceptions import frames, values
from cases.halftruths.exceptions.road import Tracker

SCENE = """
import collections
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)

    def forward(self, x):
        return x.half()

    @property
    def low(self):
        return torch.ones(2).half()

class Batch:
    def __init__(self, images):
        self.images = images

class Widened:
    def __init__(self, array):
        self.array = array

    def wide(self):
        return torch.from_numpy(self.array)

def low(value):
    return value.half()

def either(value, flag):
    if flag:
        return value.half()
    return value.float()

def pieces(value):
    yield value.half()

def scene(flag, numbers):
    x, y, i = torch.ones(2, 2), torch.ones(2, 2).half(), torch.arange(2)
    d, q = torch.ones(2).double(), torch.complex(torch.ones(2), torch.ones(2))
    linear, half, relu, net = nn.Linear(2, 2), nn.Linear(2, 2).half(), nn.ReLU(), Net()
    chain, ends_low = nn.Sequential(linear, relu), nn.Sequential(linear, half)
    array, table, several = np.ones(2), {"low": y, "wide": x}, [x, y]
    float_type, count = torch.float16, 2
    weight = torch.ones(2, 2, requires_grad=True)
    gone = x
    SEEN
    gone = None
    raise ValueError
"""
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
I64, BOOL = torch.int64, torch.bool

# Expression, dtype that is looked for; then how it came in, the first station's name, the dtype.
TABLE = [
    # casts
    ("x.half()", F16, "cast", "x.half", F16),
    ("x.double()", F64, "cast", "x.double", F64),
    ("x.to(torch.bfloat16)", BF16, "cast", "x.to", BF16),
    ('x.to("cpu")', F32, "made", "torch.ones", None),
    ("x.to(dtype=float_type)", F16, "cast", "x.to", F16),
    ("x.to(y.dtype)", F16, "cast", "x.to", F16),
    ("x.to(y)", F16, "cast", "x.to", F16),
    ("x.type_as(y)", F16, "cast", "x.type_as", F16),
    ("x.type(torch.float16)", F16, "cast", "x.type", F16),
    ("x.half()", F32, "unknown", "x.half", F16),
    ("x.sum(dtype=torch.float64)", F64, "cast", "x.sum", F64),
    ("F.softmax(y, dim=-1, dtype=torch.float32)", F32, "cast", "F.softmax", F32),
    ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)",
     torch.qint8, "cast", "torch.quantize_per_tensor", torch.qint8),
    # creations
    ("torch.zeros(2)", F32, "made", "torch.zeros", F32),
    ("torch.zeros(2, dtype=torch.float16)", F16, "made", "torch.zeros", F16),
    ("torch.zeros(2, dtype=y.dtype)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("torch.arange(2)", I64, "made", "torch.arange", I64),
    ("torch.arange(2.0)", F32, "made", "torch.arange", F32),
    ("torch.tensor([1.0])", F32, "made", "torch.tensor", F32),
    ("torch.tensor([1])", I64, "made", "torch.tensor", None),
    ("torch.randint(3, (2,))", I64, "made", "torch.randint", I64),
    ("torch.full((2,), 1.0)", F32, "made", "torch.full", F32),
    # like another
    ("torch.zeros_like(y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("torch.zeros_like(y, dtype=torch.float32)", F32, "made", "torch.zeros_like", F32),
    ("torch.zeros_like(i)", I64, "made", "torch.zeros_like", I64),
    ("y.new_zeros(2)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.new_tensor([1.0])", F16, "cast", "torch.ones(2, 2).half", F16),
    # NumPy
    ("torch.from_numpy(array)", F64, "numpy", "torch.from_numpy", F64),
    ("torch.tensor(array)", F64, "numpy", "torch.tensor", F64),
    ("torch.as_tensor(np.ones(2) / 3)", F64, "numpy", "torch.as_tensor", F64),
    ("torch.tensor(array, dtype=torch.float32)", F32, "made", "torch.tensor", F32),
    ("np.ones(2)", F64, "numpy", "np.ones", None),
    ("np.sqrt(array)", F64, "numpy", "np.sqrt", None),
    ("Widened(array).wide()", F64, "unknown", "Widened(array).wide", None),
    # joins
    ("torch.cat([x, y])", F32, "made", "torch.ones", F32),
    ("torch.cat([y, y])", F16, "cast", "torch.ones(2, 2).half", F16),
    ("torch.stack(several)", F16, "cast", "torch.ones(2, 2).half", None),
    ("torch.where(x > 0, y, y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.where(x > 0, y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("x + y", F32, "made", "torch.ones", F32),
    ("-y", F16, "cast", "torch.ones(2, 2).half", F16),
    ("x > 0", BOOL, "made", "x > 0", BOOL),
    ("y * count", F16, "cast", "torch.ones(2, 2).half", F16),
    ("(x, y) @ 1", F16, "cast", "torch.ones(2, 2).half", None),
    ('[x, y] @ "*"', F16, "cast", "torch.ones(2, 2).half", None),
    ('{"low": y, **table} @ "low"', F16, "cast", "torch.ones(2, 2).half", None),
    # modules
    ("linear(x)", F32, "parameter", "linear.weight", F32),
    ("half(y)", F16, "parameter", "half.weight", F16),
    ("relu(y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("chain(x)", F32, "parameter", "chain.0.weight", F32),
    ("ends_low[1](y)", F16, "parameter", "ends_low[1].weight", F16),
    ("net(x)", F16, "cast", "x.half", F16),
    ("net.body.weight", F32, "parameter", "net.body.weight", F32),
    ("net.low", F16, "cast", "torch.ones(2).half", F16),
    # the reader's own functions
    ("low(x)", F16, "cast", "value.half", F16),
    ("either(x, True)", F16, "cast", "value.half", None),
    ("either(x, False)", F32, "cast", "value.float", F32),
    ("next(pieces(x))", F16, "cast", "value.half", F16),
    ("list(map(low, [x])) @ 0", F16, "unknown", "map", None),
    ('[low(part) for part in [x]] @ "*"', F16, "cast", "value.half", None),
    ("(lambda value: value.half())(x)", F16, "made", "lambda value: value.half()", None),
    # entries
    ('list(zip([x], [y])) @ "*" @ 1', F16, "cast", "torch.ones(2, 2).half", None),
    ('list(enumerate([y])) @ "*" @ 1', F16, "cast", "torch.ones(2, 2).half", None),
    ('table["low"]', F16, "cast", "torch.ones(2, 2).half", F16),
    ('table.get("low")', F16, "cast", "torch.ones(2, 2).half", F16),
    ('dict(low=y) @ "low"', F16, "cast", "torch.ones(2, 2).half", None),
    ('Batch(images=y) @ "images"', F16, "cast", "torch.ones(2, 2).half", None),
    ("several[1]", F16, "cast", "torch.ones(2, 2).half", F16),
    # keeps
    ("y.t()", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.T", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.data", F16, "cast", "torch.ones(2, 2).half", F16),
    ("weight.grad", F32, "made", "torch.ones", F32),
    ("q.real", F32, "unknown", None, None),
    ("y.transpose(0, 1)[0]", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.clone().mul_(2)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y.lerp_(y, 0.5)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("y if flag else x", F32, "made", "torch.ones", F32),
    ("y if numbers else x", F32, "made", "torch.ones", None),
    ("(kept := y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("torch.exp(y)", F16, "cast", "torch.ones(2, 2).half", F16),
    ("torch.mul(x, y)", F32, "made", "torch.ones", F32),
    ("y.erf()", F16, "cast", "torch.ones(2, 2).half", F16),
    # autocast
    ('torch.autocast("cpu", dtype=torch.bfloat16) :: torch.mm(x, x)',
     BF16, "cast", "torch.mm", BF16),
    ('torch.autocast("cpu", dtype=torch.bfloat16) :: linear(x)', BF16, "cast", "linear", BF16),
    ('torch.autocast("cpu", dtype=torch.bfloat16) :: torch.exp(x)', F32, "made", "torch.ones", F32),
    ('torch.autocast("cpu", dtype=torch.bfloat16, enabled=False) :: torch.mm(x, x)',
     F32, "made", "torch.ones", F32),
    # a name that was bound anew since
    ("gone", F32, "made", "torch.ones", F32),
    ("gone.half()", F16, "cast", "gone.half", F16),
    ("gone.t()", F32, "made", "torch.ones", F32),
    ("gone.lerp_(x, 0.5)", F32, "made", "torch.ones", F32),
    # what torch cannot promote
    ("flag and x + x.to(torch.float8_e4m3fn)", F32, "unknown", "False", None),
    # what is not known
    ("numbers[0]", F32, "unknown", "1.0", None),
    ("int(3)", F32, "unknown", "int", None),
]


def seen(expression, pick=()):
    """Return (node, Site, line) of an expression in a scene that has failed after it."""
    name = f"<scene {expression}>"
    before, _, inner = expression.rpartition(" :: ")
    source = SCENE.replace("    SEEN\n", f"    with {before}:\n        seen = {inner}\n" if before
                           else f"    seen = {inner}\n")
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"__name__": "scene"}
    exec(compile(source, name, "exec"), space)
    try:
        space["scene"](False, [1.0])
    except ValueError as error:
        site = frames.sites(error)[-1]
    node = next(node for node in ast.walk(frames.scope(site)) if isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == "seen")
    return node.value, site, node.lineno


def asked(expression, dtype, pick=()):
    """Return (how, name of the first station, dtype) as the road and the past tell them."""
    try:
        node, site, line = seen(expression)
        tracker = Tracker(dtype)
        tracker.run(node, site, line, pick)
        first = tracker.trail.steps[-1].name if tracker.trail.steps else None
        found = None if pick else Tracker(dtype).dtype_at(node, site, line)
        return tracker.trail.how, first, found
    finally:
        values.forget()


@pytest.mark.filterwarnings("ignore")  # torch will drop quantize_per_tensor
@pytest.mark.parametrize("expression, dtype, how, name, found", TABLE, ids=[r[0] for r in TABLE])
def test_what_an_expression_does_to_a_dtype(expression, dtype, how, name, found):
    told, *entries = expression.split(" @ ")
    assert asked(told, dtype, tuple(ast.literal_eval(entry) for entry in entries)) == (
        how, name, found)
