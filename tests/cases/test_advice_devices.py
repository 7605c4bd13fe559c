"""Advice on half on the CPU and on devices: the verdicts here, and what would change them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases.advice import devices
from cases.cpu_half import advice as cpu_half
from cases.lab import torches
from cases.lab.advice import judged
from cases.lab.run import steady

pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


def seen(item, device="cpu"):
    with steady():
        torch.manual_seed(0)
        return list(item.check(device))


def effects(item, device="cpu"):
    return {one.scene: one.effect for one in seen(item, device)}


@pytest.mark.parametrize(("item", "expected"), [
    (cpu_half.call_ops_in_half_on_the_cpu, {
        "transformer": "fails", "vision": "fails", "losses": "holds", "linear algebra": "holds",
        "Fourier, statistics": "holds"}),
    (cpu_half.move_to_the_gpu, {"model and input": "not shown", "input alone": "not shown"}),
    (cpu_half.cast_the_input_with_autocast_disabled, {
        "half layer": "harms", "float32 layer": "holds", "product without weights": "idle"}),
    (devices.see_where_results_live, {
        "ops on a tensor": "fails", "a 0-dim CPU tensor added": "fails",
        "zeros_like, new_zeros": "fails", "zeros, arange, tensor, nn.Linear": "holds",
        "custom op for the CPU": "fails", "custom op that allocates": "holds"}),
    (devices.read_and_set_allow_tf32, {
        "float32 product, default": "holds", "float32 convolution, default": "fails",
        "float32 product, set by hand": "not shown", "float16 product, set by hand": "not shown",
        "bfloat16 product, set by hand": "not shown"}),
], ids=lambda value: getattr(value, "id", ""))
def test_scenes(item, expected):
    assert effects(item) == expected


def test_moving_keeps_the_dtype():
    assert judged(seen(devices.move_with_and_without_a_dtype)) == "holds"


@pytest.mark.parametrize("item", [devices.time_inference_in_half, devices.time_one_op_in_half],
                         ids=lambda item: item.id)
@pytest.mark.parametrize(("ratio", "effect"), [(3.0, "holds"), (1.0, "fails")])
def test_the_watch_decides(item, ratio, effect, monkeypatch):
    monkeypatch.setattr(devices, "speedup", lambda call, *tensors: ratio)
    timed = [one for one in seen(item) if one.processor]
    assert len(timed) >= 2 and {one.effect for one in timed} == {effect}


def test_the_watch_sees_what_is_slower_in_half():
    def slow_in_half(x):
        for _ in range(20 if x.dtype is torch.float16 else 1):
            x.abs()

    assert devices.speedup(slow_in_half, torch.ones(10_000)) < 0.5


def test_what_is_refused_in_half_is_not_faster():
    scene = devices.faster("inverse", 1.5, torch.linalg.inv, torch.eye(4))
    assert scene.effect == "fails" and "Got Half" in scene.shown and not scene.processor


# ------------------------------------------------------------------ what would change it


def test_ops_that_all_run_are_not_limited(monkeypatch):
    monkeypatch.setattr(cpu_half, "OPS", {"one": {"gelu": (F.gelu, (4, 16))}})
    assert effects(cpu_half.call_ops_in_half_on_the_cpu) == {"one": "fails"}


def test_an_op_that_float32_lacks_too_does_not_count(monkeypatch):
    monkeypatch.setattr(cpu_half, "OPS", {"one": {"none": (lambda x: x.no_such_op(), (4, 16))}})
    [one] = seen(cpu_half.call_ops_in_half_on_the_cpu)
    assert (one.effect, one.shown) == ("fails", "0 of 0 raise in half")


def test_where_there_is_another_device_moving_cures_the_old_failure(monkeypatch):
    def forward(layer, x):
        if x.device != layer.weight.device:
            raise RuntimeError("Expected all tensors to be on the same device")
        if x.device.type == "cpu":
            raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")
        return F.linear(x, layer.weight, layer.bias)

    monkeypatch.setattr(nn.Linear, "forward", forward)
    assert effects(cpu_half.move_to_the_gpu, "meta") == {
        "model and input": "holds", "input alone": "fails"}


def test_a_layer_that_promotes_has_nothing_to_cure(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda layer, x: F.linear(
        x, layer.weight.to(x.dtype), layer.bias.to(x.dtype)))
    found = effects(cpu_half.cast_the_input_with_autocast_disabled)
    assert set(found.values()) == {"idle"}


def test_another_default_device_is_where_new_tensors_live_but_not_those_of_an_extension():
    with torch.device("meta"):
        found = effects(devices.see_where_results_live)
    assert found["zeros, arange, tensor, nn.Linear"] == "fails"
    assert found["custom op that allocates"] == "holds"


def test_an_extension_that_names_the_device_is_not_on_the_cpu(monkeypatch):
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size: zeros(*size, device="meta"))
    assert effects(devices.see_where_results_live)["custom op that allocates"] == "fails"


def test_a_move_that_casts_is_seen(monkeypatch):
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *args, **options: to(
        tensor, *args, **options).half())
    assert effects(devices.move_with_and_without_a_dtype)["tensor.to(device)"] == "fails"


def test_flags_that_stand_otherwise_turn_the_scenes(monkeypatch):
    monkeypatch.setattr(devices, "FLAGS", {"product": True, "convolution": False})
    found = effects(devices.read_and_set_allow_tf32)
    assert found["float32 product, default"] == "fails"
    assert found["float32 convolution, default"] == "holds"


def test_on_a_gpu_the_flag_is_needed_where_it_changes_the_result(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    monkeypatch.setattr(devices, "product", lambda tf32, a, b: torch.tensor(
        1.0 if tf32 and a.dtype is torch.float32 else 2.0))
    found = effects(devices.read_and_set_allow_tf32, "meta")
    assert [found[f"{name} product, set by hand"] for name in ("float32", "float16", "bfloat16")
            ] == ["holds", "fails", "fails"]


def test_the_flag_is_put_back():
    before = torch.backends.cuda.matmul.allow_tf32
    devices.product(not before, torch.ones(2, 2), torch.ones(2, 2))
    assert torch.backends.cuda.matmul.allow_tf32 is before
