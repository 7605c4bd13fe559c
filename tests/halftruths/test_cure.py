"""The cure: which place on the odd dtype's road is changed, and that the changed line is right."""

import operator
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from test_autopsies import run
from torch import nn

from cases import halftruths
from cases.halftruths.exceptions import seams
from cases.halftruths.exceptions.cure import Cure


def cured(function, *args):
    """The cure's line of what a function raises, and the Autopsy."""
    with pytest.raises(RuntimeError) as caught:
        function(*args)
    found = halftruths.autopsy(caught.value)
    return found.cure["code"].strip(), found


def test_a_cure_keeps_its_place_at_another_price():
    cure = Cure("train.py:3", "x = x.float()")
    assert cure.at_the_price_of("a copy") == Cure("train.py:3", "x = x.float()", "a copy")
    assert cure.costs == ""


def made_without_a_dtype(model):
    x = torch.ones(2, 4)
    return model(x)


def made_with_a_dtype(model):
    return model(torch.ones(2, 4, dtype=torch.float32))


def cast_by_hand(model):
    x = torch.ones(2, 4, dtype=torch.float16).float()
    return model(x)


@pytest.mark.parametrize("scene, code, costs", [
    (made_without_a_dtype, "x = torch.ones(2, 4, dtype=torch.float16)", "its numbers have"),
    (made_with_a_dtype, "return model(torch.ones(2, 4, dtype=torch.float16))", "its numbers have"),
    (cast_by_hand, "x = torch.ones(2, 4, dtype=torch.float16).to(torch.float16)",
     "a copy, and one rounding"),
])
def test_the_seam_and_its_price(scene, code, costs):
    line, found = cured(scene, nn.Linear(4, 4).half())
    assert line == code and found.sure
    assert found.cure["costs"].startswith(costs)


def test_a_complex_result_is_not_cast_back():
    """A cast to a real dtype drops the imaginary part without an error."""
    def turned(q):
        return torch.view_as_complex(q)

    line, found = cured(turned, torch.ones(3, 2, dtype=torch.bfloat16))
    assert line == "return torch.view_as_complex(q.float())" and found.sure
    q = torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16)
    assert torch.view_as_complex(q.float())[0] == 1 + 2j


# A script of tests/halftruths/autopsies in which a seam is the first that answers, and its code.
# That the code cures is tried there.
ANSWERS = {
    "creation_without_a_dtype": ("cat_out_token_buffer",
                                 "buffer = torch.empty_like(tokens, dtype=torch.float32)"),
    "cast_of_the_whole": ("eigh_bfloat16_covariance",
                          "return torch.relu(images @ weight).to(torch.float32)"),
    "result_of_an_operator": ("beam_index_true_division",
                              "beam, token = (flat / vocab).to(torch.int64), flat % vocab"),
    "result_of_a_layer": ("tied_head_made_float32", "x = self.embed(ids).to(torch.bfloat16)"),
    "parameters_read_at_the_line": (
        "nbeats_basis_parameter_double", "return back @ self.backcast.to(torch.float32), "
                                         "fore @ self.forecast.to(torch.float32)"),
    "cast_in_code_that_runs": ("cdist_half_gallery", "gallery = gallery.to(torch.float32)"),
    "handed_over": ("autocast_switched_off_inside", "x = self.inner(x).to(torch.float32)"),
    "handed_on_in_the_same_line": (
        "argument_made_in_the_call", "print(probe(torch.ones(3, 6, dtype=torch.float32)).shape)"),
    "creation_with_a_dtype": ("kv_cache_index_put_half",
                              "self.keys = torch.zeros(slots, dim, dtype=torch.float32)"),
    "operand_at_the_line": ("compressed_gradient_write_back",
                            "parameter.grad = average.to(torch.float32)"),
    "cast_in_code_that_is_over": ("prehook_casts_input",
                                  "return tuple(arg.to(torch.float32) for arg in args)"),
}


def answering(monkeypatch):
    """A list that gets the name of each seam that answers."""
    answered = []

    def watched(seam):
        def asked(road):
            found = seam(road)
            answered.extend([seam.__name__] if found else [])
            return found
        return asked

    monkeypatch.setattr(seams, "SEAMS", tuple(map(watched, seams.SEAMS)))
    return answered


@pytest.mark.parametrize("seam", ANSWERS)
def test_each_seam_answers(seam, monkeypatch):
    script, code = ANSWERS[seam]
    path = Path(__file__).parent / "autopsies" / f"{script}.py"
    error, answered = run(path, path.read_text(encoding="utf-8")), answering(monkeypatch)
    cure = halftruths.autopsy(error).cure
    assert answered == [seam]
    assert cure["code"].split("  #")[0].strip() == code


def quantised_and_handed_on(model):
    x = torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 0, torch.qint8)
    return model(x)


