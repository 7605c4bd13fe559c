"""Weights, averages and sums in low precision: small steps vanish, and what brings them back."""

import subprocess
import sys

import pytest
import torch

import cases
from cases.lab import torches
from cases.lab.case import DTYPES
from cases.lab.run import ask, call, fixed_run, prepare, run, steady
from cases.lost_updates import scenes
from cases.notebook import figures

CASE = cases.load("lost_updates")
KEPT, SIZES = CASE.factors[0].values, CASE.factors[1].values
FIXES = [fix.name for fix in CASE.fixes]
CURES = {
    "weights": {"stochastic_rounding", "compensated", "master_weights", "autocast_instead"},
    "average": {"float32_average"},
    "sum": {"float32_sum"},
}
new = pytest.mark.skipif(torches.current() != torches.main_id(), reason="about the newest torch")
old = pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")


def outcome(*fixes, **setting):
    return run(CASE, setting, fixes)


def costs(outcome, kind):
    return [cost["text"] for cost in outcome.costs if cost["kind"] == kind]


def test_the_headline_runs_without_a_word_and_no_weight_moves():
    seen = outcome()
    assert (seen.status, seen.error, seen.verdict) == ("ran", None, "costs")
    assert costs(seen, "updates_lost") == ["16 of 16 weights never moved"]
    assert CASE.headline.met_by(seen) and not CASE.cured(seen)


@pytest.mark.parametrize("kept", KEPT)
def test_small_steps_are_lost_and_large_ones_are_not(kept):
    assert costs(outcome(kept=kept), "error")
    large = outcome(kept=kept, size="large")
    assert large.verdict == "runs" and CASE.cured(large)


@new
@pytest.mark.parametrize("kept", KEPT)
def test_float16_loses_less_and_still_loses(kept):
    small, large = (outcome(kept=kept, size=size, dtype="float16") for size in SIZES)
    assert not CASE.cured(small) and large.verdict == "runs"
    assert small.relative_error < outcome(kept=kept).relative_error
    if kept == "weights":
        assert costs(small, "updates_lost") == ["4 of 16 weights never moved"]


def test_in_float32_every_weight_moves():
    with steady():
        trained = prepare(CASE, CASE.setting(), reference=True)
        before = trained.model.weight.detach().clone()
        call(trained)
    moved = (trained.model.weight.detach() - before).abs()
    assert 0.1 < float(moved.min()) and float(moved.max()) <= 0.2


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("fix", FIXES)
def test_which_fix_cures_what(kept, fix):
    seen = outcome(fix, kept=kept)
    if seen.status == "raised":  # float16 on the CPU, up to torch 2.1
        assert (fix, kept) == ("float16_instead", "weights")
    assert CASE.cured(seen) == (fix in CURES[kept])


@pytest.mark.parametrize("fix", ["larger_eps", "loss_scaling", "step_in_float32"])
def test_three_remedies_change_nothing_at_all(fix):
    with steady():
        plain, fixed = (fixed_run(CASE, CASE.setting(), CASE.pick(names), "cpu")[0]
                        for names in ([], [fix]))
        assert torch.equal(call(plain), call(fixed))
    assert torch.equal(plain.model.weight, fixed.model.weight)


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="a scaler for the CPU: from 2.3")
def test_a_real_scaler_does_what_the_scaled_loss_does():
    with steady():
        plain, scaled = (prepare(CASE, CASE.setting()) for _ in range(2))
        call(plain)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        model, batch = scaled.model, scaled.batch
        for _ in range(batch["steps"]):
            batch["optimizer"].zero_grad()
            scaler.scale(batch["criterion"](model(batch["x"]), batch["y"])).backward()
            scaler.step(batch["optimizer"])
            scaler.update()
    assert scaler.get_scale() == 1024 and bool(model.weight.grad.any())
    assert torch.equal(plain.model.weight, model.weight)


def test_a_larger_rate_leaves_the_big_weights_where_they_were():
    seen = outcome("larger_learning_rate")
    assert costs(seen, "updates_lost") == ["4 of 16 weights never moved"]
    with steady():
        trained, _ = fixed_run(CASE, CASE.setting(), CASE.pick(["larger_learning_rate"]), "cpu")
        before = trained.model.weight.detach().clone()
        call(trained)
    still = trained.model.weight == before
    assert bool((before[still] >= 8).all()) and bool((before[~still] < 2).all())


@pytest.mark.parametrize(("fix", "bytes_kept"), [
    ("step_in_float32", 8), ("stochastic_rounding", 8), ("compensated", 10), ("master_weights", 12),
    ("autocast_instead", 8),
])
def test_what_the_optimiser_keeps_is_measured(fix, bytes_kept):
    assert costs(outcome(fix), "memory")[-1] == (
        f"the optimiser keeps {bytes_kept} bytes a weight, not 4")


def test_float32_weights_and_a_float32_average_are_paid_for_in_bytes():
    assert costs(outcome("autocast_instead"), "memory")[0] == (
        "parameters take 2.0 times the bytes")
    assert costs(outcome("float32_average", kept="average"), "memory") == [
        "parameters take 1.5 times the bytes"]
    assert outcome("float32_sum", kept="sum").verdict == "runs"


