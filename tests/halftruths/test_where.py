"""Where an error was raised, read from the exception alone."""

import sys

import pytest
import torch
from torch import nn

from cases.halftruths import autopsy

HALF = torch.float16


def caught(function, *args):
    """Return what `function` raises."""
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


def locate(error):
    return autopsy(error).where


def summary(where):
    return {o["name"]: o["dtype"] for o in where["operands"]}


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Mixed(nn.Module):
    """Modules and plain operations, each of which meets a half and a float32 tensor."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4, dtype=HALF))

    def matmul(self, x):
        return x.transpose(0, 1) @ self.weight

    def baddbmm(self, x):
        bias = torch.zeros(1, 4, 4)
        return torch.baddbmm(bias, x[None], self.weight[None], beta=0.5)

    def keyword(self, x):
        return nn.functional.linear(input=x, weight=self.weight)

    def forward(self, x, how):
        return getattr(self, how)(x)


def test_a_linear_deep_in_a_model():
    model = nn.Sequential(Block(nn.Linear(4, 4)), Block(Block(nn.Linear(4, 4).half())))
    where = locate(caught(model, torch.ones(2, 4)))
    assert where["module"] == "1.inner.inner"
    assert where["op"] == "linear"
    assert summary(where) == {"input": "float32", "weight": "float16", "bias": "float16"}
    assert where["operands"][0] == {"name": "input", "dtype": "float32", "shape": [2, 4],
                                    "device": "cpu"}


def test_a_convolution():
    where = locate(caught(nn.Sequential(nn.Conv1d(2, 3, 1).double()), torch.ones(1, 2, 5)))
    assert (where["module"], where["op"]) == ("0", "conv1d")
    assert summary(where) == {"input": "float32", "weight": "float64", "bias": "float64"}


def test_the_matmul_operator_through_a_view():
    where = locate(caught(Mixed(), torch.ones(4, 4), "matmul"))
    assert (where["module"], where["op"]) == ("", "matmul")
    assert summary(where) == {"x": "float32", "weight": "float16"}


def test_operands_by_position_through_an_index():
    where = locate(caught(Mixed(), torch.ones(4, 4), "baddbmm"))
    assert where["op"] == "baddbmm"
    assert summary(where) == {"bias": "float32", "x": "float32", "weight": "float16"}


def test_operands_by_keyword():
    where = locate(caught(Mixed(), torch.ones(4, 4), "keyword"))
    assert where["op"] == "linear"
    assert summary(where) == {"input": "float32", "weight": "float16"}


def test_a_list_of_tensors():
    def joined(a, b):
        return torch.cat([a, b])

    where = locate(caught(joined, torch.ones(2, 3), torch.ones(2, 4, dtype=HALF)))
    assert (where["module"], where["op"]) == (None, "cat")
    assert summary(where) == {"a": "float32", "b": "float16"}


def test_a_nested_tensor_has_no_common_length():
    def padded(rows):
        return torch.nested.to_padded_tensor(rows, 0.0, output_size=(1, 1, 1))

    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    where = locate(caught(padded, rows))
    assert where["operands"][0]["shape"] == [2, -1, 3]


def test_without_a_tensor_there_is_nowhere():
    def plain(x):
        return int(x)

    assert locate(caught(plain, "not a number")) is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks know lines, not columns")
def test_a_call_over_several_lines_and_letters_of_two_bytes():
    def mixed(weight, ß):
        return ("ü", torch.nn.functional.linear(
            ß,
            weight,
        ))

    where = locate(caught(mixed, torch.ones(2, 2, dtype=HALF), torch.ones(2, 2)))
    assert where["op"] == "linear"
    assert summary(where) == {"ß": "float32", "weight": "float16"}


def test_the_origin_is_where_the_road_begins():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            narrow = self.first(x).half()
            return self.last(narrow)

    found = autopsy(caught(Net(), torch.ones(2, 4)))
    assert found.where["module"] == "last"
    assert found.where["origin"] == found.road[0]
    assert found.road[0]["code"] == "narrow = self.first(x).half()"
    assert (found.road[0]["dtype"], found.road[0]["how"]) == ("float16", "cast")


def test_where_all_agree_nothing_is_odd():
    layer = nn.Linear(4, 4)
    where = locate(caught(layer, torch.ones(2, 5)))
    assert where["op"] == "linear" and where["origin"] is None


def test_nobodys_code_is_run():
    class Trap:
        @property
        def tensor(self):
            raise AssertionError("a property was read")

    def touch(trap, x):
        return torch.mm(trap, x) if x.dim() else trap.tensor

    where = locate(caught(touch, Trap(), torch.ones(2, 2)))
    assert summary(where) == {"x": "float32"}
