"""The history of a program over torches: live where that can be, recorded elsewhere."""

import pytest

import cases
from cases.halftruths.base import BadInput, spans
from cases.lab import evidence, torches
from cases.lab.run import run
from cases.notebook import history
from cases.notebook.history import ANY, NOT_KNOWN, Column, History, parts

CASE = cases.load("encoder_bf16")
NOW = torches.current()


def product(values, history_of):
    """Cells for `parts`: what `history_of` says of each combination of two factors' values."""
    return {(a, b): history_of(a, b) for a in values["a"] for b in values["b"]}


VALUES = {"a": ("1", "2", "3"), "b": ("x", "y")}


@pytest.mark.parametrize("history_of, expected", [
    (lambda a, b: "same", [("123", "xy")]),
    (lambda a, b: b, [("123", "x"), ("123", "y")]),
    (lambda a, b: a == "2", [("13", "xy"), ("2", "xy")]),
    (lambda a, b: (a == "2") and b, [("13", "xy"), ("2", "x"), ("2", "y")]),
    (lambda a, b: a + b, [(a, b) for b in "xy" for a in "123"]),
])
def test_settings_with_one_history_share_a_part(history_of, expected):
    cells = product(VALUES, history_of)
    found = parts(VALUES, cells)
    assert sorted(("".join(part["a"]), "".join(part["b"])) for part, _ in found) == sorted(expected)
    for part, told in found:
        assert {cells[a, b] for a in part["a"] for b in part["b"]} == {told}


@pytest.fixture
def alone(monkeypatch):
    """No torch is live but this one."""
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == NOW)


def test_what_is_live_is_run_and_the_rest_is_read(alone, monkeypatch):
    ran, read = [], []
    monkeypatch.setattr(history, "ask", lambda case, setting, fixes, device, torch_id, **rest: (
        ran.append(torch_id) or run(case, setting, fixes, device, **rest)))
    monkeypatch.setattr(evidence, "find", lambda *args, real=evidence.find: (
        read.append(args[3]) or real(*args)))
    told = History(CASE, only={"source": "tokens", "phase": "validate"})
    assert set(ran) == {NOW}
    assert set(read) == {column.torch_id for column in told.columns} - {NOW} != set()
    assert [column.torch_id for column in told.columns if column.live] == [NOW]
    assert f"Live here: {NOW.removeprefix('torch-')}; the others are recorded." in told.caption


def test_a_row_is_what_happens(alone):
    told = History(CASE, only={"source": "tokens", "batch_first": "on", "dtype": "bfloat16"})
    assert told.factors == ["phase", "mask"]
    place = [column.torch_id for column in told.columns].index(NOW)
    cells = {chosen: row[place] for chosen, row in told.rows}
    assert told.messages[cells["validate", "on"]].endswith(CASE.headline.text)
    assert cells["validate", "off"] == "bf16"
    trained = {cell for (phase, _), cell in cells.items() if phase == "train"}
    assert trained == {"f32"}
    assert str(told).count("What was raised") == 1


def test_letters_go_in_the_order_of_the_rows(alone):
    told = History(cases.load("cpu_half"), only={"dtype": "float16"})
    met = [cell for _, row in told.rows for cell in row if cell in told.messages]
    assert list(dict.fromkeys(met)) == list(told.messages) == sorted(told.messages)


def test_what_was_not_recorded_is_not_made_up(alone, monkeypatch):
    monkeypatch.setattr(history, "columns", lambda case: [Column("torch-0.1", "cpu", False)])
    told = History(CASE)
    assert told.rows == [((), (NOT_KNOWN,))] and told.messages == {} and told.factors == []


def test_a_factor_without_a_difference_is_any(alone):
    told = History(CASE, only={"source": ("tokens", "spectrum"), "phase": "validate"})
    assert "source" not in told.factors
    assert any(ANY in chosen for chosen, _ in told.rows)


def test_cuda_columns_come_after_and_none_is_said(alone, monkeypatch):
    assert "No outcome has been recorded on a GPU." in History(CASE).caption or any(
        device == "cuda" for _, device in evidence.files(CASE))
    pairs = [("torch-2.2", "cuda"), ("torch-2.6", "cpu")]
    monkeypatch.setattr(evidence, "files", lambda case: pairs)
    found = history.columns(CASE)
    assert [column.head for column in found] == ["2.6", NOW.removeprefix("torch-"), "2.2 cuda"]
    assert not found[-1].live


def test_each_fix_on_every_torch_says_what_the_evidence_says(alone):
    case = cases.load("llama_vision")
    told = history.fixes_table(case)
    heads = [column.head for column in history.columns(case)]
    assert told.headers == ["fix", *heads]
    assert [row[0] for row in told.rows] == ["no fix", *(fix.name for fix in case.fixes)]
    for name, *signs in told.rows:
        names = [] if name == "no fix" else [name]
        for head, sign in zip(heads, signs, strict=True):
            if head != NOW.removeprefix("torch-"):
                known = evidence.find(case, None, names, f"torch-{head}")
                assert sign == known.sign
    assert {sign for _, *signs in told.rows for sign in signs} == set("✗↪✓◐")


@pytest.mark.parametrize("bad", [{"nope": "on"}, {"mask": "maybe"}, {"mask": ("on", "maybe")}])
def test_bad_input_is_one_line_that_says_what_is_allowed(bad):
    with pytest.raises(BadInput, match="allowed: ") as caught:
        History(CASE, only=bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids, text", [
    (["torch-1.13"], "1.13"),
    (["torch-2.13", "torch-2.2"], "2.2, 2.13"),
    (["torch-2.2", "torch-2.6", "torch-2.13"], "2.2 to 2.13"),
    (["torch-1.13", "torch-2.2", "torch-2.6"], "1.13 to 2.6"),
    (["torch-1.13", "torch-2.6"], "1.13, 2.6"),
])
def test_torches_are_written_as_spans(ids, text):
    listed = ["torch-2.13", "torch-1.13", "torch-2.2", "torch-2.6"]
    assert spans(ids, listed) == text
