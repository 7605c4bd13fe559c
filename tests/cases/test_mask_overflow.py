"""The mask that overflows: what is wrong though nothing is raised, and what really cures it."""

import pytest
import torch
import torch.nn.functional as F

import cases
from cases.lab import evidence, torches
from cases.lab.run import ask, call, fixed_run, prepare, run, steady
from cases.mask_overflow import scenes
from cases.mask_overflow.case import with_other_masked
from cases.notebook import figures
from cases.notebook.history import fixes_table

CASE = cases.load("mask_overflow")
NEW, OLD = torches.main_id(), "torch-1.13"
NAN, GRADIENTS, LEAK = "not_finite", "gradients", "leak"
LOW_BF16 = {"dtype": "bfloat16", "constant": "min"}  # fails on every torch
LARGE = {"scores": "large", "padding": "right"}

new = pytest.mark.skipif(torches.current() != NEW, reason=f"these are about {NEW}")
old = pytest.mark.skipif(not torches.is_live(OLD), reason=f"{OLD} is not live here")


def wrong(fixes=(), torch_id=None, **setting):
    """The kinds of wrong numbers; "raised" if it did not run."""
    outcome = ask(CASE, setting, fixes, torch_id=torch_id)
    if outcome.status == "raised":
        return "raised"
    return {item["kind"] for item in outcome.costs} - {"output_dtype"}


def test_names_are_those_of_the_brief():
    assert CASE.setting() == {"constant": "-1e9", "padding": "left", "scores": "low",
                              "dtype": "float16"}
    assert [fix.name for fix in CASE.fixes] == [
        "smaller_constant", "finfo_min", "minus_inf", "clamp_scores", "softmax_float32",
        "nan_to_num", "zero_after_softmax", "scale_query_first", "sdpa_bool_mask",
        "use_bfloat16", "see_itself",
    ]
    assert all(fix.help for fix in CASE.fixes)


@new
def test_the_report_and_each_factor_alone():
    outcome = run(CASE)
    assert CASE.headline.met_by(outcome) and not CASE.cured(outcome)
    assert (outcome.status, outcome.verdict, outcome.relative_error) == ("ran", "costs", None)
    assert wrong() == {NAN}
    for control in ({"padding": "right"}, {"dtype": "bfloat16"}):
        assert wrong(**control) == set()
    assert wrong(**LOW_BF16) == {NAN}
    assert wrong(**LOW_BF16, padding="right") == set()
    assert wrong(**LARGE) == {NAN}
    assert wrong(**LARGE, dtype="bfloat16") == set()


@new
def test_float32_is_right_whatever_the_setting():
    for scores in ("low", "near 0", "large"):
        for padding in ("left", "right"):
            for constant in ("-1e9", "min"):
                setting = CASE.setting(
                    {"scores": scores, "padding": padding, "constant": constant})
                with steady():
                    program = prepare(CASE, setting, reference=True)
                    output, other = call(program), with_other_masked(program)
                assert torch.isfinite(output[program.keep]).all()
                assert torch.equal(output[program.keep], other[program.keep])


@new
def test_padding_on_the_other_side_changes_no_kept_number():
    outputs = []
    for padding in ("left", "right"):
        with steady():
            program = prepare(CASE, CASE.setting({"padding": padding}), reference=True)
            outputs.append(call(program)[program.keep])
    assert torch.allclose(*outputs, atol=1e-5)


@new
@pytest.mark.parametrize(("fix", "low", "near", "right_large"), [
    ("smaller_constant", set(), set(), {NAN}),
    ("finfo_min", {NAN}, set(), {NAN}),
    ("minus_inf", {NAN}, {NAN}, {NAN}),
    ("clamp_scores", set(), set(), {NAN}),
    ("softmax_float32", {NAN}, {NAN}, {NAN}),
    ("nan_to_num", {GRADIENTS}, {GRADIENTS}, {GRADIENTS, LEAK, "error"}),
    ("zero_after_softmax", {GRADIENTS}, {GRADIENTS}, {NAN}),
    ("scale_query_first", {NAN}, {NAN}, set()),
    ("sdpa_bool_mask", set(), set(), set()),
    ("use_bfloat16", set(), set(), set()),
    ("see_itself", set(), set(), {NAN}),
])
def test_each_fix_alone(fix, low, near, right_large):
    assert wrong([fix]) == low
    assert wrong([fix], scores="near 0") == near
    assert wrong([fix], **LARGE) == right_large