def test_stochastic_rounding_is_noisier_than_what_keeps_all():
    noisy, exact = outcome("stochastic_rounding"), outcome("master_weights")
    assert noisy.relative_error > 1.5 * exact.relative_error
    assert outcome("compensated").relative_error == exact.relative_error


def test_two_half_truths_about_the_sum_make_a_cure():
    halves = "float16_instead", "reset_the_sum"
    assert not any(CASE.cured(outcome(half, kept="sum")) for half in halves)
    assert CASE.cured(outcome(*halves, kept="sum"))


def test_torch_s_own_average_stands_still_too():
    """AveragedModel copies the model, dtype and all."""
    model = torch.nn.Linear(1, 1, bias=False)
    averages = {}
    for dtype in (torch.float32, torch.bfloat16):
        model.weight.data = torch.full((1, 1), 1.25, dtype=dtype)
        average = torch.optim.swa_utils.AveragedModel(
            model, avg_fn=lambda old, now, count: 0.9999 * old + 0.0001 * now)
        average.update_parameters(model)
        model.weight.data = 2 * model.weight.data
        for _ in range(100):
            average.update_parameters(model)
        averages[dtype] = average.module.weight.item()
    assert averages[torch.bfloat16] == 1.25 < averages[torch.float32]


def test_sum_and_mean_of_a_tensor_add_up_in_float32():
    for dtype in (torch.bfloat16, torch.float16):
        ones = torch.ones(4096, dtype=dtype)
        assert float(ones.sum()) == 4096 and float(ones.mean()) == 1


@pytest.mark.parametrize(("dtype", "always", "never"), [
    (torch.bfloat16, 512, 256), (torch.float16, 4096, 2048)])
def test_the_rule_of_thumb_at_the_end_of_the_notebook(dtype, always, never):
    weights = torch.linspace(1, 16, 997).to(dtype).double()
    for sign in (1, -1):
        def moved(share, sign=sign):
            return (weights + sign * weights * share).to(dtype).double() != weights

        above = weights.log2() % 1 != 0 if sign < 0 else slice(None)  # below a power of two: half
        assert not bool(moved(0.999 / always)[above].any())
        assert bool(moved(1.001 / never).all())


def test_the_least_step_is_half_of_the_way_to_the_next_value():
    for name in scenes.LOW:
        found = scenes.least_step((1.0, 1.5, 10.0), DTYPES[name])
        half = torch.finfo(DTYPES[name]).eps / 2
        assert found == pytest.approx([half, half, 8 * half], rel=1e-2)


def test_the_pictures_say_what_was_measured():
    steps = scenes.least_steps(rate=0.002)
    assert steps["alt"].endswith("in float16 it is lost on weights of 8 and more; "
                                 "in bfloat16 it is lost on weights of 1 and more.")
    sums = scenes.sums()
    ends = {name: heights[-1] for name, (_, heights) in sums["lines"].items()}
    assert ends["float16"] == 2048 and 256 <= ends["bfloat16"] < 260
    assert ends["float32"] == pytest.approx(2400, rel=0.01)
    for drawn in (steps, sums):
        picture = figures.lines_picture(**drawn)
        assert picture.png and picture.alt == drawn["alt"] and picture.table.rows


def test_the_logged_loss_drops_to_nothing():
    rows = dict(scenes.logged(CASE, CASE.setting()).rows)
    assert set(rows["float32"].split()) <= {"0.59", "0.60", "0.61"}
    assert set(rows["bfloat16"].split()[1:]) == {"0.00"}


def test_guesses_are_judged_by_what_the_programs_return():
    programs = [lambda: torch.ones(()), lambda: 256]
    assert scenes.guessed(lambda: (1, 256), programs).passed
    assert not scenes.guessed(lambda: (1, 257), programs).passed
    for bad in (lambda: (None, 256), lambda: (1,), lambda: 1, lambda: ("one", 2), lambda: 1 / 0):
        assert not scenes.guessed(bad, programs).passed


@old
def test_torch_1_13_loses_the_same_and_has_no_half_on_the_cpu():
    def there(*fixes, **setting):
        return ask(CASE, setting, fixes, torch_id="torch-1.13")

    for kept in KEPT:
        assert not CASE.cured(there(kept=kept)) and there(kept=kept).status == "ran"
        for fix in sorted(CURES[kept]):
            assert CASE.cured(there(fix, kept=kept))
    assert "addmm_impl_cpu_" in there(dtype="float16").error["message"]
    assert there("float16_instead").verdict == "moves"
    assert not CASE.cured(there(kept="sum", dtype="float16"))


def test_the_program_alone_is_a_script_that_says_nothing():
    done = subprocess.run([sys.executable, CASE.folder / "model.py"], capture_output=True,
                          text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("after 100 steps towards 0: 1.0\n")


def test_needs_torch_alone():
    code = ("import sys, cases.lost_updates.case, cases.lost_updates.scenes\n"
            "found = {'IPython', 'ipywidgets', 'matplotlib', 'transformers'} & set(sys.modules)\n"
            "sys.exit(f'imported {found}' if found else 0)")
    done = subprocess.run([sys.executable, "-c", code], cwd=torches.ROOT, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
