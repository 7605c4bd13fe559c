"""Case encoder_bf16, run for real on this torch and, where it is live, on 1.13."""

import pytest
import torch

import cases
from cases.lab import torches
from cases.lab.run import ask, call, prepare, run, steady
from cases.lab.watch import road

CASE = cases.load("encoder_bf16")
FOUND = "expected scalar type Float but found BFloat16"
pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


def outcome(*fixes, **setting):
    return run(CASE, setting, fixes)


def test_headline_is_raised_inside_the_fast_path():
    seen = outcome()
    assert (seen.status, seen.verdict) == ("raised", "fails")
    assert seen.error == {"type": "RuntimeError", "message": FOUND}
    assert seen.where["module"] == "encoder.layers.0"
    assert seen.where["op"] == "_transformer_encoder_layer_fwd"
    # Nothing outside the call is wrong, so there is no origin to name.
    assert {operand["dtype"] for operand in seen.where["operands"]} == {"float32"}
    assert seen.where["origin"] is None


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"source": "spectrum"}, "fails"),  # no embedding anywhere, and it fails
        ({"mask": "off"}, "runs"),  # the embedding, and it does not
        ({"phase": "train"}, "runs"),
        ({"batch_first": "off"}, "runs"),
    ],
)
def test_the_mask_and_not_the_embedding_decides(change, verdict):
    assert outcome(**change).verdict == verdict


@pytest.mark.parametrize(
    ("fix", "verdict"),
    [
        ("cast_embedding_output", "fails"),
        ("embedding_weights_bf16", "fails"),
        ("mask_to_device", "fails"),
        ("autocast_everything", "fails"),
        ("encoder_weights_bf16", "costs"),
        ("disable_nested_tensor", "runs"),
        ("disable_mha_fastpath", "runs"),
        ("autocast_off_for_encoder", "costs"),
        ("debug_hooks", "runs"),  # the observer changes the experiment
    ],
)
def test_verdict_of_each_fix(fix, verdict):
    assert outcome(fix).verdict == verdict


def test_encoder_weights_cost_the_master_weights_and_break_training():
    assert [cost["kind"] for cost in outcome("encoder_weights_bf16").costs] == ["master_weights"]
    assert outcome("encoder_weights_bf16", phase="train").verdict == "moves"


def test_the_same_encoder_returns_another_dtype_in_validation():
    assert outcome(mask="off").output_dtype == "bfloat16"
    assert outcome(mask="off", phase="train").output_dtype == "float32"


def test_padded_rows_are_zero_on_the_fast_path_alone():
    with steady():
        fast = prepare(CASE, CASE.setting(), reference=True)
        assert not call(fast)[~fast.keep].any()
        slow = prepare(CASE, CASE.setting(), reference=True)
        slow.model.encoder.use_nested_tensor = False
        assert call(slow)[~slow.keep].any()


def test_autocast_is_asked_for_cuda_alone():
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cpu")


def test_watching_the_road_disturbs_nothing():
    seen = road(CASE)
    assert not seen.disturbed
    assert {stop.dtype for stop in seen.stations} == {"float32"}
    trained = road(CASE, {"phase": "train"})
    assert {stop.dtype for stop in trained.stations} == {"float32", "bfloat16"}


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")
def test_torch_1_13_says_it_the_other_way_round_and_needs_another_cure():
    def old(*fixes, **setting):
        return ask(CASE, setting, fixes, torch_id="torch-1.13")

    assert old().error["message"] == "expected scalar type BFloat16 but found Float"
    assert old(source="spectrum").verdict == "fails"
    assert old(mask="off").verdict == "fails"  # there the mask does not decide
    assert old("disable_nested_tensor").verdict == "fails"
    assert old("disable_mha_fastpath").verdict == "moves"  # no such switch there
    shorter = old("encoder_weights_bf16")
    assert shorter.verdict == "costs"