@new
def test_what_only_two_fixes_do_together():
    assert wrong(["finfo_min", "softmax_float32"]) == set()
    for one in ("scale_query_first", "see_itself"):
        assert wrong([one], scores="large") == {NAN}
    assert wrong(["scale_query_first", "see_itself"], scores="large") == set()


@new
def test_a_softmax_in_float32_of_a_sum_in_float16_is_too_late():
    def upcast_after_the_sum(run):
        run.model.weights = lambda scores, mask: (scores + mask).float().softmax(-1).half()

    outcome = run(CASE, {}, ["finfo_min", upcast_after_the_sum])
    assert {item["kind"] for item in outcome.costs} == {NAN}


@new
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scores", ["low", "near 0", "large"])
def test_finfo_min_is_right_where_it_is_set_and_not_added(scores, dtype):
    def set_it(run):
        run.model.weights = lambda scores, mask: scores.masked_fill(
            mask < 0, torch.finfo(scores.dtype).min).softmax(-1)

    outcome = run(CASE, {"scores": scores, "dtype": dtype}, ["scale_query_first", set_it])
    assert outcome.verdict == "runs"


@new
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("scores", ["low", "near 0", "large"])
def test_minus_inf_is_right_where_no_row_is_masked_whole(scores, padding, dtype):
    fixes = ["minus_inf", "see_itself", "scale_query_first"]
    assert wrong(fixes, scores=scores, padding=padding, dtype=dtype) == set()


@new
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_minus_1e4_leaks_where_scores_are_large(dtype):
    fixes = ["smaller_constant", "scale_query_first"]
    assert wrong(fixes, **LARGE, dtype=dtype) == {LEAK, "error"}
    assert wrong(fixes[1:], **LARGE, dtype=dtype) == set()
    assert wrong(fixes, padding="right", dtype=dtype) == set()


@new
def test_float32_beside_it_does_not_show_the_leak_and_the_probe_does():
    def numbers(fixes):
        return [row[1:] for row in scenes.leaks(CASE, LARGE, fixes).rows]

    leaking = numbers(["smaller_constant", "scale_query_first"])
    sound = numbers(["scale_query_first"])
    assert all(float(moved) > 0.1 for _, moved in leaking)
    assert [moved for _, moved in sound] == ["0"] * 3
    assert [error for error, _ in leaking] == [error for error, _ in sound]
    assert all(float(error) < 0.01 for error, _ in leaking[1:])


@new
def test_where_the_first_value_is_that_is_not_finite():
    rows = {row[0]: row[1:] for row in scenes.walk(CASE, {}).rows}
    assert rows["mask"][1:] == ["3 of 3 rows masked whole", "0 of 13 rows masked whole"]
    assert rows["layer 1 scores"][0] == scenes.FINE
    assert rows["layer 1 weights"][1:] == ["3 of 3 rows", "0 of 13 rows"]
    assert rows["output"][1:] == ["3 of 3 rows", "5 of 13 rows"]
    cured = [row for row in scenes.walk(CASE, {}, ["see_itself"]).rows if row[0] != "mask"]
    assert all(row[1] == scenes.FINE for row in cured)


@new
@pytest.mark.parametrize(("setting", "fixes", "found"), [
    (LOW_BF16, ["softmax_float32"], "mask"),
    (LARGE, ["finfo_min"], "scores"),
    ({}, ["zero_after_softmax"], "gradients"),
    ({}, ["see_itself"], "nowhere"),
])
def test_the_culprit(setting, fixes, found):
    assert scenes.culprit(CASE, setting, fixes) == found


