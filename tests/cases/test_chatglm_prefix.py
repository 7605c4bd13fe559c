"""Case chatglm_prefix as measured on torch 2.13: every expectation here is checked by a run."""

import pytest
import torch

from cases import load
from cases.chatglm_prefix import scenes
from cases.halftruths.base import BadInput
from cases.lab import torches
from cases.lab.run import call, prepare, run, subsets
from cases.notebook.exercise import check

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="verdicts are those of torch 2.13"
)
CASE = load("chatglm_prefix")
NAMES = [fix.name for fix in CASE.fixes]
HALF_FLOAT = "expected scalar type Half but found Float"


def kinds(outcome):
    return {item["kind"] for item in outcome.costs}


def test_factors_and_fixes_are_those_of_the_brief():
    assert {factor.name: factor.values for factor in CASE.factors} == {
        "phase": ("train", "validate", "generate"),
        "dtype": ("float16", "bfloat16"),
        "float32_part": ("prefix", "norm", "lm_head", "input"),
        "attention": ("baddbmm", "matmul", "sdpa"),
    }
    assert NAMES == [
        "whole_model_float32", "parameters_half", "autocast_float16", "gradients_half",
        "checkpoint_half", "validate_float_then_half", "cast_prefix_output", "base_bfloat16",
    ]
    assert all(fix.help for fix in CASE.fixes)


def test_the_program_fails_with_the_words_of_the_report():
    outcome = run(CASE)
    assert (outcome.status, outcome.verdict) == ("raised", "fails")
    assert outcome.error == {"type": "RuntimeError", "message": HALF_FLOAT}
    assert CASE.headline.text == HALF_FLOAT and "torch-2.13" in CASE.headline.torches


@pytest.mark.parametrize("phase", ["train", "validate", "generate"])
def test_where_is_the_scores_of_the_first_layer_and_comes_in_by_the_prefix(phase):
    where = run(CASE, {"phase": phase}, training=False).where
    assert (where["module"], where["op"]) == ("layers.0", "baddbmm")
    assert [(o["name"], o["dtype"]) for o in where["operands"]] == [
        ("zeros", "float16"), ("q", "float16"), ("k", "float32"),
    ]
    origin = where["origin"]
    assert (origin["file"], origin["name"], origin["dtype"], origin["how"]) == (
        "model.py", "embedding.weight", "float32", "parameter")
    lines = CASE.model_source.splitlines()
    assert lines[origin["line"] - 1].strip() == origin["code"]
    assert origin["code"].startswith("return self.embedding.weight")


@pytest.mark.parametrize(
    "setting, message, module, op",
    [
        ({"attention": "matmul"}, HALF_FLOAT, "layers.0", "matmul"),
        (
            {"attention": "sdpa"},
            "Expected query, key, and value to have the same dtype, but got query.dtype: c10::Half "
            "key.dtype: float",
            "layers.0",
            "scaled_dot_product_attention",
        ),
        (
            {"float32_part": "norm"},
            "expected m1 and m2 to have the same dtype, but got: float != c10::Half",
            "lm_head",
            "linear",
        ),
        (
            {"float32_part": "lm_head"},
            "expected m1 and m2 to have the same dtype, but got: c10::Half != float",
            "lm_head",
            "linear",
        ),
        (
            {"float32_part": "input"},
            "mat1 and mat2 must have the same dtype, but got Float and Half",
            "layers.0.query_key_value",
            "linear",
        ),
        ({"dtype": "bfloat16"}, "expected scalar type BFloat16 but found Float", "layers.0",
         "baddbmm"),
    ],
)
def test_one_mistake_has_many_words(setting, message, module, op):
    outcome = run(CASE, setting, training=False)
    assert outcome.error["message"].startswith(message)
    assert (outcome.where["module"], outcome.where["op"]) == (module, op)
    origin = outcome.where["origin"]
    if module == "lm_head":  # its own weight, which no line of the traceback made
        assert (origin["name"], origin["how"]) == ("weight", "parameter")
    else:
        assert origin["file"] == "model.py"


def test_without_a_float32_part_nothing_fails():
    for phase in ("train", "validate", "generate"):
        control = CASE.controls(CASE.setting({"phase": phase}))[0]
        assert call(prepare(CASE, control)).dtype is torch.float16


