"""Outcomes, verdicts and what a run leaves behind, on a program of three lines."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

import cases
from cases.halftruths import autopsy
from cases.halftruths.base import BadInput
from cases.lab import torches
from cases.lab.case import Case, Factor, Headline, Missing, Run, fixes
from cases.lab.run import (
    call,
    fixed_run,
    judge,
    run,
    smallest_sufficient,
    steady,
    subsets,
    where_of,
)
from cases.notebook.exercise import check

TEXT = "mat1 and mat2 must have the same dtype"


def cast_input(run):
    """Cast the input to the weights' dtype."""
    run.batch["x"] = run.batch["x"].to(run.dtype)


def cast_weights(run):
    """Cast the weights to the input's dtype: no error, twice the bytes."""
    run.model.float()


def cast_all_down(run):
    """Cast input and weights."""
    run.model.to(run.dtype)
    cast_input(run)


def wider_input(run):
    """Cast the input to float64: the error moves."""
    run.batch["x"] = run.batch["x"].to(torch.complex64)


def nothing(run):
    """Change nothing."""


def switch_fastpath(run):
    """Turn a switch of the whole process, and the random state with it."""
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_num_threads(2)
    torch.manual_seed(99)
    random.seed(99)
    cast_input(run)


def prepare(setting, device, dtype):
    torch.manual_seed(0)
    weights = torch.float32 if setting["weights"] == "float32" else dtype
    model = nn.Linear(8, 8).to(device, weights)
    return Run(
        setting=setting, device=device, dtype=dtype, model=model,
        batch={"x": torch.randn(4, 8).to(device), "y": torch.randn(4, 8).to(device)},
        step=lambda model, batch: model(batch["x"]),
        loss=lambda output, batch: nn.functional.mse_loss(output.float(), batch["y"]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


def tiny(**changes):
    fields = dict(
        name="tiny", title="A Linear in half meets float32", notebook="none.ipynb",
        headline=Headline("RuntimeError", TEXT, (torches.current(),)),
        factors=(Factor("dtype", ("bfloat16", "float16"), "the weights"),
                 Factor("weights", ("low", "float32"), "what the model was saved in"),
                 Factor("phase", ("forward", "train"), "one call, or training")),
        fixes=fixes(article=(cast_input, cast_weights, nothing),
                    ours=(cast_all_down, wider_input, switch_fastpath)),
        prepare=prepare, controls=lambda setting: [{**setting, "weights": "float32"}],
    )
    return Case(**{**fields, **changes})


CASE = tiny()


def kinds(outcome):
    return [cost["kind"] for cost in outcome.costs]


# ------------------------------------------------------------------ verdicts


def test_without_fixes_it_fails():
    outcome = run(CASE)
    assert (outcome.status, outcome.verdict, outcome.sign) == ("raised", "fails", "✗")
    assert outcome.error["type"] == "RuntimeError" and TEXT in outcome.error["message"]
    assert (outcome.where["module"], outcome.where["op"]) == ("", "linear")
    assert outcome.provenance == "live" and outcome.torch == torch.__version__
    assert outcome.fixes == [] and outcome.output_dtype is None and outcome.costs == []


def test_without_fixes_and_without_failure_it_runs():
    outcome = run(CASE, {"weights": "float32"})
    assert (outcome.status, outcome.output_dtype) == ("ran", "float32")
    assert outcome.verdict == "costs" and kinds(outcome) == ["low_precision_unused"]


def test_a_fix_that_changes_nothing_fails():
    assert run(CASE, fixes=["nothing"]).verdict == "fails"


def test_another_error_moves():
    outcome = run(CASE, fixes=["wider_input"])
    assert (outcome.status, outcome.verdict, outcome.sign) == ("raised", "moves", "↪")


def test_an_error_where_there_was_none_moves():
    assert run(CASE, {"weights": "float32"}, ["wider_input"]).verdict == "moves"


def test_what_a_fix_itself_raises_moves():
    def broken(run):
        raise AttributeError("no such layer")

    outcome = run(CASE, fixes=[broken])
    assert (outcome.verdict, outcome.error["type"]) == ("moves", "AttributeError")
    assert outcome.fixes == ["broken"]


def test_what_is_not_a_tensor_moves():
    def two_outputs(run):
        run.step = lambda model, batch: (1, 2)

    assert "returned tuple, not a tensor" in run(CASE, fixes=[two_outputs]).error["message"]


def test_no_error_and_no_cost_runs():
    case = tiny(name="in_place", controls=lambda setting: [])
    outcome = run(case, fixes=["cast_input"])
    assert (outcome.status, outcome.verdict, outcome.sign) == ("ran", "runs", "✓")
    assert outcome.costs == [] and outcome.output_dtype == "bfloat16"
    assert 0 < outcome.relative_error < 0.02


def test_a_cure_at_a_price_costs():
    outcome = run(CASE, fixes=["cast_weights"])
    assert (outcome.status, outcome.verdict, outcome.sign) == ("ran", "costs", "◐")
    assert kinds(outcome) == ["memory"]


def test_master_weights_are_watched_where_they_are_float32():
    outcome = run(CASE, {"weights": "float32"}, ["cast_all_down"])
    assert kinds(outcome) == ["master_weights", "output_dtype"]


def test_messages_that_differ_in_numbers_alone_are_the_same_failure():
    one = run(CASE)
    other = run(CASE)
    one.error = {"type": "RuntimeError", "message": "shapes 4 and 8 at 0x7f00aa"}
    other.error = {"type": "RuntimeError", "message": "shapes 2 and 16 at 0x7f00bb"}
    assert judge(one, other) == "fails"
    other.error = {"type": "TypeError", "message": one.error["message"]}
    assert judge(one, other) == "moves"


# ------------------------------------------------------------------ training


def test_training_runs_backward_and_judges_what_was_learned():
    outcome = run(CASE, {"phase": "train", "weights": "float32"})
    assert outcome.status == "ran" and kinds(outcome) == ["low_precision_unused"]

    def frozen(run):
        run.optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.0)

    slow = run(CASE, {"phase": "train", "weights": "float32"}, [frozen])
    assert {"no_learning", "updates_lost"} <= set(kinds(slow))
    quick = run(CASE, {"phase": "train", "weights": "float32"}, [frozen], training=False)
    assert "no_learning" not in kinds(quick)


def test_gradients_are_looked_at_between_backward_and_step():
    def poison(run):
        run.after_backward.append(lambda model: model.bias.grad.fill_(float("nan")))

    outcome = run(CASE, {"phase": "train", "weights": "float32"}, [poison], training=False)
    assert "gradients" in kinds(outcome)


# ------------------------------------------------------------------ what is left behind


def test_the_state_of_the_process_is_put_back():
    torch.manual_seed(7)
    random.seed(7)
    threads = torch.get_num_threads()
    before = torch.get_rng_state(), random.getstate()
    run(CASE, fixes=["switch_fastpath"])
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_it_is_put_back_after_an_error_too():
    def broken(run):
        switch_fastpath(run)
        raise KeyboardInterrupt

    before = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        run(CASE, fixes=[broken])
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_changes_nothing_for_the_next():
    first = run(CASE).to_json()
    for subset in subsets([fix.name for fix in CASE.fixes], most=1):
        run(CASE, fixes=subset)
    assert run(CASE).to_json() == first
    answer = run(CASE, fixes=["cast_input"])
    answer.costs.append("mine")
    run(CASE).error["message"] = "mine"
    assert run(CASE).to_json() == first


# ------------------------------------------------------------------ fixes and settings


def test_fixes_come_in_the_cases_order_whatever_the_callers():
    outcomes = [run(CASE, fixes=order) for order in
                (["cast_weights", "cast_input"], ["cast_input", "cast_weights"] * 2)]
    assert [outcome.fixes for outcome in outcomes] == [["cast_input", "cast_weights"]] * 2
    assert outcomes[0].to_json() == outcomes[1].to_json()


def test_settings_are_whole_and_in_order():
    assert CASE.setting({"phase": "train"}) == {
        "dtype": "bfloat16", "weights": "low", "phase": "train"}
    assert list(CASE.setting({"phase": "train", "dtype": "float16"})) == [
        "dtype", "weights", "phase"]


@pytest.mark.parametrize(("setting", "chosen", "said"), [
    ({"dtype": "float99"}, (), "allowed: bfloat16, float16"),
    ({"nope": "1"}, (), "allowed: dtype, weights, phase"),
    ({}, ("nope",), "allowed: cast_input, cast_weights"),
])
def test_what_does_not_exist_is_refused_in_one_line(setting, chosen, said):
    with pytest.raises(BadInput, match=said) as caught:
        run(CASE, setting, chosen)
    assert "\n" not in str(caught.value)


def test_a_package_that_is_not_here_is_said():
    case = tiny(name="needy", needs=("no_such_package",))
    with pytest.raises(Missing, match="case needy needs no_such_package"):
        run(case)


def test_a_library_that_refuses_to_build_the_model_is_an_outcome():
    def refuse(setting, device, dtype):
        raise ImportError("this torch is too old")

    outcome = run(tiny(name="refused", prepare=refuse))
    assert (outcome.verdict, outcome.error["type"]) == ("fails", "ImportError")


def test_subsets():
    assert list(subsets("abc", most=2)) == [
        (), ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]
    assert len(list(subsets("abcd"))) == 16


def test_smallest_sufficient_sets_hold_no_spare_fix():
    class Answer:
        def __init__(self, subset):
            good = "a" in subset or {"b", "c"} <= set(subset)
            self.status = "ran" if good else "raised"

    assert [s for s, _ in smallest_sufficient(Answer, "abcd")] == [("a",), ("b", "c")]


# ------------------------------------------------------------------ exercises


def test_the_judge_says_what_is_wrong():
    assert str(check(CASE, nothing)).startswith("✗ not yet\nThe same error is raised")
    assert "It now raises" in str(check(CASE, wider_input))
    assert str(check(CASE, cast_input)).startswith("✓ solved")
    assert str(check(CASE, cast_weights)).startswith("✓ solved\n(It costs: parameters take 2.0")
    assert str(check(CASE, cast_weights, forbid=["memory"])).startswith("✗ not yet\nIt runs, but")
    assert "not float32" in str(check(CASE, cast_input, output_dtype="float32"))
    assert "nothing to cure" in str(check(CASE, cast_input, weights="float32"))


def test_every_case_can_be_loaded_and_no_other():
    for name in cases.NAMES:
        assert cases.load(name).name == name
    with pytest.raises(KeyError, match="unknown case 'nope'; allowed: encoder_bf16"):
        cases.load("nope")


@pytest.mark.parametrize("name", [
    name for name in cases.NAMES if isinstance(cases.load(name).headline, Headline)
    and torches.current() in cases.load(name).headline.torches])
def test_an_outcome_says_where_as_the_autopsy_does(name):
    case = cases.load(name)
    try:
        with steady():
            call(fixed_run(case, case.setting(), (), "cpu")[0])
    except Exception as error:
        found = autopsy(error)
    where = run(case, training=False).where
    origin, begins = where.pop("origin"), found.where.pop("origin")
    for operand in found.where["operands"]:
        operand.pop("layout", None)
    assert where == found.where and (origin is None) == (found.road == [])
    if origin:
        assert begins == {**origin, "file": begins["file"]} == found.road[0]
        assert begins["file"].endswith(f"/{origin['file']}")


def test_what_stands_between_a_program_and_its_kernel_is_not_told(tmp_path):
    file = tmp_path / "between.py"
    file.write_text("import torch\n\ndef between(x, y):\n    return torch.mm(x, y)\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    between = space["between"]

    def program(low):
        return between(low, torch.ones(2, 2))

    for plumbing, op in ((str(file), "between"), (None, "mm")):
        with pytest.raises(RuntimeError) as caught:
            program(torch.ones(2, 2, dtype=torch.float16))
        assert where_of(caught.value, Path(__file__).parent, plumbing)["op"] == op
