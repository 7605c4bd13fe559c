"""The rows on dtypes and numbers: their verdicts here, and that each can come out otherwise."""

import pytest
import torch
from advice_rows import effects, verdict

from cases.advice import arithmetic
from cases.lab.advice import COLLECTION

VERDICTS = {"B1": "holds", "B2": "holds", "B16": "holds", "B18": "holds here",
            "C2": "holds here", "C3": "holds here", "C22": "holds here"}


@pytest.mark.parametrize("id", VERDICTS)
def test_verdict_here(id):
    assert verdict(id) == VERDICTS[id]


def test_every_row_of_the_module_is_tried():
    own = [item.id for item in COLLECTION.every if item.check.__module__ == arithmetic.__name__]
    assert sorted(own) == sorted(VERDICTS)


def test_a_name_that_means_another_dtype_shows(monkeypatch):
    def complain(both):
        raise RuntimeError("tensor 0 is c10::Half")

    monkeypatch.setattr(torch.linalg, "multi_dot", complain)
    assert effects("B1")["multi_dot"] == "fails"


def test_a_product_that_promotes_shows(monkeypatch):
    monkeypatch.setitem(arithmetic.PRODUCTS, "mm", torch.mul)
    assert effects("B2")["mm"] == "fails"


def test_tables_that_are_right_in_half_need_no_cure(monkeypatch):
    exact = arithmetic.rotary_table
    monkeypatch.setattr(arithmetic, "rotary_table", lambda last, inner, dtype, device:
                        exact(last, torch.float64, dtype, device))
    found = effects("B16")
    assert found["float16, to position 4096"] == "idle"
    assert found["a product under autocast, bfloat16, to position 4096"] == "holds"


def test_tables_in_float32_that_are_wrong_show(monkeypatch):
    monkeypatch.setattr(arithmetic, "rotary", lambda angles: angles.half().float())
    assert effects("B16")["float16, to position 32768"] != "holds"


def test_a_softmax_that_rounds_inside_shows(monkeypatch):
    monkeypatch.setattr(arithmetic, "in_half",
                        lambda scores: (scores.exp() / scores.exp().sum(-1, keepdim=True)) * 1.01)
    assert effects("B18")["float16 scores"] == "holds"


def test_scores_that_stay_below_65504_leave_nothing_to_cure(monkeypatch):
    monkeypatch.setattr(arithmetic, "not_finite", lambda result: ())
    assert effects("B18")["float16 scores past 65504"] == "idle"


def test_an_operation_that_does_not_promote_shows(monkeypatch):
    monkeypatch.setattr(torch, "mul", lambda half, other: half)
    assert effects("C2")["float32: with a tensor"] == "fails"


def test_losses_that_promote_show(monkeypatch):
    monkeypatch.setattr(arithmetic, "LOSSES", {"by hand": lambda a, b: ((a - b) ** 2).mean()})
    assert effects("C3") == {"by hand": "holds", "by hand, backward": "holds"}


def test_speed_and_range_are_measured(monkeypatch):
    half_is_slow = {True: 2.0, False: 1.0}
    monkeypatch.setattr(arithmetic, "seconds", lambda work, values, *rest, **options:
                        half_is_slow[values.dtype is torch.float16])
    slow = effects("C22")
    half_is_slow[True] = 0.5
    fast = effects("C22")
    for scene in ("fastest: a product of matrices", "fastest: a sum of large tensors"):
        assert (slow[scene], fast[scene]) == ("fails", "holds")
    monkeypatch.setattr(arithmetic, "largest", lambda function, values: 1.0)
    assert effects("C22")["overflow: squares"] == "fails"
