"""Half on the CPU: what an old torch refuses, what the newest still does, and what cures it."""

import json
import re
import subprocess
import sys
import time

import pytest
import torch

import cases
from cases.cpu_half import ops, scenes
from cases.halftruths.base import BadInput
from cases.lab import evidence, torches
from cases.lab.run import ask, prepare, run, steady, subsets, train
from cases.notebook import figures

CASE = cases.load("cpu_half")
OPS = CASE.factors[0].values
NEW, OLD = torches.main_id(), "torch-1.13"
NEVER = {
    "fft": "Unsupported dtype Half",
    "inverse": "linalg.inv: Low precision dtypes not supported. Got Half",
    "cdist": "\"cdist\" not implemented for 'Half'",
    "quantile": "quantile() input tensor must be either float or double dtype",
}
ONCE = {
    "linear": "\"addmm_impl_cpu_\" not implemented for 'Half'",
    "conv2d": "\"slow_conv2d_cpu\" not implemented for 'Half'",
    "layer_norm": "\"LayerNormKernelImpl\" not implemented for 'Half'",
    "softmax": "\"softmax_lastdim_kernel_impl\" not implemented for 'Half'",
    "bmm": "\"bmm\" not implemented for 'Half'",
    "cumsum": "\"cumsum_out_cpu\" not implemented for 'Half'",
    "topk": "\"topk_cpu\" not implemented for 'Half'",
    "erfinv": "\"erfinv_vml_cpu\" not implemented for 'Half'",
}
WITH_WEIGHTS = ("linear", "conv2d", "layer_norm")

new = pytest.mark.skipif(torches.current() != NEW, reason=f"these are about {NEW}")
old = pytest.mark.skipif(not torches.is_live(OLD), reason=f"{OLD} is not live here")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to move to")


def on(torch_id, fixes=(), training=False, **setting):
    return ask(CASE, setting, fixes, torch_id=torch_id, training=training)


def test_names_are_those_of_the_brief():
    assert [factor.name for factor in CASE.factors] == ["op", "dtype", "phase"]
    assert {"linear", "conv2d", "layer_norm", "softmax", "bmm", "cumsum"} <= set(OPS)
    assert CASE.setting() == {"op": "linear", "dtype": "float16", "phase": "forward"}
    assert [fix.name for fix in CASE.fixes] == [
        "move_to_gpu", "float_the_input", "autocast_float16", "empty_cache",
        "float_the_layer", "bfloat16_weights", "whole_model_float32", "newer_torch",
    ]
    assert all(fix.help for fix in CASE.fixes)


@old
def test_the_report_on_the_old_torch():
    outcome = on(OLD)
    assert (outcome.verdict, outcome.torch[:4]) == ("fails", "1.13")
    assert outcome.error == {"type": CASE.headline.type, "message": CASE.headline.text}
    assert (outcome.where["module"], outcome.where["op"]) == ("layer", "linear")
    assert {operand["dtype"] for operand in outcome.where["operands"]} == {"float16"}
    assert {operand["device"] for operand in outcome.where["operands"]} == {"cpu"}


@old
@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("op", OPS)
def test_the_old_torch_refuses_every_op_in_half(op, phase):
    outcome = on(OLD, op=op, phase=phase)
    assert outcome.error == {"type": "RuntimeError", "message": {**ONCE, **NEVER}[op]}


@old
@pytest.mark.parametrize("op", OPS)
def test_the_old_torch_has_in_bfloat16_what_is_not_refused_everywhere(op):
    assert on(OLD, op=op, dtype="bfloat16").status == ("raised" if op in NEVER else "ran")


@new
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("op", OPS)
def test_the_new_torch_refuses_only_what_it_never_had(op, phase, dtype):
    outcome = on(NEW, op=op, phase=phase, dtype=dtype)
    if op not in NEVER:
        assert (outcome.status, outcome.output_dtype) == ("ran", dtype)
        assert not outcome.costs
        return
    name = {"float16": "Half", "bfloat16": "BFloat16"}[dtype]
    assert outcome.error["message"] == NEVER[op].replace("Half", name)
    assert outcome.where["module"] == "layer"


