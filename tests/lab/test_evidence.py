"""Evidence: kept whole, read back as recorded, refused in one line when it cannot be read."""

import json
import os

import pytest

import cases
from cases.lab import evidence, torches
from cases.lab.anywhere import ask
from cases.lab.case import BadInput
from cases.lab.run import Outcome, run

CASE = cases.load("encoder_bf16")
TORCH = "torch-1.13"
MACHINE = {"torch": "1.13.0", "python": "3.11.2", "platform": "Linux", "processor": "x86_64"}


@pytest.fixture(scope="module")
def entries():
    """Two outcomes, as that other torch would give them."""
    outcomes = [run(CASE, fixes=fixes).to_json() for fixes in ((), ("disable_nested_tensor",))]
    return [{**outcome, "torch": MACHINE["torch"]} for outcome in outcomes]


@pytest.fixture
def file(tmp_path, monkeypatch, entries):
    """Two outcomes as evidence of another torch, which is not live here."""
    path = evidence.write(CASE, TORCH, "cpu", entries, MACHINE, tmp_path)
    monkeypatch.setattr(evidence, "path_of", lambda *args: path)
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    return path


def test_what_is_written_is_read_back_and_labelled(file, entries):
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["format"] == evidence.FORMAT
    assert {"case", "device", "date", "commit", "digest", *MACHINE} == set(data["provenance"])
    assert len(file.read_text(encoding="utf-8").splitlines()) == 6, "one outcome a line"
    known = evidence.outcomes(CASE, TORCH)
    assert all(isinstance(outcome, Outcome) for outcome in known)
    for outcome in known:
        assert (outcome.provenance, outcome.torch) == ("recorded", "1.13.0")
        assert outcome.recorded == {"torch": "1.13.0", "device": "cpu",
                                    "date": data["provenance"]["date"]}
    told = {tuple(outcome.fixes): outcome for outcome in known}
    for entry in entries:
        for key in ("verdict", "error", "where", "output_dtype", "relative_error", "costs"):
            assert getattr(told[tuple(entry["fixes"])], key) == entry[key]


def test_an_outcome_that_a_fix_sent_to_another_torch_stays_that_torchs(file, entries):
    sent = [entries[0], {**entries[1], "torch": "2.13.0"}]
    evidence.write(CASE, TORCH, "cpu", sent, MACHINE)
    told = {tuple(outcome.fixes): outcome.torch for outcome in evidence.outcomes(CASE, TORCH)}
    assert told == {(): "1.13.0", ("disable_nested_tensor",): "2.13.0"}


def test_the_same_outcomes_make_the_same_file(file, entries, tmp_path):
    other = tmp_path / "again"
    again = evidence.write(CASE, TORCH, "cpu", entries[::-1], MACHINE, other)
    assert again.read_bytes() == file.read_bytes()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_what_is_not_live_is_asked_of_evidence(file):
    outcome = ask(CASE, None, ["disable_nested_tensor"], torch_id=TORCH)
    assert (outcome.provenance, outcome.verdict) == ("recorded", "runs")
    with pytest.raises(BadInput, match="was not recorded on torch-1.13, cpu with these factors"):
        ask(CASE, {"mask": "off"}, torch_id=TORCH)
    with pytest.raises(BadInput, match="unknown fix 'nope'"):
        ask(CASE, None, ["nope"], torch_id=TORCH)


def test_nothing_recorded_is_said(file):
    file.unlink()
    assert evidence.read(CASE, TORCH) is None and evidence.outcomes(CASE, TORCH) == []
    with pytest.raises(BadInput, match="case encoder_bf16 was not recorded on torch-1.13, cpu"):
        evidence.find(CASE, None, (), TORCH)


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '{"format": "one", "provenance": {}, "outcomes": []}',
    '{"format": 1}', '{"format": 1, "provenance": {}, "outcomes": [{}]}',
    '{"format": 1, "provenance": [], "outcomes": {}}',
])
def test_damage_is_refused_in_one_line(file, text):
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"^torch-1.13-cpu.json of case encoder_bf16 is damaged"
                                       r" \(.*\); record it again$"):
        evidence.outcomes(CASE, TORCH)


def test_an_unknown_field_in_an_outcome_is_damage(file):
    data = json.loads(file.read_text(encoding="utf-8"))
    data["outcomes"][0]["surprise"] = 1
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(BadInput, match="damaged"):
        evidence.read(CASE, TORCH)


def test_a_newer_format_is_refused_in_one_line(file):
    file.write_text('{"format": 2}', encoding="utf-8")
    with pytest.raises(BadInput, match="has format 2; this version reads up to 1$"):
        evidence.read(CASE, TORCH)


def test_the_digest_follows_the_program(tmp_path):
    folder = tmp_path / CASE.name
    folder.mkdir()
    for name in ("model.py", "fixes.py", "case.py"):
        (folder / name).write_bytes((CASE.folder / name).read_bytes())

    class Copy(type(CASE)):
        folder = tmp_path / CASE.name

    copied = Copy(**vars(CASE))
    assert copied.digest == CASE.digest
    (folder / "model.py").write_text("changed", encoding="utf-8")
    assert copied.digest != CASE.digest


@pytest.mark.parametrize("name", cases.NAMES)
def test_all_evidence_in_the_tree_can_be_read(name):
    case = cases.load(name)
    files = sorted(case.folder.glob("evidence/torch-*.json"))
    assert files, f"no evidence of {name}"
    for path in files:
        torch_id, _, device = path.stem.rpartition("-")
        data = evidence.read(case, torch_id, device)
        assert data["outcomes"]
        said = (data["provenance"]["case"], data["provenance"]["device"])
        assert said == (name, device)
        assert torches.check_id(torch_id) is None
        assert data["provenance"]["torch"].startswith(torch_id.removeprefix("torch-"))
        for outcome in data["outcomes"]:
            assert case.setting(outcome.factors) == outcome.factors
            assert [fix.name for fix in case.pick(outcome.fixes)] == outcome.fixes
