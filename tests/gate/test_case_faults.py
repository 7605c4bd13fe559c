"""The gate over the cases, tested: a broken case or broken evidence must turn it red."""

import json
from dataclasses import replace

import pytest

import cases
from cases import cli
from cases.halftruths.base import BadInput
from cases.lab import evidence, gate, torches
from cases.lab.case import Fix

pytestmark = pytest.mark.fault

CASE = cases.load("encoder_bf16")
TORCH = torches.current()
FIX = "disable_nested_tensor"


@pytest.fixture(scope="module")
def known():
    """Two true outcomes: the program as it is, which fails, and with a fix, which runs."""
    return [gate.ask(CASE, None, fixes, "cpu", TORCH) for fixes in ((), (FIX,))]


def check(case=CASE, known=None):
    return gate.check(case, TORCH, known=known)


def altered(known, number, **changes):
    return [replace(old, **changes) if n == number else old for n, old in enumerate(known)]


def only(lines, *parts):
    """Assert that one difference was found, and what it says."""
    assert len(lines) == 1, lines
    for part in parts:
        assert part in lines[0]


def test_the_message_changed(known):
    assert check(known=known) == []
    error = {**known[0].error, "message": "expected scalar type Double but found BFloat16"}
    only(check(known=altered(known, 0, error=error)), "message was 'expected scalar type Double")


def test_the_error_changed_its_type(known):
    error = {**known[0].error, "type": "TypeError"}
    only(check(known=altered(known, 0, error=error)), "error type was 'TypeError'")


def test_a_failure_was_recorded_that_does_not_happen(known):
    only(check(known=altered(known, 1, verdict="fails")), f"+{FIX}: verdict was 'fails', is 'runs'")


def test_a_success_was_recorded_that_does_not_happen(known):
    only(check(known=altered(known, 0, verdict="runs")), "verdict was 'runs', is 'fails'")


def test_a_cost_was_recorded_that_is_gone(known):
    only(check(known=altered(known, 1, verdict="costs")), "verdict was 'costs', is 'runs'")


def test_the_output_changed_its_dtype(known):
    only(check(known=altered(known, 1, output_dtype="float64")), "output dtype was 'float64'")


def test_the_program_no_longer_fails(known):
    cured = replace(
        CASE, name="cured",
        prepare=lambda setting, *rest: CASE.prepare({**setting, "mask": "off"}, *rest),
    )
    lines = check(cured, known)
    assert f"must raise RuntimeError with {CASE.headline.text!r}" in lines[0]
    assert any("verdict was 'fails', is 'runs'" in line for line in lines[1:])


def test_the_program_fails_in_other_words(known):
    headline = replace(CASE.headline, text="no such words")
    only(check(replace(CASE, headline=headline), known),
         "must raise RuntimeError with 'no such words'")


def test_the_program_fails_where_it_must_not(known):
    headline = replace(CASE.headline, torches=())
    only(check(replace(CASE, headline=headline), known), f"on {TORCH} the program must not raise")


def test_a_fix_made_a_no_op(known):
    def disable_nested_tensor(run):
        """Nothing."""

    others = tuple(fix for fix in CASE.fixes if fix.name != FIX)
    broken = replace(CASE, fixes=others + (Fix(disable_nested_tensor, "ours"),))
    lines = check(broken, known)
    assert f"+{FIX}: verdict was 'runs', is 'fails'" in lines[0]


# ------------------------------------------------------------------ evidence


@pytest.fixture
def file(tmp_path, monkeypatch, known):
    """The case's evidence, replaced by a file of the two true outcomes."""
    entries = [outcome.to_json() for outcome in known]
    path = evidence.write(CASE, TORCH, "cpu", entries, evidence.machine(), tmp_path)
    monkeypatch.setattr(evidence, "path_of", lambda *args, **more: path)
    monkeypatch.setattr(evidence, "files",
                        lambda case, survey=None: [(TORCH, "cpu")] if path.exists() else [])
    return path


def edit(path, change):
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def a_result(data):
    return next(iter(data["results"].values()))


def refused(path, said, capsys):
    """The check must refuse the file in one line, as a function and at the command line."""
    with pytest.raises(BadInput) as caught:
        check()
    assert path.name in str(caught.value) and said in str(caught.value)
    assert cli.main(["check", CASE.name]) == 2
    assert capsys.readouterr().err == f"python -m cases: {caught.value}\n"


def test_evidence_missing(file):
    assert check() == []
    file.unlink()
    only(check(), f"nothing is recorded for {TORCH}, cpu")


def test_evidence_cut_short(file, capsys):
    file.write_text(file.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    refused(file, "damaged", capsys)


def test_evidence_with_a_field_missing(file, capsys):
    edit(file, lambda data: a_result(data).pop("status"))
    refused(file, "damaged", capsys)


def test_evidence_of_a_newer_format(file, capsys):
    edit(file, lambda data: data.update(format=evidence.FORMAT + 1))
    refused(file, f"has format {evidence.FORMAT + 1}", capsys)


def test_evidence_older_than_the_case(file):
    edit(file, lambda data: data["provenance"].update(digest="0" * 16))
    only(check(), "is older than the case; record it again")


def test_a_difference_is_exit_code_1(file, capsys):
    edit(file, lambda data: a_result(data).update(verdict="moves"))
    assert cli.main(["check", CASE.name]) == 1
    said = capsys.readouterr().out
    assert "verdict was 'moves'" in said
    assert f"✗ {CASE.name} on {TORCH}: 1 difference" in said