SINGLE = {
    # fix: on the old torch, on the new one
    "float_the_input": ("moves", "moves"),
    "autocast_float16": ("moves", "runs"),
    "empty_cache": ("fails", "runs"),
    "float_the_layer": ("costs", "costs"),
    "bfloat16_weights": ("costs", "costs"),
    "whole_model_float32": ("costs", "costs"),
    "newer_torch": ("runs", "runs"),
}


@old
@pytest.mark.parametrize("fix", SINGLE)
def test_each_fix_on_the_old_torch(fix):
    assert on(OLD, [fix]).verdict == SINGLE[fix][0]


@new
@pytest.mark.parametrize("fix", SINGLE)
def test_each_fix_on_the_new_torch(fix):
    assert on(NEW, [fix]).verdict == SINGLE[fix][1]


@no_gpu
def test_move_to_gpu_without_one_raises_what_torch_raises():
    outcome = run(CASE, {}, ["move_to_gpu"])
    assert (outcome.status, outcome.verdict) == ("raised", "moves")


@pytest.mark.parametrize("op", OPS)
def test_float_the_input_cures_only_what_has_no_weights(op):
    outcome = run(CASE, {"op": op}, ["float_the_input"])
    assert outcome.verdict == ("moves" if op in WITH_WEIGHTS else "runs")
    assert run(CASE, {"op": op}, ["float_the_layer"]).status == "ran"


@new
@pytest.mark.parametrize("op", NEVER)
def test_autocast_and_float32_cure_what_the_new_torch_lacks(op):
    for fix in ("autocast_float16", "whole_model_float32"):
        outcome = on(NEW, [fix], op=op)
        assert (outcome.verdict, outcome.output_dtype) == ("costs", "float32")
    for fix in ("bfloat16_weights", "empty_cache", "newer_torch"):
        assert on(NEW, [fix], op=op).status == "raised"


@old
def test_newer_torch_is_really_run_there():
    outcome = on(OLD, ["newer_torch"])
    there = on(NEW)
    assert (outcome.torch, outcome.provenance) == (there.torch, "live")
    assert (outcome.relative_error, outcome.output_dtype) == (there.relative_error, "float16")
    assert outcome.fixes == ["newer_torch"]


@old
def test_other_fixes_travel_with_newer_torch():
    outcome = on(OLD, ["float_the_input", "newer_torch"])
    assert outcome.torch == on(NEW).torch
    assert outcome.error == on(NEW, ["float_the_input"]).error


@pytest.mark.parametrize("op", OPS)
def test_the_training_is_one_that_learns(op):
    with steady():
        setting = CASE.setting({"op": op, "phase": "train"})
        losses = train(prepare(CASE, setting, reference=True))["losses"]
    assert losses[-1] < losses[0] / 2


@new
def test_training_in_half_loses_updates_where_bfloat16_loses_more():
    def lost(dtype):
        outcome = on(NEW, training=True, dtype=dtype, phase="train")
        return [item["text"] for item in outcome.costs if item["kind"] == "updates_lost"]

    assert not lost("float16")
    assert lost("bfloat16")


@new
def test_every_set_of_fixes_runs_and_soon():
    start = time.perf_counter()
    verdicts = [on(NEW, subset).verdict for subset in subsets([fix.name for fix in CASE.fixes])]
    assert len(verdicts) == 256 and all(verdicts)
    assert time.perf_counter() - start < 90


@old
def test_every_set_of_fixes_runs_on_the_old_torch_too():
    start = time.perf_counter()
    verdicts = [on(OLD, subset).verdict for subset in subsets([fix.name for fix in CASE.fixes])]
    assert len(verdicts) == 256 and all(verdicts)
    assert time.perf_counter() - start < 90


# ------------------------------------------------------------------ the op sweep


@pytest.fixture(scope="module")
def surveyed():
    return ops.survey()


@pytest.fixture
def plant(monkeypatch):
    """A function that puts an op in the place of the whole list and returns what is said of it."""

    def put(function, *inputs, group="planted"):
        monkeypatch.setattr(ops, "OPS", {"planted": (function, *inputs)})
        monkeypatch.setattr(ops, "GROUP_OF", {"planted": group})
        return ops.unfold(ops.survey())["planted"]

    return put


def everywhere(said):
    return dict.fromkeys(ops.COLUMNS, said)


