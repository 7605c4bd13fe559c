"""Case grad_scaler, run for real on this torch and, where it is live, on 1.13."""

import pytest
import torch

import cases
from cases.grad_scaler import scenes
from cases.grad_scaler.model import MAX_NORM, STEPS, grad_scaler
from cases.lab import torches
from cases.lab.run import ask, call, prepare, run, steady

CASE = cases.load("grad_scaler")
pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="the verdicts below were measured on torch 2.13"
)


def outcome(*fixes, **setting):
    return run(CASE, setting, fixes)


def losses(*fixes, **setting):
    return [step["loss"] for step in scenes.watched(setting, fixes)]


def test_the_headline_raises_nothing_and_hardly_learns():
    assert CASE.headline.met_by(outcome())
    failing, right = losses(), losses("unscale_before_clip")
    reference = [step["loss"] for step in scenes.watched({}, reference=True)]
    assert failing[-1] > 0.9 * failing[0]
    assert right[-1] == pytest.approx(reference[-1], rel=0.01)
    assert reference[-1] < 0.02 * reference[0]


def test_the_clipping_sees_the_scale_and_the_optimizer_a_thousandth():
    wrong, right = scenes.watched({}), scenes.watched({}, ["unscale_before_clip"])
    assert wrong[0]["clip"] == pytest.approx(65536 * right[0]["clip"], rel=0.01)
    assert wrong[0]["got"] == pytest.approx(MAX_NORM / 65536, rel=0.01)
    assert right[0]["got"] == pytest.approx(right[0]["clip"], rel=0.01)
    assert right[0]["got"] > 1000 * wrong[0]["got"]


@pytest.mark.parametrize(
    ("fixes", "float16", "bfloat16"),
    [
        (["unscale_before_clip"], True, True),
        (["scaler_off"], False, True),  # without a scaler float16 underflows
        (["scaler_off", "bfloat16_autocast"], True, True),
        (["bfloat16_autocast"], False, False),
        (["smaller_init_scale"], False, False),
        (["larger_learning_rate"], False, False),
        (["float32_parameters"], False, False),
        (["scaler_on"], False, False),
    ],
)
def test_what_cures_the_wrong_order(fixes, float16, bfloat16):
    for dtype, cured in (("float16", float16), ("bfloat16", bfloat16)):
        assert CASE.cured(outcome(*fixes, dtype=dtype)) == cured
        assert outcome(*fixes, dtype=dtype).verdict == ("runs" if cured else "costs")


def test_half_cures_are_wrong_by_far_and_the_cure_by_little():
    assert outcome("unscale_before_clip").relative_error <= 0.001
    for half in ("scaler_off", "smaller_init_scale", "larger_learning_rate"):
        assert outcome(half).relative_error > 0.2


def test_without_a_scaler_gradients_become_nothing_in_float16_alone():
    assert scenes.watched({"mistake": "no_scaler"})[-1]["got"] == 0
    assert scenes.watched({"mistake": "no_scaler", "dtype": "bfloat16"})[-1]["got"] > 0
    assert not CASE.cured(outcome(mistake="no_scaler"))
    assert outcome(mistake="no_scaler", dtype="bfloat16").verdict == "runs"
    assert outcome("scaler_on", mistake="no_scaler").verdict == "runs"


def test_an_overflow_skips_every_step_and_only_the_input_or_the_range_cures_it():
    steps = scenes.watched({"mistake": "overflow"})
    assert [step["got"] for step in steps] == [None] * STEPS
    assert [step["scale"] for step in steps] == [2.0 ** (16 - n) for n in range(STEPS)]
    kinds = {cost["kind"] for cost in outcome(mistake="overflow").costs}
    assert kinds == {"not_finite", "skipped"}
    for cure in ("input_of_unit_size", "bfloat16_autocast"):
        assert outcome(cure, mistake="overflow").verdict == "runs"
    for none in ("scaler_off", "smaller_init_scale", "nan_to_zero"):
        assert not CASE.cured(outcome(none, mistake="overflow"))
    # The trap: the steps are no longer skipped, so the scale no longer tells.
    assert "skipped" not in {c["kind"] for c in outcome("nan_to_zero", mistake="overflow").costs}


