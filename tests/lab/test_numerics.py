"""Costs and thresholds, each on a program small enough to check by hand."""

import math

import pytest
import torch
from torch import nn

from cases.lab import numerics

BF16, HALF, SINGLE = torch.bfloat16, torch.float16, torch.float32


def kinds(costs):
    return [cost["kind"] for cost in costs]


def test_the_error_is_relative_and_padding_is_left_out():
    reference = torch.tensor([[3.0, 4.0], [7.0, 7.0]])
    output = torch.tensor([[3.0, 4.5], [0.0, 0.0]])
    keep = torch.tensor([True, False])
    assert numerics.relative_error(output, reference, keep) == pytest.approx(0.1)
    assert numerics.relative_error(output, reference) > 0.8
    assert numerics.relative_error(reference, reference) == 0.0


def test_a_shorter_sequence_is_compared_over_what_it_has():
    reference = torch.ones(2, 5, 3)
    keep = torch.ones(2, 5, dtype=torch.bool)
    assert numerics.relative_error(reference[:, :4] * 1.5, reference, keep) == pytest.approx(0.5)


def test_what_has_no_error():
    ones = torch.ones(3)
    assert numerics.relative_error(torch.tensor([1, 2, 3]), ones) is None
    assert numerics.relative_error(torch.tensor([1.0, math.inf, 1.0]), ones) is None
    assert numerics.relative_error(torch.tensor([1.0, math.nan, 1.0]), ones) is None
    keep = torch.tensor([True, False, True])
    assert numerics.relative_error(torch.tensor([1.0, math.nan, 1.0]), ones, keep) == 0.0


def test_a_nested_output_counts_as_padded_with_zeros():
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    reference = torch.zeros(2, 4, 3)
    reference[0, :2], reference[1] = 1.0, 1.0
    assert numerics.relative_error(torch.nested.nested_tensor(rows), reference) == 0.0


@pytest.mark.parametrize(("number", "text"), [
    (0.00437, "0.004"), (0.0951, "0.1"), (1.23e-6, "1e-06"), (0.0, "0"), (None, "not finite"),
])
def test_one_digit_is_shown(number, text):
    assert numerics.show(number) == text


def test_one_digit_of_what_is_not_finite():
    assert numerics.one_digit(None) is None
    assert numerics.one_digit(math.inf) is None
    assert numerics.one_digit(0.00437) == 0.004


# ------------------------------------------------------------------ output


def output_kinds(output, reference=None, dtype=BF16, expected=(BF16,), error=...):
    reference = torch.ones(2, 2) if reference is None else reference
    if error is ...:
        error = numerics.relative_error(output, reference)
    return kinds(numerics.output_costs(output, error, reference, dtype, set(expected)))


def test_rounding_that_the_dtype_explains_costs_nothing():
    assert output_kinds(torch.full((2, 2), 1 + 2**-7, dtype=BF16)) == []


def test_an_error_beyond_it_costs():
    eps = torch.finfo(BF16).eps
    assert numerics.allowed_error(BF16) == numerics.ERROR_FACTOR * eps
    just, over = numerics.allowed_error(BF16) * 0.99, numerics.allowed_error(BF16) * 1.01
    output = torch.ones(2, 2, dtype=BF16)
    assert output_kinds(output, error=just) == []
    assert output_kinds(output, error=over) == ["error"]
    assert output_kinds(output.half(), dtype=HALF, expected=(HALF,), error=just) == ["error"]


def test_a_result_that_is_float32s_own_says_so():
    assert output_kinds(torch.ones(2, 2), expected=(SINGLE,)) == ["low_precision_unused"]


def test_another_dtype_than_elsewhere_costs():
    output = torch.full((2, 2), 1 + 2**-7)
    assert output_kinds(output, expected=(BF16,)) == ["output_dtype"]
    assert output_kinds(output, expected=(BF16, SINGLE)) == []
    assert output_kinds(output, expected=()) == []


def test_another_shape_costs():
    output = torch.full((2, 1), 1 + 2**-7, dtype=BF16)
    assert output_kinds(output) == ["output_shape"]


def test_infinities_cost():
    assert output_kinds(torch.tensor([[math.inf, 1], [1, 1]], dtype=BF16)) == ["not_finite"]


# ------------------------------------------------------------------ parameters and gradients


def test_master_weights_lost_and_memory():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    before = numerics.parameters(model)
    assert numerics.parameter_costs(before, before) == []
    model[0].to(BF16)
    costs = numerics.parameter_costs(before, numerics.parameters(model))
    assert kinds(costs) == ["master_weights"]
    assert costs[0]["text"] == "2 of 4 float32 parameters are now bfloat16"
    model.double()
    costs = numerics.parameter_costs(before, numerics.parameters(model))
    assert "memory" in kinds(costs)
    assert any("2.0 times the bytes" in cost["text"] for cost in costs)


def test_half_weights_made_float32_cost_memory_only():
    model = nn.Linear(4, 4).half()
    before = numerics.parameters(model)
    costs = numerics.parameter_costs(before, numerics.parameters(model.float()))
    assert kinds(costs) == ["memory"]


def test_gradients_that_are_not_finite():
    model = nn.Linear(2, 2)
    assert numerics.gradient_costs(model) == [], "none yet"
    model(torch.ones(1, 2)).sum().backward()
    assert numerics.gradient_costs(model) == []
    model.bias.grad[0] = math.nan
    (cost,) = numerics.gradient_costs(model)
    assert cost == {"kind": "gradients", "text": "1 of 2 gradients are not finite"}


# ------------------------------------------------------------------ training


def trained(last, lost=0.0):
    return {"losses": [2.0, last], "lost": lost}


@pytest.mark.parametrize(("ours", "expected"), [
    (trained(1.0), []),
    (trained(1.19), []),
    (trained(1.21), ["no_learning"]),
    (trained(math.nan), ["no_learning"]),
    (trained(1.0, lost=0.02), []),
    (trained(1.0, lost=0.5), ["updates_lost"]),
])
def test_training_against_float32(ours, expected):
    assert kinds(numerics.training_costs(ours, trained(1.0))) == expected


def test_updates_that_float32_loses_too_are_no_cost():
    assert numerics.training_costs(trained(1.0, lost=0.3), trained(1.0, lost=0.3)) == []