def test_the_survey_calls_many_ops_and_says_the_same_each_time(surveyed):
    assert len(surveyed["ops"]) == len(ops.OPS) >= 150
    assert len(ops.OPS) == sum(map(len, ops.GROUPS.values())), "an op stands in two groups"
    assert surveyed == json.loads(json.dumps(ops.survey()))
    for said in ops.unfold(surveyed).values():
        assert list(said) == list(ops.COLUMNS)
        for text in said.values():
            assert text in (ops.RUNS, ops.ABSENT, ops.NO_GRADIENT) or re.match(
                r"wrong: |\w+Error: .", text)


def test_the_survey_does_not_hang_on_the_order_of_the_ops(surveyed, monkeypatch):
    monkeypatch.setattr(ops, "OPS", dict(reversed(ops.OPS.items())))
    assert ops.unfold(ops.survey()) == ops.unfold(surveyed)


def test_a_survey_takes_little_room(surveyed):
    assert len("\n".join(map(json.dumps, surveyed["ops"]))) < 12_000


def test_a_survey_unfolds_to_what_was_said(plant, monkeypatch):
    said = dict(zip(ops.COLUMNS, ("runs", "a", "a", "runs"), strict=True))
    monkeypatch.setattr(ops, "ask", lambda op, dtype, direction, device: said[dtype, direction])
    assert plant(None) == said
    assert ops.survey() == {"ops": [["planted", None, "a", None, "runs"]]}
    said.update(dict.fromkeys(said, "b"))
    assert plant(None) == said
    assert ops.survey() == {"ops": [["planted", "b"]]}


def test_every_op_has_a_reference(surveyed):
    """In float64 all is finite, and what runs in float64 runs in float32: absent means both."""
    absent = {(op, direction) for op, said in ops.unfold(surveyed).items()
              for (_, direction), text in said.items() if text == ops.ABSENT}
    with steady():
        for op in ops.OPS:
            for direction in {"forward", "backward"} - {d for o, d in absent if o == op}:
                exact, single = (
                    ops.perform(op, [ops.cast(v, "cpu", dtype) for v in ops.made(op)], direction)
                    for dtype in (torch.float64, torch.float32))
                assert all(bool(torch.isfinite(t).all()) for t in exact or ()), op
                assert (exact is None) == (single is None), op


def test_nothing_hangs_on_where_wrong_begins(surveyed, monkeypatch):
    for factor in (7, 18):
        monkeypatch.setattr(ops, "WRONG_FACTOR", factor)
        assert ops.survey() == surveyed


def test_the_survey_leaves_the_random_state_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    ops.survey()
    assert torch.equal(torch.rand(3), expected)


@no_gpu
def test_the_survey_says_in_one_line_where_it_can_run():
    with pytest.raises(BadInput, match="allowed: cpu$"):
        ops.survey("cuda")
    with pytest.raises(BadInput, match="unknown device 'tpu'; allowed: cpu, cuda"):
        ops.survey("tpu")


def low(tensor):
    return tensor.dtype in (torch.float16, torch.bfloat16)


def test_a_planted_refusal_is_reported_in_its_words(plant):
    def refuse(a):
        if a.dtype is torch.bfloat16:
            raise TypeError("no kernel for this\nand a long tail")
        return a * 2

    said = plant(refuse, ops.x(4, 4))
    for direction in ops.DIRECTIONS:
        assert said["float16", direction] == ops.RUNS
        assert said["bfloat16", direction] == "TypeError: no kernel for this"


def test_a_planted_refusal_of_the_gradient_alone_is_seen(plant):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()

        @staticmethod
        def backward(ctx, grad):
            if low(grad):
                raise RuntimeError("no way back")
            return grad

    said = plant(Once.apply, ops.x(4))
    assert said["float16", "forward"] == ops.RUNS
    assert said["float16", "backward"] == "RuntimeError: no way back"


@pytest.mark.parametrize(("wrong", "text"), [
    (lambda a: a * 1.5, "relative error 0.5"),
    (lambda a: a / 0, "not finite"),
    (lambda a: a[:2], "other shapes"),
])
def test_a_planted_wrong_op_is_called_wrong(plant, wrong, text):
    said = plant(lambda a: wrong(a) if low(a) else a * 1.0, ops.above(4, 4))
    assert {said[dtype, "forward"] for dtype in ops.DTYPES} == {f"wrong: {text}"}


