"""Case llama_vision: the failure, its cause, its fixes and the scenes beside it, all run here."""

import pytest
import torch

import cases
from cases.halftruths import autopsy
from cases.lab import torches
from cases.lab.case import Missing
from cases.lab.run import call, fixed_run, run, smallest_sufficient, subsets

pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(
    torches.current() != "torch-2.13", reason="verdicts are those measured on torch 2.13"
)

CASE = cases.load("llama_vision")
FIXES = [fix.name for fix in CASE.fixes]
FLOAT_INTO_HALF = "expected m1 and m2 to have the same dtype, but got: float != c10::Half"
HALF_PIXELS = "Input type (c10::Half) and bias type (float) should be the same"
HALF_TOWER = "Input type (float) and bias type (c10::Half) should be the same"

# Fix -> verdict, and what the error says or which costs there are.
VERDICTS = {
    "image_device_only": ("fails", FLOAT_INTO_HALF),
    "image_to_model_dtype": ("moves", HALF_PIXELS),
    "autocast_generate": ("runs", []),
    "safe_forward": ("runs", []),
    "upcast_softmax": ("fails", FLOAT_INTO_HALF),
    "empty_cache": ("fails", FLOAT_INTO_HALF),
    "whole_model_float32": ("costs", ["memory"]),
    "keep_layernorm_float32": ("moves", HALF_TOWER),
    "vision_tower_half": ("moves", HALF_TOWER),
    "cast_image_features": ("runs", []),
}


def happened(outcome):
    """The error's text, or the kinds of cost."""
    return outcome.error["message"] if outcome.error else [c["kind"] for c in outcome.costs]


def test_names_and_defaults_are_those_of_the_brief():
    assert {factor.name: set(factor.values) for factor in CASE.factors} == {
        "dtype": {"float16", "bfloat16"},
        "phase": {"forward", "generate"},
        "attention": {"eager", "sdpa"},
    }
    assert CASE.setting()["dtype"] == "float16" and CASE.setting()["phase"] == "generate"
    assert set(FIXES) == set(VERDICTS)


