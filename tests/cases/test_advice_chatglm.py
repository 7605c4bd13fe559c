"""Advice on the half ChatGLM: the verdicts here, and what would change them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases.chatglm_prefix import advice
from cases.lab import torches
from cases.lab.advice import Tried
from cases.lab.run import steady

pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


def effects(item):
    with steady():
        torch.manual_seed(0)
        return {one.scene: one.effect for one in item.check("cpu")}


@pytest.mark.parametrize(("item", "expected"), [
    (advice.feed_float32_to_a_half_layer, {
        "Linear": "holds", "Conv1d": "holds", "LSTM": "holds", "MultiheadAttention": "holds",
        "LayerNorm": "holds", "gain": "fails", "Linear under autocast": "fails"}),
    (advice.wrap_the_forward_in_autocast, {
        "train": "holds", "validate": "holds", "generate": "holds",
        "validate, float32 norm": "holds", "validate, float32 lm_head": "holds",
        "validate, float32 input": "holds"}),
    (advice.halve_named_parameters, {
        "parameters": "holds", "tied weights": "holds", "buffers": "fails",
        "forward, float32 tables": "fails", "train": "harms", "validate": "harms",
        "generate": "harms", "step by a GradScaler": "harms"}),
    (advice.halve_the_gradients, {
        "float32 weights": "harms", "bfloat16 weights": "harms",
        "float32 weights, autocast": "harms",
        "float32 weights, grad_dtype=None, AdamW": "harms", "half weights": "no effect"}),
    (advice.halve_the_state_dict, {
        "train": "no effect", "validate": "no effect", "generate": "no effect",
        "float32 model, half input": "no effect", "float32 model, its weights": "harms",
        "half model": "no effect", "float32 model, half input, assign=True": "holds"}),
    (advice.validate_in_float_and_go_back, {
        "half weights": "holds", "float32 weights": "harms", "half base, float32 prefix": "harms",
        "float32 weights, AdamW's next step": "harms"}),
], ids=lambda value: getattr(value, "id", ""))
def test_scenes(item, expected):
    assert effects(item) == expected


def test_float32_is_most_stable_and_its_time_decides_the_rest(monkeypatch):
    def as_on_a_gpu(fix, device):
        return Tried(value=5.0 if fix.__name__ == "whole_model_float32" else 1.0)

    monkeypatch.setattr(advice, "forward_time", as_on_a_gpu)
    assert set(effects(advice.convert_everything_to_float32).values()) == {"holds"}
    monkeypatch.setattr(advice, "forward_time", lambda fix, device: Tried(
        error={"type": "RuntimeError", "message": "not here"}))
    monkeypatch.setattr(advice, "run", without_fixes(advice.run))
    found = effects(advice.convert_everything_to_float32)
    assert found["most stable, validate"] == "fails"
    assert found["slower than autocast_float16"] == "not shown"


def without_fixes(run):
    return lambda case, setting, fixes, device, **options: run(case, setting, (), device, **options)


def test_forward_time_is_measured_or_says_why_not():
    assert advice.forward_time(advice.fixes.whole_model_float32, "cpu").value > 0
    assert "expected scalar type" in advice.forward_time(lambda run: None, "cpu").said


# ------------------------------------------------------------------ what would change it


def test_a_layer_that_casts_its_input_does_not_raise(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: F.linear(
        x.to(self.weight.dtype), self.weight, self.bias))
    assert effects(advice.feed_float32_to_a_half_layer)["Linear"] == "fails"


def test_a_fix_that_does_nothing_has_no_effect(monkeypatch):
    monkeypatch.setattr(advice, "run", without_fixes(advice.run))
    assert set(effects(advice.wrap_the_forward_in_autocast).values()) == {"no effect"}


def test_halving_buffers_too_covers_the_model(monkeypatch):
    monkeypatch.setattr(advice, "halved_by_loop", nn.Module.half)
    found = effects(advice.halve_named_parameters)
    assert (found["buffers"], found["forward, float32 tables"]) == ("holds", "holds")


def test_the_scaler_takes_what_was_not_halved(monkeypatch):
    monkeypatch.setattr(advice, "halved_by_loop", lambda model: model)
    found = effects(advice.halve_named_parameters)
    assert found["step by a GradScaler"] == "idle" and found["parameters"] == "fails"


def test_gradients_left_alone_are_not_refused(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "half", lambda tensor: tensor)
    found = effects(advice.halve_the_gradients)
    assert "harms" not in found.values() and found["float32 weights"] == "idle"


def test_a_state_dict_left_alone_is_not_rounded(monkeypatch):
    monkeypatch.setattr(advice, "halved_state", nn.Module.state_dict)
    found = effects(advice.halve_the_state_dict)
    assert found["float32 model, its weights"] == "holds"
    assert found["float32 model, half input, assign=True"] == "no effect"


def test_weights_that_are_not_halved_again_are_kept(monkeypatch):
    monkeypatch.setattr(nn.Module, "half", lambda module: module)
    found = effects(advice.validate_in_float_and_go_back)
    assert found["float32 weights"] == "holds"
    assert found["half weights"] == "harms"  # they stay float32
    assert found["float32 weights, AdamW's next step"] == "idle"