def test_planted_wrong_integers_are_called_wrong(plant):
    said = plant(lambda a: a.argmax(-1) + int(low(a)), ops.apart(4, 4))
    assert said == {column: ops.NO_GRADIENT if "backward" in column else "wrong: other integers"
                    for column in ops.COLUMNS}


def test_a_wrong_gradient_of_a_right_op_is_called_wrong(plant):
    said = plant(lambda a: a * 2 - a.detach() if low(a) else a * 1.0, ops.x(4, 4))
    assert said["bfloat16", "forward"] == ops.RUNS
    assert said["bfloat16", "backward"] == "wrong: relative error 1"


def test_rounding_at_each_step_is_not_called_wrong(plant):
    def many_steps(a):
        for _ in range(30):
            a = a * 1.01
        return a

    assert plant(many_steps, ops.above(64)) == everywhere(ops.RUNS)


def test_what_no_dtype_can_do_is_absent_and_what_is_drawn_is_not_compared(plant):
    assert plant(lambda a: torch.no_such_op(a), ops.x(4)) == everywhere(ops.ABSENT)
    said = plant(lambda a: a * torch.rand_like(a), ops.x(4), group=ops.RANDOM)
    assert said == everywhere(ops.RUNS)


@new
def test_what_the_new_torch_refuses_and_what_it_gets_wrong(surveyed):
    said = ops.unfold(surveyed)
    assert set(said["linear"].values()) == {ops.RUNS}
    assert "lu_cpu" in said["det"]["float16", "forward"]
    for op in ("cdist (near points)", "matrix_exp"):
        assert all(text.startswith("wrong: ") for text in said[op].values())
    assert said["var (far from 0)"]["float16", "forward"] == ops.RUNS
    assert said["var (far from 0)"]["float16", "backward"].startswith("wrong: relative error")
    assert said["Adam (small gradients)"]["float16", "forward"] == "wrong: not finite"
    assert said["Adam (small gradients)"]["bfloat16", "forward"] == ops.RUNS


@old
def test_what_the_old_torch_says():
    said = ops.unfold(torches.call(OLD, "cases.cpu_half.ops:survey"))
    assert '"baddbmm"' in said["baddbmm (tiny)"]["float16", "forward"]
    assert '"addmm_impl_cpu_"' in said["baddbmm"]["float16", "forward"]
    assert said["scaled_dot_product_attention"] == everywhere(ops.ABSENT)
    assert said["mse_loss"]["float16", "forward"] == ops.RUNS
    assert "mse_backward" in said["mse_loss"]["float16", "backward"]
    assert "BFloat16" in said["mse_loss"]["bfloat16", "forward"]
    assert said["norm (large values)"]["float16", "forward"] == "wrong: not finite"


# ------------------------------------------------------------------ its history


def test_a_sign_says_how_an_op_stands():
    def sign(forward, backward):
        return scenes.sign({("float16", "forward"): forward, ("float16", "backward"): backward},
                           "float16")

    assert sign("runs", "runs") == sign("runs", "no gradient") == sign("runs", "absent") == "✓"
    assert sign("runs", "RuntimeError: no") == "→"
    assert sign("TypeError: no", "TypeError: no") == "✗"
    assert sign("absent", "absent") == "–"
    assert sign("wrong: not finite", "RuntimeError: no") == sign("runs", "wrong: not finite") == "≠"
    assert set(scenes.SIGNS) == set("✓→≠✗–")


def test_since_when_an_op_runs():
    history = [{"torch": version} for version in ("1.13.0a0", "2.9.1", "2.13.0")]

    def since(*said):
        return scenes.since(said, history)

    assert since("runs", "runs", "runs") == "1.13"
    assert since("E: no", "runs", "runs") == "2.9"
    assert since("runs", "E: no", "runs") == "2.13"
    assert since("runs", "wrong: not finite", "runs") == "2.13"
    assert since("runs", "runs", "E: no") == "refused"
    assert since("E: no", "E: no", "wrong: relative error 3") == "wrong"
    assert since("absent", "no gradient", "no gradient") == "none"


@pytest.fixture
def recorded(monkeypatch):
    """A function that makes one survey the record of all other torches."""
    def put(rows):
        kept = {"ops": rows, "provenance": {"torch": "2.9.1+cpu", "date": "2026-01-02"}}
        monkeypatch.setattr(torches, "ids", lambda: ["torch-2.9", torches.current()])
        monkeypatch.setattr(evidence, "read_survey",
                            lambda case, name, torch_id, device="cpu": kept)
        return scenes.history()

    return put