@pytest.mark.parametrize("phase", ["generate", "forward"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_fails_at_the_first_q_proj_and_leads_back_to_the_joined_sequence(phase, attention):
    outcome = run(CASE, {"phase": phase, "attention": attention})
    assert outcome.verdict == "fails"
    assert outcome.error == {"type": CASE.headline.type, "message": CASE.headline.text}
    where = outcome.where
    assert (where["module"], where["op"]) == ("model.layers.0.self_attn.q_proj", "linear")
    assert [(o["name"], o["dtype"]) for o in where["operands"]] == [
        ("input", "float32"), ("weight", "float16")
    ]
    origin = where["origin"]
    assert (origin["file"], origin["name"], origin["dtype"], origin["how"]) == (
        "model.py", "model.projector.2.weight", "float32", "parameter"
    )
    line = CASE.model_source.splitlines()[origin["line"] - 1]
    assert line.strip() == origin["code"] and line.strip().startswith("features = model.projector(")


def test_the_failing_layer_is_a_linear_without_bias_of_transformers_own_llama():
    from transformers import LlamaForCausalLM

    model = fixed_run(CASE, CASE.setting(), (), "cpu")[0].model
    assert isinstance(model, LlamaForCausalLM)
    assert model.model.layers[0].self_attn.q_proj.bias is None
    assert {p.dtype for p in model.model.parameters()} == {torch.float16}
    vision = [*model.vision_tower.parameters(), *model.projector.parameters()]
    assert {p.dtype for p in vision} == {torch.float32}


def test_text_alone_runs():
    text = CASE.prepare({**CASE.setting(), "image": "none"}, "cpu", torch.float16)
    assert call(text).isfinite().all()


# generate() hands its logits out in float32 whatever the model's dtype.
@pytest.mark.parametrize("phase, shape, dtype", [
    ("generate", (1, 256), torch.float32), ("forward", (1, 24, 256), torch.float16),
], ids=["generate", "forward"])
def test_the_output_is_one_tensor_of_logits(phase, shape, dtype):
    seam = CASE.pick(["cast_image_features"])
    output = call(fixed_run(CASE, CASE.setting({"phase": phase}), seam, "cpu")[0])
    assert (output.shape, output.dtype) == (shape, dtype)


@pytest.mark.parametrize("name", FIXES)
def test_each_fix_alone(name):
    outcome = run(CASE, {}, [name])
    assert (outcome.verdict, happened(outcome)) == VERDICTS[name]


@pytest.mark.parametrize("name", FIXES)
@pytest.mark.parametrize("setting", [
    {"phase": "forward"}, {"attention": "sdpa"}, {"dtype": "bfloat16"},
], ids=str)
def test_the_verdict_does_not_depend_on_the_factors(name, setting):
    assert run(CASE, setting, [name]).verdict == VERDICTS[name][0]


def test_float32_for_the_whole_model_also_changes_the_output_of_a_forward():
    outcome = run(CASE, {"phase": "forward"}, ["whole_model_float32"])
    assert happened(outcome) == ["memory", "output_dtype"]
    # The weights were rounded when they were loaded in half: what was lost stays lost.
    assert outcome.relative_error > 1e-5


def test_half_pixels_need_a_half_tower():
    moved = run(CASE, {}, ["image_to_model_dtype"])
    assert moved.where["module"] == "vision_tower.0" and moved.where["op"] == "conv2d"
    # The convolution was given half pixels; its own weight is what stayed float32.
    assert (moved.where["origin"]["name"], moved.where["origin"]["dtype"]) == ("weight", "float32")
    both = run(CASE, {}, ["image_to_model_dtype", "vision_tower_half"])
    assert both.status == "ran" and happened(both) == ["master_weights"]


def test_smallest_sufficient_sets():
    found = smallest_sufficient(lambda names: run(CASE, {}, names), FIXES)
    assert {frozenset(names) for names, _ in found} == {
        frozenset({"autocast_generate"}),
        frozenset({"safe_forward"}),
        frozenset({"whole_model_float32"}),
        frozenset({"cast_image_features"}),
        frozenset({"image_to_model_dtype", "keep_layernorm_float32"}),
        frozenset({"image_to_model_dtype", "vision_tower_half"}),
    }


def test_every_pair_of_fixes_ends_in_a_dtype_error_or_in_finite_logits():
    for names in subsets(FIXES, 2):
        outcome = run(CASE, {}, names)
        if outcome.status == "raised":
            assert outcome.error["message"] in {FLOAT_INTO_HALF, HALF_PIXELS, HALF_TOWER}, names
        else:
            assert outcome.relative_error is not None, names


def test_the_template_keeps_nothing_and_keeping_the_norms_would_raise_by_itself():
    from cases.llama_vision.scenes import norms_in_float32

    template = fixed_run(CASE, CASE.setting(), CASE.pick(["keep_layernorm_float32"]), "cpu")[0]
    assert {p.dtype for p in template.model.parameters()} == {torch.float16}
    scene = norms_in_float32()
    assert scene["nn.LayerNorm"] == 0 and scene["RMSNorm"] == 5
    assert str(scene["error"]) == FLOAT_INTO_HALF
    assert autopsy(scene["error"]).where["module"] == "model.layers.0.self_attn.q_proj"


def test_fixes_are_short_and_say_what_they_do():
    for fix in CASE.fixes:
        assert fix.help.endswith("."), fix.name
        assert len(fix.source.splitlines()) <= 14, fix.name
    program = CASE.model_source.split("\nif __name__")[0]  # without its start as a script
    assert len(program.rstrip().splitlines()) <= 65


def test_the_picture_is_a_real_one_and_is_read_into_float32():
    from cases.llama_vision.case import PICTURE
    from cases.llama_vision.model import load_image

    pixels = load_image(PICTURE)
    assert pixels.shape == (1, 3, 32, 32) and pixels.dtype == torch.float32
    assert pixels.std() > 0.1 and torch.equal(pixels, load_image(PICTURE))


def test_the_newer_library_casts_pixels_and_its_mixed_model_fails_at_the_far_end():
    from cases.llama_vision.scenes import newer_library

    scene = newer_library()
    assert scene["all_half"].dtype == torch.float16 and scene["all_half"].isfinite().all()
    error = scene["language_half"]
    assert str(error) == "expected m1 and m2 to have the same dtype, but got: c10::Half != float"
    assert autopsy(error).where["module"] == "lm_head"


def test_bytes_of_7b():
    from cases.llama_vision.scenes import QUOTED, llama2_bytes

    counted = llama2_bytes()
    assert counted["parameters"] == 6_738_415_616
    for dtype, size in (("float32", 4), ("float16", 2)):
        assert counted[dtype] == size * counted["parameters"]
        assert counted[dtype] / 1e9 < QUOTED[dtype]


def test_words_tell_the_layer_on_the_cpu():
    from cases.llama_vision.scenes import words

    said = words()
    assert "m1 and m2" in said["matmul"] and "m1 and m2" in said["Linear without bias"]
    assert "mat1 and mat2" in said["Linear with bias"]
    assert "mat1" not in said["matmul"] + said["Linear without bias"]
    assert "m1 and m2" in said["the same, input transposed"]


def test_only_the_dtype_of_the_sequence_decides():
    from cases.llama_vision.scenes import sequences

    for dtype in ("float16", "bfloat16"):
        rows = sequences(CASE.setting({"dtype": dtype}))
        assert [row[1] for row in rows] == [dtype, "float32", "float32", dtype]
        assert [row[2].startswith("runs") for row in rows] == [True, False, False, True]


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch 1.13 is not live here")
def test_on_torch_1_13_the_words_differ_and_half_has_no_kernels():
    try:
        outcome = torches.ask("torch-1.13", CASE.name, CASE.setting(), [])
    except Missing as missing:
        pytest.skip(str(missing))
    assert outcome.error["message"] == "expected scalar type Float but found Half"
    assert outcome.where["module"] == "model.layers.0.self_attn.q_proj"
    seam = torches.ask("torch-1.13", CASE.name, CASE.setting(), ["cast_image_features"])
    assert seam.verdict == "moves" and "not implemented for 'Half'" in seam.error["message"]
    sdpa = torches.ask("torch-1.13", CASE.name, CASE.setting({"attention": "sdpa"}), [])
    assert sdpa.error["type"] == "ImportError"