@new
def test_a_diagnosis_is_judged_by_what_is_measured(capsys):
    programs = [({}, []), (LARGE, [])]
    assert scenes.diagnose(lambda: ("mask", "scores"), CASE, programs).passed
    assert not scenes.diagnose(lambda: ("scores", "mask"), CASE, programs).passed
    assert not scenes.diagnose(lambda: ("", ""), CASE, programs).passed
    assert capsys.readouterr().out.count("holds values that are not finite") == 6


@new
def test_to_watch_changes_nothing():
    for fixes in ([], ["see_itself"], ["smaller_constant", "scale_query_first"]):
        setting = CASE.setting({"scores": "large"} if len(fixes) == 2 else {})
        seen = scenes.watched(CASE, setting, fixes)[3]
        with steady():
            plain = call(fixed_run(CASE, setting, CASE.pick(fixes), "cpu")[0])
        assert torch.equal(seen.nan_to_num(7), plain.detach().nan_to_num(7))


@new
def test_the_picture_says_what_the_weights_are():
    small = ["smaller_constant", "scale_query_first"]
    picture = figures.weights_picture([
        scenes.grid("as reported", CASE, {}, layer=2),
        scenes.grid("leaks", CASE, {"scores": "large"}, small, layer=2),
        scenes.grid("cured", CASE, {}, ["see_itself"], layer=2),
    ], "weights")
    assert [row[1:] for row in picture.table.rows] == [
        ["3", "5", "0"], ["0", "0", "1"], ["0", "0", "0"]]
    assert "as reported: 3 rows of padding and 5 kept rows are NaN" in picture.alt


@new
def test_attention_to_nothing_is_zero_on_this_torch():
    x = torch.ones(1, 1, 2, 4)
    mask = torch.tensor([[False, False], [True, True]])
    assert F.scaled_dot_product_attention(x, x, x, attn_mask=mask)[0, 0].tolist() == [
        [0.0] * 4, [1.0] * 4]


@new
def test_a_fix_without_gradients_can_be_judged():
    def inference(run):
        step = run.step
        run.step = torch.no_grad()(step)

    assert run(CASE, {"padding": "right"}, [inference]).verdict == "runs"


@old
def test_the_old_torch_fails_in_bfloat16_and_has_no_kernel_for_float16():
    assert wrong(torch_id=OLD, **LOW_BF16) == {NAN}
    assert wrong(["finfo_min"], OLD, **LOW_BF16) == set()
    assert wrong(["see_itself"], OLD, **LOW_BF16) == set()
    assert wrong(["nan_to_num"], OLD, **LOW_BF16) == {GRADIENTS}
    assert wrong(["smaller_constant"], OLD, **LARGE, dtype="bfloat16") == {LEAK, "error"}
    assert wrong(["sdpa_bool_mask"], OLD, **LOW_BF16) == "raised"
    outcome = ask(CASE, {}, torch_id=OLD)
    assert outcome.error["message"] == "\"addmm_impl_cpu_\" not implemented for 'Half'"


def test_since_when_attention_with_a_boolean_mask_is_a_cure():
    """In bfloat16 a row masked whole; in float16 the overflow. From evidence, where not live."""
    def signs(**setting):
        table = fixes_table(CASE, setting)
        row = next(row for row in table.rows if row[0] == "sdpa_bool_mask")
        return dict(zip(table.headers[1:], row[1:], strict=True))

    whole, overflow = signs(**LOW_BF16), signs(**LARGE)
    assert [whole[version] for version in ("1.13", "2.0", "2.4", "2.6", "2.13")] == list("↪✗✗✓✓")
    assert [overflow[version] for version in ("2.1", "2.2", "2.3", "2.4", "2.6")] == list("✗✓✗✗✓")


def test_every_recorded_torch_agrees_with_the_headline():
    for torch_id, device in evidence.files(CASE):
        if device == "cpu":
            outcome = evidence.find(CASE, CASE.setting(), (), torch_id, device)
            assert CASE.headline.met_by(outcome) == (torch_id in CASE.headline.torches)