def test_a_scale_of_0_lets_the_next_good_batch_ruin_the_weight():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), grad_scaler("cpu")

    def batch(value):
        optimizer.zero_grad()
        scaler.scale((value * weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    for _ in range(165):
        batch(float("nan"))
    assert scaler.get_scale() > 0
    batch(float("nan"))
    assert (scaler.get_scale(), weight.item()) == (0, 1)
    batch(1.0)
    assert weight.isnan().all()


def test_half_parameters_raise_in_float16_and_the_override_rounds_their_updates():
    seen = outcome(mistake="half_parameters")
    assert seen.error == {"type": "ValueError", "message": "Attempting to unscale FP16 gradients."}
    assert outcome(mistake="half_parameters", dtype="bfloat16").verdict == "runs"
    cured = outcome("float32_parameters", mistake="half_parameters")
    assert CASE.cured(cured) and [cost["kind"] for cost in cured.costs] == ["memory"]
    for silenced in ("allow_half_gradients", "scaler_off"):
        told = outcome(silenced, mistake="half_parameters")
        assert told.verdict == "costs" and told.relative_error > 10 * cured.relative_error


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_no_gradients_raise_and_without_the_scaler_nothing_learns(dtype):
    setting = {"mistake": "no_gradients", "dtype": dtype}
    assert outcome(**setting).error["message"] == "No inf checks were recorded for this optimizer."
    assert outcome("optimizer_of_this_model", **setting).verdict == "runs"
    moved = outcome("step_only_with_gradients", **setting)
    assert (moved.verdict, moved.error["message"]) == (
        "moves", "No inf checks were recorded prior to update.")
    assert len(set(losses("scaler_off", **setting))) == 1
    assert {c["kind"] for c in outcome("scaler_off", **setting).costs} == {"error", "no_learning"}


def test_adam_hides_the_order_only_where_eps_is_tiny():
    def adam(eps):
        def fix(run):
            run.batch["optimizer"] = torch.optim.Adam(run.model.parameters(), lr=0.03, eps=eps)
        return fix

    def last(eps, *fixes):
        return losses(*fixes, adam(eps))[-1]

    assert last(1e-8) > 4 * last(1e-8, "unscale_before_clip")
    assert last(1e-15) < last(1e-15, "unscale_before_clip")


def test_watching_changes_nothing():
    with steady():
        program = prepare(CASE, CASE.setting())
        call(program)
    assert [step["loss"] for step in scenes.watched({})] == [loss for loss, *_ in
                                                             program.batch["log"]]


def test_the_diagnosis_can_be_right_and_wrong():
    right = [setting["mistake"] for setting, _ in scenes.PATIENTS.values()]
    assert scenes.diagnose(lambda: tuple(right)).passed
    for place in range(len(right)):
        wrong = right[:place] + ["clip_first"] + right[place + 1:]
        assert not scenes.diagnose(lambda wrong=wrong: wrong).passed
    for bad in (("", "", ""), ("x", "y", "z"), 3):
        assert not scenes.diagnose(lambda bad=bad: bad).passed


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")
def test_torch_1_13_has_no_scaler_on_the_cpu():
    def old(*fixes, **setting):
        return ask(CASE, setting, fixes, torch_id="torch-1.13")

    assert "AutocastCPU only support Bfloat16" in old().error["message"]
    assert old(dtype="bfloat16").verdict == "runs"  # a scaler that is off, and so no wrong order
    assert not CASE.cured(old(mistake="no_gradients", dtype="bfloat16"))  # and none to complain
    assert CASE.cured(
        old("optimizer_of_this_model", mistake="no_gradients", dtype="bfloat16"))