@pytest.mark.parametrize(
    "name, verdict, costs",
    [
        ("whole_model_float32", "costs", {"memory", "output_dtype"}),
        ("parameters_half", "costs", {"master_weights", "no_learning"}),
        ("autocast_float16", "runs", set()),
        ("gradients_half", "fails", set()),
        ("checkpoint_half", "fails", set()),
        ("validate_float_then_half", "costs", {"master_weights", "no_learning"}),
        ("cast_prefix_output", "runs", set()),
        ("base_bfloat16", "moves", set()),
    ],
)
def test_each_fix_alone_in_training(name, verdict, costs):
    outcome = run(CASE, {}, [name])
    assert (outcome.verdict, kinds(outcome)) == (verdict, costs), outcome.said


@pytest.mark.parametrize("phase", ["validate", "generate"])
@pytest.mark.parametrize(
    "name, verdict, costs",
    [
        ("whole_model_float32", "costs", {"memory", "output_dtype"}),
        ("parameters_half", "costs", {"master_weights"}),
        ("autocast_float16", "runs", set()),
        ("gradients_half", "fails", set()),
        ("checkpoint_half", "fails", set()),
        ("validate_float_then_half", "costs", {"master_weights", "output_dtype"}),
        ("cast_prefix_output", "runs", set()),
        ("base_bfloat16", "moves", set()),
    ],
)
def test_each_fix_alone_in_use(phase, name, verdict, costs):
    outcome = run(CASE, {"phase": phase}, [name])
    assert (outcome.verdict, kinds(outcome)) == (verdict, costs), outcome.said


@pytest.mark.parametrize(
    "name, verdict",
    [
        ("parameters_half", "moves"),  # the loop leaves the rotary buffers in bfloat16
        ("autocast_float16", "costs"),  # the output is float16
        ("validate_float_then_half", "costs"),
        ("cast_prefix_output", "runs"),
        ("base_bfloat16", "fails"),
    ],
)
def test_what_says_half_is_no_friend_of_bfloat16(name, verdict):
    outcome = run(CASE, {"dtype": "bfloat16"}, [name])
    assert outcome.verdict == verdict, outcome.said


@pytest.mark.parametrize("part", ["norm", "lm_head", "input"])
def test_the_seam_of_the_prefix_is_not_every_seam(part):
    assert run(CASE, {"float32_part": part}, ["cast_prefix_output"]).verdict == "fails"
    assert run(CASE, {"float32_part": part}, ["autocast_float16"]).verdict == "runs"


@pytest.mark.parametrize("cure", ["cast_prefix_output", "autocast_float16", "whole_model_float32"])
def test_half_gradients_are_refused_by_float32_parameters(cure):
    outcome = run(CASE, {}, ["gradients_half", cure])
    assert outcome.verdict == "moves"
    assert outcome.error["message"].startswith("attempting to assign a gradient")


def test_half_gradients_do_nothing_to_half_parameters():
    alone, both = (run(CASE, {}, fixes) for fixes in (
        ["parameters_half"], ["parameters_half", "gradients_half"]))
    assert alone.said == both.said


def test_a_half_checkpoint_leaves_the_prefix_float32():
    outcome = run(CASE, {}, ["checkpoint_half"])
    key = outcome.where["operands"][2]
    assert (key["name"], key["dtype"]) == ("k", "float32")
    assert run(CASE, {}, ["checkpoint_half", "cast_prefix_output"]).verdict == "runs"


def test_the_cast_at_the_seam_learns_as_float32_does():
    from cases.lab.run import fixed_run, reference_training, train

    setting = CASE.setting({})
    reference = reference_training(CASE, setting, "cpu")
    ours = train(fixed_run(CASE, setting, CASE.pick(["cast_prefix_output"]), "cpu")[0])
    assert reference["losses"][0] - reference["losses"][-1] > 0.5
    assert abs(ours["losses"][-1] - reference["losses"][-1]) < 0.01
    assert ours["lost"] == reference["lost"] == 0


@pytest.mark.parametrize("phase", ["train", "validate", "generate"])
@pytest.mark.parametrize("attention", ["baddbmm", "matmul", "sdpa"])
def test_the_cast_at_the_seam_cures_every_attention(phase, attention):
    outcome = run(CASE, {"phase": phase, "attention": attention}, ["cast_prefix_output"],
                  training=False)
    assert outcome.verdict == "runs"