def test_history_is_live_here_and_recorded_elsewhere(recorded):
    before, now = recorded([[op, "E: no"] for op in ops.OPS])
    assert before["label"] == "recorded 2026-01-02, torch 2.9.1"
    assert now["label"] == f"live, torch {torch.__version__.split('+')[0]}"
    assert now["ops"] == scenes.here()
    rows = scenes.signs([before, now])["float16"]
    assert rows["add"] == "✗✓" and rows["cdist (near points)"] == "✗≠"


def test_a_record_of_other_ops_is_refused_in_one_line(recorded):
    with pytest.raises(BadInput, match="^torch-2.9 was swept for another list of ops; record"):
        recorded([["add"]])


def test_the_table_of_ops_tells_when_each_came(recorded):
    table = scenes.op_table(recorded([[op, None, "E: no"] for op in ops.OPS]), "float16")
    now = scenes.short({"torch": torch.__version__})
    assert table.headers == ["op", "forward", "gradient", "2.9", now]
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == list(ops.OPS)
    assert rows["add"] == ["2.9", now, "→", "✓"]
    assert rows["argmax"] == ["2.9", "none", "→", "✓"]
    assert "live, torch" in table.caption and "recorded" in table.caption


def test_the_picture_counts_what_the_table_lists(recorded):
    picture = figures.history_picture(
        *scenes.op_history(recorded([[op, "E: no"] for op in ops.OPS])))
    rows = picture.table.rows
    assert sum(int(row[2]) for row in rows) == len(ops.OPS)
    assert sorted(op for row in rows for op in row[3].split(", ")) == sorted(
        op for name in ops.OPS for op in name.split(", "))
    runs = sum(int(row[2]) for row in rows if row[0].endswith("✓"))
    assert f"f16: ✓ runs, 0 on torch 2.9, {runs} on torch" in picture.alt
    assert all(sign in picture.table.caption for sign in scenes.SIGNS)


@new
def test_what_is_still_missing_and_still_wrong():
    groups = scenes.still_missing()
    missing = {op for ops in groups.values() for op in ops}
    assert {"fft", "inv", "svd", "cdist (small)", "ctc_loss", "quantile"} <= missing
    assert "ctc_loss" in groups["… not implemented for 'Half'"]
    # Only in bfloat16 is there no complex dtype; only in float16 is rrelu not written.
    other = {op for ops in scenes.still_missing("bfloat16").values() for op in ops}
    assert missing - other == {"rrelu"} and other - missing == {"view_as_complex"}
    wrong = scenes.still_wrong()
    assert wrong["matrix_exp"] == ("wrong: not finite",) * 2
    assert wrong["var (far from 0)"] == ("runs", "wrong: error 0.01 or more")
    assert not missing & set(wrong)


def test_the_price_of_half():
    threads = torch.get_num_threads()
    price = scenes.price(size=32, rounds=3)
    assert torch.get_num_threads() == threads
    for product in ("matmul", "matrix × vector"):
        half, brain = price[product]["float16"], price[product]["bfloat16"]
        assert half["time"] > 0 and brain["time"] > 0
        # Half has three more bits of fraction, whatever the processor.
        assert 4 < brain["error"] / half["error"] < 16
    assert scenes.pace(3.0) == "slower than float32"
    assert scenes.pace(0.3) == "faster than float32"
    assert scenes.pace(1.2) == "within a factor of 2 of float32"


@old
def test_the_old_torch_has_a_price_for_bfloat16_alone():
    price = torches.call(OLD, "cases.cpu_half.scenes:price")
    assert {product: list(dtypes) for product, dtypes in price.items()} == {
        "matmul": ["bfloat16"], "matrix × vector": ["bfloat16"],
    }


def test_needs_torch_alone():
    code = ("import sys, cases.cpu_half.case, cases.cpu_half.scenes\n"
            "found = {'IPython', 'ipywidgets', 'matplotlib', 'transformers'} & set(sys.modules)\n"
            "sys.exit(f'imported {found}' if found else 0)")
    done = subprocess.run([sys.executable, "-c", code], cwd=torches.ROOT, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
