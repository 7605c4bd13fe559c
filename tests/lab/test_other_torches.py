"""Outcomes of another torch in a lesson, whether it is live here or recorded."""

import pytest

import cases
from cases.lab import torches
from cases.lab.case import Headline
from cases.lab.outcome import Outcome
from cases.notebook.lesson import each_fix, expect_outcome

WANTED = Headline("RuntimeError", "not implemented for 'Half'", ())
RAISED = {"status": "raised", "verdict": "fails",
          "error": {"type": "RuntimeError", "message": "\"x\" not implemented for 'Half'"}}
RAN = {"status": "ran", "verdict": "runs", "output_dtype": "float16"}


def outcome(**what):
    return Outcome("cpu_half", {}, [], "cpu", "1.13.0a0", provenance="recorded",
                   recorded={"date": "2026-11-30"}, **what)


def test_what_is_expected_is_tabled_with_its_provenance():
    assert "recorded 2026-11-30, torch 1.13.0a0" in str(expect_outcome(outcome(**RAISED), WANTED))
    assert "✓ runs" in str(expect_outcome(outcome(**RAN)))


@pytest.mark.parametrize("what, expected", [
    (RAN, WANTED),
    (RAISED, None),
    ({**RAISED, "error": {**RAISED["error"], "type": "TypeError"}}, WANTED),
    ({**RAISED, "error": {**RAISED["error"], "message": "other words"}}, WANTED),
])
def test_anything_else_is_red(what, expected):
    with pytest.raises(AssertionError, match="the program must "):
        expect_outcome(outcome(**what), expected)


def test_the_smallest_sets_of_a_torch_that_is_not_here_come_from_its_evidence(monkeypatch):
    case = cases.load("cpu_half")
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    table = each_fix(case, case.setting({"op": "inverse"}), torch_id="torch-1.13")
    assert "recorded" in table.caption
    assert "float_the_layer" in table.caption
    assert "autocast_float16 + newer_torch" in table.caption
