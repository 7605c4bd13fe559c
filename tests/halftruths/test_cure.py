"""The cure: which place on the odd dtype's road is changed, and that the changed line is right."""

import operator
from collections.abc import Mapping

import pytest
import torch
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


def test_each_seam_says_what_it_is():
    assert len(set(seams.SEAMS)) == len(seams.SEAMS)
    assert seams.SEAMS[0] is seams.quantised_operand  # a quantised tensor cannot be cast


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
