"""The advice on the encoder: its verdicts, and what would make each come out otherwise."""

import pytest
import torch
from advice_rows import effects, verdict
from torch import nn

from cases.encoder_bf16 import advice, fixes
from cases.lab import torches
from cases.lab.advice import observe

pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


@pytest.mark.parametrize(
    ("id", "expected"),
    [("A1", "holds"), ("A2", "no effect"), ("A3", "harms"), ("A4", "no effect"), ("A5", "harms"),
     ("A6", "no effect"), ("A7", "fails"), ("A8", "holds here"), ("B23", "holds here")],
)
def test_verdict(id, expected):
    assert verdict(id) == expected


def test_a_converted_encoder_costs_float32_weights_or_memory():
    shown = {seen["scene"]: seen["shown"] for seen in observe("A5")}
    assert "24 of 32 float32 parameters are now bfloat16" in shown["validate"]
    assert "parameters take" in shown["validate, a converted copy"]
    assert "now bfloat16" not in shown["validate, a converted copy"]


def test_float32_is_wanted_outside_autocast_and_by_no_fast_path():
    seen = effects("A8")
    assert seen["no autocast, bfloat16 embedding"] == "holds"
    assert seen["validate"] == seen["validate, bfloat16 embedding"] == "no effect"


def test_hooks_change_what_they_look_at_on_the_fast_path_alone():
    assert effects("B23") == {"validate": "fails", "validate, no mask": "fails", "train": "holds"}


# ------------------------------------------------------------------ what would change it


def test_an_embedding_that_autocast_touches_would_show(monkeypatch):
    forward = nn.Embedding.forward
    monkeypatch.setattr(nn.Embedding, "forward", lambda *args: forward(*args).bfloat16())
    assert verdict("A1") == "fails"


@pytest.mark.parametrize(
    ("id", "name"),
    [("A2", "cast_embedding_output"), ("A3", "embedding_weights_bf16"), ("A4", "mask_to_device"),
     ("A6", "autocast_everything")],
)
def test_a_remedy_that_cures_would_show(monkeypatch, id, name):
    monkeypatch.setattr(fixes, name, fixes.disable_nested_tensor)
    assert verdict(id) == "holds"


def test_a_conversion_that_converts_nothing_would_show(monkeypatch):
    monkeypatch.setattr(fixes, "encoder_weights_bf16", lambda run: None)
    assert effects("A5")["validate"] == "no effect"


def test_an_embedding_to_blame_would_show(monkeypatch):
    ask = advice.outcome

    def cured_without_embedding(device, *around, source, **setting):
        around += (fixes.disable_nested_tensor,) * (source == "spectrum")
        return ask(device, *around, source=source, **setting)

    monkeypatch.setattr(advice, "outcome", cured_without_embedding)
    assert effects("A7")["validate, both masked"] == "holds"


def test_a_cast_to_float32_that_cures_would_show(monkeypatch):
    monkeypatch.setattr(advice, "float32_embedding_output", fixes.disable_nested_tensor)
    assert effects("A8")["validate"] == "holds"


def test_a_hook_that_only_looks_would_show(monkeypatch):
    monkeypatch.setattr(fixes, "debug_hooks", lambda run: None)
    assert verdict("B23") == "holds"


def test_no_switch_is_left_behind():
    before = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    verdict("B23")
    assert (torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()) == before
