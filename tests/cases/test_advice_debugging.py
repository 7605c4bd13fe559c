"""The advice on finding the culprit: its verdicts, and what would make each come out otherwise."""

import importlib.util
import os
from contextlib import nullcontext

import pytest
import torch
from advice_rows import effects, verdict
from torch import nn
from torch.autograd import set_detect_anomaly

from cases.advice import debugging
from cases.lab import torches
from cases.lab.advice import observe

pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


@pytest.fixture(autouse=True)
def without_transformers(monkeypatch):
    """Its import takes seconds, and the evidence holds what it shows."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("id", "expected"),
    [("B21", "no effect"), ("B22", "holds here"), ("C11", "holds here"), ("C15", "holds here"),
     ("C16", "holds here"), ("C17", "fails")],
)
def test_verdict(id, expected):
    assert verdict(id) == expected


def test_stack_traces_in_cpp_tell_nothing_of_dtypes_and_leave_no_variable_behind():
    before = dict(os.environ)
    seen = observe("C19")
    assert [one["effect"] for one in seen] == ["no effect", "no effect"]
    assert int(seen[0]["shown"].split()[0]) > 5  # lines that the variable really adds
    assert dict(os.environ) == before


def test_what_anomaly_detection_sees_and_what_it_does_not():
    assert effects("C11") == {
        "NaN": "holds", "dtype error": "holds", "infinity": "fails", "float16 underflow": "fails",
        "float16 overflow that ends in NaN": "fails",
    }


# ------------------------------------------------------------------ what would change it


def test_anomaly_detection_that_tells_more_would_show():
    def program():
        x = torch.zeros(1, 3, requires_grad=True)
        debugging.Product.apply(x, torch.ones(3, 3, dtype=torch.bfloat16)).sum().backward()

    without = debugging.told(program)
    with set_detect_anomaly(True):
        assert debugging.told(program) != without


def test_no_anomaly_detection_would_show(monkeypatch):
    monkeypatch.setattr(debugging, "set_detect_anomaly", lambda on: nullcontext())
    assert verdict("C11") == "fails"


def test_a_layer_that_returns_a_tensor_shows_its_dtype(monkeypatch):
    forward = nn.LSTM.forward
    monkeypatch.setattr(nn.LSTM, "forward", lambda *args: forward(*args)[0])
    seen = effects("B22")
    assert seen["LSTM"] == "holds"
    assert seen["transformers, Llama"] == "not shown"


def test_a_wrong_print_would_show(monkeypatch):
    monkeypatch.setattr(debugging, "printed_precision", lambda module: torch.float64)
    assert verdict("C15") == "fails"


def test_running_the_model_itself_shows_the_flow(monkeypatch):
    monkeypatch.setattr(debugging, "one_after_another", debugging.flow)
    assert verdict("C16") == "holds"


def test_code_that_tells_casts_apart_would_show(monkeypatch):
    monkeypatch.setattr(debugging, "no_cast", lambda x, y: x.abs())
    monkeypatch.setattr(debugging, "cast_to_half", lambda x, y: x.half())
    seen = effects("C17")
    assert seen["a cast or another method"] == seen["which cast"] == "holds"


@pytest.mark.parametrize(
    ("program", "effect"),
    [("print('mat1 and mat2\\nat::_to_copy')", "holds"), ("raise SystemExit('no')", "not shown")],
)
def test_a_trace_that_names_the_cast_would_show(monkeypatch, program, effect):
    monkeypatch.setattr(debugging, "PROGRAM", program)
    assert effects("C19")["set before the start"] == effect
