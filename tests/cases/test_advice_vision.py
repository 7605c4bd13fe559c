"""Advice on the vision failure and on loading: the verdicts here, and what would change them."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from cases.advice import loading
from cases.lab import torches
from cases.lab.advice import Seen, judged
from cases.lab.run import steady
from cases.llama_vision import advice
from cases.llama_vision.scenes import llama2_bytes

pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


def seen(item):
    with steady():
        torch.manual_seed(0)
        return {one.scene: one for one in item.check("cpu")}


def effects(item):
    return {scene: one.effect for scene, one in seen(item).items()}


@pytest.mark.parametrize(("item", "expected"), [
    (advice.where_float32_pixels_fail, "holds here"),
    (loading.first_parameter_tells_the_device, "holds here"),
    (advice.empty_cache_and_run_again, "no effect"),
    (advice.autocast_around_generate, "holds here"),
    (loading.load_in_half, "holds here"),
    (loading.disagree_with_the_config, "fails"),
    (advice.cast_any_input, "holds here"),
    (advice.one_module_at_a_time, "holds here"),
    (advice.bytes_of_7b, "fails"),
    (advice.half_with_layernorm_in_float32, "holds here"),
    (loading.model_and_inputs_to_bfloat16, "holds here"),
], ids=lambda value: getattr(value, "id", ""))
def test_verdict(item, expected):
    assert judged(seen(item).values()) == expected


# ------------------------------------------------------------------ what would change it


def test_float32_pixels_that_are_cast_fail_nowhere(monkeypatch):
    run = advice.run
    monkeypatch.setattr(advice, "run", lambda case, setting, fixes, device: run(
        case, setting, ("cast_image_features",), device))
    assert set(effects(advice.where_float32_pixels_fail).values()) == {"fails"}


def test_a_layer_that_stays_is_where_the_first_parameter_is(monkeypatch):
    monkeypatch.setattr(nn.Module, "to", lambda module, *target: module)
    found = effects(loading.first_parameter_tells_the_device)
    assert found["its last layer moved"] == "holds"
    assert effects(advice.empty_cache_and_run_again)["a layer on another device"] == "idle"


def test_autocast_that_does_nothing_cures_nothing(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda device, **options: nullcontext())
    assert set(effects(advice.autocast_around_generate).values()) == {"no effect"}


@pytest.fixture
def careful(monkeypatch):
    """A Tensor.to that leaves alone what is not floating."""
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, target, *more: to(
        tensor, target, *more) if tensor.is_floating_point() else tensor)


def test_a_cast_of_floating_inputs_alone_harms_neither_ids_nor_masks(careful):
    found = effects(advice.cast_any_input)
    assert found["token ids"] == found["a boolean mask"] == "idle"
    assert found["an input of 70000"] == "harms"
    found = effects(loading.model_and_inputs_to_bfloat16)
    assert found["token ids"] == found["labels"] == found["a boolean mask"] == "idle"
    assert found["positions"] == "holds"


def test_modules_are_blamed_for_their_doors_and_for_their_neighbours(monkeypatch):
    assert effects(advice.one_module_at_a_time) == {
        "a Llama as it is": "fails", "a Llama with casts at the doors": "holds",
        "a value half cannot hold": "holds", "a sum half cannot hold": "fails"}
    monkeypatch.setattr(advice, "cast_at_the_doors", lambda model: None)
    monkeypatch.setattr(advice.Sum, "forward", lambda self, x: self["skip"](x).float() + 4e4)
    found = effects(advice.one_module_at_a_time)
    assert found["a Llama with casts at the doors"] == "fails"
    assert found["a sum half cannot hold"] == "holds"


def test_bytes_are_those_of_the_library_and_could_be_the_articles(monkeypatch):
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    counted = llama2_bytes()
    assert advice.weights(advice.LLAMA_2_7B, torch.float32) == counted["float32"]
    assert counted["parameters"] == 6_738_415_616
    with torch.device("meta"):
        llava = LlavaForConditionalGeneration(LlavaConfig())
    assert advice.weights(advice.LLAMA_2_7B + advice.CLIP_L_336, torch.float32) == 4 * sum(
        p.numel() for p in llava.parameters())
    monkeypatch.setattr(advice, "weights", lambda shapes, dtype: {
        torch.float32: 28.7e9, torch.half: 14.2e9}[dtype])
    assert effects(advice.bytes_of_7b)["Llama-2-7B, GB"] == "holds"


def test_a_template_that_keeps_all_norms_as_they_were_would_keep_them(monkeypatch):
    monkeypatch.setattr(advice, "template", lambda model, dtype: copy.deepcopy(model))
    found = effects(advice.half_with_layernorm_in_float32)
    assert found["a LayerNorm's own weights"] == found["all norms of a LLaVA"] == "holds"


def test_a_library_that_ignores_or_refuses_the_dtype_passed_would_show(monkeypatch):
    llama = type(loading.small_llama())
    load = llama.from_pretrained
    monkeypatch.setattr(llama, "from_pretrained", lambda folder, **named: load(folder))
    found = effects(loading.load_in_half)
    assert found["a Llama, torch_dtype="] == found["a Llama, dtype="] == "fails"
    assert effects(loading.disagree_with_the_config)["config float32, passed float16"] == "holds"


def test_without_transformers_loading_cannot_be_shown(monkeypatch):
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    from cases.lab.advice import observe

    [only] = observe("B14")
    assert Seen(**only).effect == "not shown"