def test_every_set_of_up_to_three_fixes_can_be_run():
    for phase in ("train", "generate"):
        for subset in subsets(NAMES, 3):
            assert run(CASE, {"phase": phase}, subset, training=False).verdict


def test_bad_input_is_refused():
    for arguments in (({"phase": "test"},), ({"size": "1"},), ({}, ["half"])):
        with pytest.raises(BadInput):
            run(CASE, *arguments)
    with pytest.raises(BadInput):
        run(CASE, {"float32_part": "none"})


def test_an_exercise_is_judged_two_sidedly():
    assert check(CASE, CASE.pick(["cast_prefix_output"])[0].apply).passed
    assert not check(CASE, CASE.pick(["parameters_half"])[0].apply).passed
    assert not check(CASE, lambda run: None).passed


def test_scene_words_depend_on_the_size():
    for size, message in scenes.words_by_size():
        words = HALF_FLOAT if size < 400 else "expected scalar type Float but found Half"
        assert message == f"RuntimeError: {words}"


def test_scene_transformers_glm_makes_the_same_mistake_in_other_words():
    pytest.importorskip("transformers")
    said = scenes.glm_messages()
    for attention, prefix in (("eager", HALF_FLOAT), ("sdpa", "Expected query, key, and value")):
        assert said["none", attention] is None
        assert prefix in said["prefix", attention]
        assert "m1 and m2 to have the same dtype, but got: c10::Half != float" in (
            said["lm_head", attention])
        assert "m1 and m2 to have the same dtype, but got: float != c10::Half" in (
            said["norm", attention])


def test_scene_a_scaler_refuses_half_weights():
    assert scenes.unscale() == {
        "float16": "ValueError: Attempting to unscale FP16 gradients.", "float32": None
    }


def test_scene_adam_divides_by_zero_in_float16():
    found = scenes.adam_on_half()
    vanished, finite = found["float16"]
    assert vanished > 0.5 and finite < 0.5
    assert found["bfloat16"] == found["float32"] == (0.0, 1.0)
    assert scenes.adam_on_half(eps=1e-4)["float16"] == (vanished, 1.0)


def test_scene_small_updates_vanish_in_half():
    found = scenes.lost_updates()
    assert found["float16"][0] > 0.9 and found["bfloat16"][0] > 0.99
    assert found["float32"][0] == 0 and abs(found["float32"][1] - 1) < 0.01


def test_scene_the_loop_over_parameters_misses_buffers():
    found = scenes.missed_buffers()
    parameters, buffers, message = found["loop over named_parameters"]
    assert (parameters, buffers) == (["float16"], ["float32"])
    assert "expected scalar type Float but found Half" in message
    assert found["model.half()"] == (["float16"], ["float16"], None)


def test_scene_float_then_half_costs_the_low_bits_of_float32_weights_only():
    found = scenes.bits_lost()
    assert found["float16"] == (0.0, 0.0)
    share, most = found["float32"]
    assert share > 0.9 and 0 < most <= 2**-11
    assert found["optimizer"] == ("float16", "float32")


def test_scene_a_half_checkpoint_is_copied_into_the_dtype_that_is_there():
    found = scenes.half_checkpoint()
    assert found["copy"][0] == "float32" and found["copy"][1] > 0.9
    assert found["assign=True"][0] == "float16"


def test_on_torch_1_13_the_cpu_has_no_half_and_bfloat16_shows_the_mismatch():
    if not torches.is_live("torch-1.13"):
        pytest.skip("torch 1.13 is not live here")

    def ask(setting, fixes=()):
        return torches.ask("torch-1.13", CASE.name, CASE.setting(setting), fixes)

    assert '"addmm_impl_cpu_" not implemented' in ask({}).error["message"]
    assert "torch-1.13" not in CASE.headline.torches
    bf16 = {"dtype": "bfloat16"}
    assert ask(bf16).error["message"] == "expected scalar type BFloat16 but found Float"
    assert ask(bf16, ["cast_prefix_output"]).verdict == "runs"
    assert ask({"attention": "sdpa"}).error["type"] == "AttributeError"