def test_a_quantised_tensor_is_made_plain_where_it_is_last_handed_on(monkeypatch):
    answered = answering(monkeypatch)
    line, found = cured(quantised_and_handed_on, nn.Linear(4, 4))
    assert (line, answered) == ("return model(x.dequantize())", ["quantised_operand"])
    assert found.sure and found.cure["costs"] == "a copy in float32; nothing is rounded"
    line, found = cured(quantised_and_handed_on, nn.Linear(4, 4).half())
    assert line == "return model(x.dequantize().to(torch.float16))"
    assert found.cure["costs"].startswith("a copy, and one rounding to float16")


def test_every_seam_is_tried_here():
    assert {seam.__name__ for seam in seams.SEAMS} == {*ANSWERS, "quantised_operand"}
    assert seams.SEAMS[0] is seams.quantised_operand  # a quantised tensor cannot be cast


def cast_by_a_function(model):
    x = torch.asarray([1.0, 2.0, 3.0, 4.0], dtype=torch.float16)
    return model(x)


def cast_by_a_method_of_the_class(model):
    x = torch.Tensor.double(torch.ones(2, 4))
    return model(x)


def cast_twice(model):
    x = torch.ones(2, 4).to(torch.float64).abs().to(torch.float64)
    return model(x)


@pytest.mark.parametrize("scene, code", [
    (cast_by_a_function, "x = torch.asarray([1.0, 2.0, 3.0, 4.0], dtype=torch.float32)"),
    (cast_by_a_method_of_the_class, "x = torch.Tensor.double(torch.ones(2, 4)).to(torch.float32)"),
    (cast_twice, "x = torch.ones(2, 4).to(torch.float64).abs().to(torch.float32)"),
])
def test_what_is_cast_stands_before_the_dot_or_not(scene, code):
    """torch.to(torch.float32) was once the cure, for sure."""
    line, found = cured(scene, nn.Linear(4, 4))
    assert line == code and found.sure


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)


def unpacked(model, rows):
    return model(**{"x": rows})


def unpacked_from_a_list(model, rows):
    kept = [rows]
    return model(*kept)


@pytest.mark.parametrize("scene", [unpacked, unpacked_from_a_list])
def test_the_result_of_the_call_that_raised_is_not_cast(scene):
    """There is none. Where the call does not name the operand, the cast comes further in."""
    code, found = cured(scene, Wrapped().half(), torch.ones(2, 4))
    assert code == "return self.body(x.to(torch.float16))" and found.sure


# ------------------------------------------------------------------ a likely cure is no sure one


class Sample(Mapping):
    """Its entries come from code of its own, which is not run."""

    def __getitem__(self, name):
        return {"mask": torch.ones(2, 4)}[name]

    def __iter__(self):
        return iter(("mask",))

    def __len__(self):
        return 1


def from_one_side_of_a_try(model, sample):
    try:
        mask = sample["mask"]
    except KeyError:
        mask = torch.ones(2, 4)
    return model(mask)


pick = operator.itemgetter("mask")


def from_one_side_of_a_line(model, sample):
    mask = pick(sample) if "mask" in sample else torch.ones(2, 4)
    return model(mask)


@pytest.mark.parametrize("scene, asks", [
    (from_one_side_of_a_try, "`mask` is bound in a branch before line"),
    (from_one_side_of_a_line, "may take either branch"),
])
def test_a_side_of_which_nothing_is_known_may_be_what_was_run(scene, asks):
    """It was, here: the other side's cure changes nothing."""
    code, found = cured(scene, Wrapped().half(), Sample())
    assert "torch.ones(2, 4, dtype=torch.float16)" in code
    assert not found.sure and any(asks in question for question in found.asks)


def spread(model, adjacency):
    return adjacency @ model(torch.ones(4, 4, dtype=torch.float16))


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_bsr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_half_may_have_no_kernel_for_a_compressed_tensor(layout):
    adjacency = torch.eye(4)
    adjacency = adjacency.to_sparse_csr() if layout == "sparse_csr" else \
        adjacency.to_sparse_bsr((2, 2))
    model = Wrapped().half()
    code, found = cured(spread, model, adjacency)
    assert not found.sure
    assert any(f"a kernel for {layout} tensors in float16?" in asks for asks in found.asks)
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        spread(model, adjacency.half())


def half_beside_one(signal):
    return signal @ torch.ones(4, 2, dtype=torch.float16)


def test_one_tensor_in_sight_is_no_majority():
    _, found = cured(half_beside_one, torch.ones(3, 4))
    assert not found.sure and found.asks[0].startswith("Which dtype is meant at this line: float32")


def test_a_layer_of_two_dtypes_disagrees_once_more_after_the_cure():
    model = Wrapped()
    model.body.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.float16))
    code, found = cured(made_without_a_dtype, model)
    assert code == "x = torch.ones(2, 4, dtype=torch.float16)" and not found.sure
    assert found.asks == ["Is `bias` meant to stay float32? With `input` cast alone, it is the "
                          "next to disagree."]
    with pytest.raises(RuntimeError, match="same dtype"):
        model(torch.ones(2, 4, dtype=torch.float16))
