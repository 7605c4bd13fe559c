"""Evidence: kept whole, read back as recorded, refused in one line when it cannot be read."""

import json
import os
import sys

import pytest
import torch

import cases
from cases.halftruths.base import BadInput
from cases.lab import evidence, gate, torches
from cases.lab.outcome import Outcome
from cases.lab.run import ask, run

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
    monkeypatch.setattr(evidence, "path_of", lambda *args, **more: path)
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    return path


def test_what_is_written_is_read_back_and_labelled(file, entries):
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["format"] == evidence.FORMAT
    assert {"case", "device", "date", "commit", "digest", *MACHINE} == set(data["provenance"])
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 9, "one result or setting a line, each result once"
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


LABEL = '"provenance": {"torch": "1", "device": "cpu", "date": "", "digest": "", "case": ""}'


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '{"format": "two", "provenance": {}, "outcomes": []}',
    '{"format": 1}', '{"format": 2}', '{"format": 2, "provenance": [], "outcomes": {}}',
    f'{{"format": 2, {LABEL}}}', f'{{"format": 2, {LABEL}, "results": {{}}, "outcomes": [[{{}}]]}}',
    f'{{"format": 2, {LABEL}, "results": {{}}, "outcomes": [[{{}}, {{"aa": [""]}}]]}}',
    f'{{"format": 2, {LABEL}, "results": {{"aa": 1}}, "outcomes": [[{{}}, {{"aa": [""]}}]]}}',
])
def test_damage_is_refused_in_one_line(file, text):
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"^torch-1.13-cpu.json of case encoder_bf16 is damaged"
                                       r" \(.*\); record it again$"):
        evidence.outcomes(CASE, TORCH)


def test_an_unknown_field_in_a_result_is_damage(file):
    data = json.loads(file.read_text(encoding="utf-8"))
    next(iter(data["results"].values()))["surprise"] = 1
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(BadInput, match="damaged"):
        evidence.read(CASE, TORCH)


def test_a_newer_format_is_refused_in_one_line(file):
    file.write_text('{"format": 3}', encoding="utf-8")
    with pytest.raises(BadInput, match="has format 3; this version reads up to 2$"):
        evidence.read(CASE, TORCH)


def test_a_file_is_read_once_and_again_when_it_changed(file, entries, monkeypatch):
    read = []
    monkeypatch.setattr(json, "loads", lambda text, real=json.loads: read.append(1) or real(text))
    first = evidence.find(CASE, None, (), TORCH)
    first.costs.append("a reader's own change")
    assert evidence.find(CASE, None, (), TORCH).costs != first.costs and len(read) == 1
    os.utime(file, ns=(0, 0))
    assert evidence.find(CASE, None, (), TORCH).verdict == first.verdict and len(read) == 2


def test_the_list_of_files_is_in_order(tmp_path):
    class Copy(type(CASE)):
        folder = tmp_path

    (tmp_path / "evidence").mkdir()
    for name in ("torch-2.13-cpu", "torch-2.2-cuda", "torch-2.2-cpu", "ops-torch-2.4-cpu"):
        (tmp_path / "evidence" / f"{name}.json").touch()
    case = Copy(**vars(CASE))
    assert evidence.files(case) == [("torch-2.2", "cpu"), ("torch-2.2", "cuda"),
                                    ("torch-2.13", "cpu")]
    assert evidence.files(case, "ops") == [("torch-2.4", "cpu")]


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


ROWS = {"ops": [["mm", "runs"], ["lstm", "no kernel of 16"]]}
SURVEY = cases.load("cpu_half").surveys[0]


@pytest.fixture
def surveyed(tmp_path, monkeypatch):
    """Write what the survey found on a processor; return the file as a dict."""
    case = cases.load("cpu_half")
    path = tmp_path / "ops.json"
    monkeypatch.setattr(evidence, "path_of", lambda *args, **more: path)

    def write(processor, rows):
        evidence.write_survey(case, *SURVEY, TORCH, "cpu", {"ops": rows},
                              {**MACHINE, "processor": processor})
        return json.loads(path.read_text(encoding="utf-8"))

    return write


def test_what_another_processor_said_is_kept(surveyed, monkeypatch):
    assert evidence.ELSEWHERE not in surveyed("AVX2", ROWS["ops"])
    new = surveyed("AVX512", [["mm", "runs"], ["lstm", "runs"]])
    assert new["ops"] == [["mm", "runs"], ["lstm", "runs"]]
    assert new[evidence.ELSEWHERE] == [["AVX2", "ops", ["lstm", "no kernel of 16"]]]
    again = surveyed("AVX512", [["mm", "runs"], ["lstm", "slow"]])
    assert again[evidence.ELSEWHERE] == new[evidence.ELSEWHERE], "nothing of one's own is kept"
    back = surveyed("AVX2", ROWS["ops"])
    assert back[evidence.ELSEWHERE] == [["AVX512", "ops", ["lstm", "slow"]]]
    monkeypatch.setattr(evidence, "survey_digest", lambda function: "another")
    assert evidence.ELSEWHERE not in surveyed("AVX512", ROWS["ops"]), "older than the survey"


@pytest.mark.parametrize("now, told", [
    (ROWS["ops"], []),
    ([["mm", "runs"], ["lstm", "no kernel of 32"]], []),
    ([["mm", "runs"], ["lstm", "runs"]], []),
    ([["mm", "runs"], ["lstm", "raises"]],
     ['was ["lstm", "no kernel of #"]', 'is ["lstm", "raises"]']),
    ([["mm", "runs"]], ['was ["lstm", "no kernel of #"]']),
    ([["mm", "runs"], ["lstm", "runs"], ["bmm", "runs"]], ['is ["bmm", "runs"]']),
])
def test_a_survey_is_held_to_what_some_processor_said(surveyed, monkeypatch, now, told):
    surveyed("AVX512", [["mm", "runs"], ["lstm", "runs"]])
    surveyed("AVX2", ROWS["ops"])
    monkeypatch.setattr(torches, "call", lambda *args: {"ops": now})
    found = gate.check_surveys(cases.load("cpu_half"), TORCH, "cpu")
    assert found == [f"cpu_half: ops {line}" for line in told]


def test_the_processor_is_told_where_torch_cannot(monkeypatch):
    known = evidence.vector_units()
    monkeypatch.delattr(torch.backends, "cpu")
    assert sys.platform != "linux" or evidence.vector_units() == known


@pytest.mark.parametrize("name", cases.NAMES)
def test_all_evidence_in_the_tree_can_be_read(name):
    case = cases.load(name)
    files = evidence.files(case)
    assert files, f"no evidence of {name}"
    for torch_id, device in files:
        provenance = evidence.read(case, torch_id, device)["provenance"]
        outcomes = evidence.outcomes(case, torch_id, device)
        assert outcomes
        assert (provenance["case"], provenance["device"]) == (name, device)
        assert torches.check_id(torch_id) is None
        assert provenance["torch"].startswith(torch_id.removeprefix("torch-"))
        for outcome in outcomes:
            assert case.setting(outcome.factors) == outcome.factors
            assert [fix.name for fix in case.pick(outcome.fixes)] == outcome.fixes


@pytest.mark.parametrize("case", gate.units(), ids=lambda case: case.name)
def test_every_listed_torch_was_recorded_and_none_is_older_than_the_case(case):
    for survey in evidence.digests(case) if case.name not in cases.DRAFTS else ():
        there = {torch_id for torch_id, device in evidence.files(case, survey) if device == "cpu"}
        assert {entry["id"] for entry in torches.listed()} <= there
    assert evidence.stale(case) == []


@pytest.mark.parametrize("name", cases.NAMES)
def test_the_headline_was_raised_just_where_the_case_says(name):
    case = cases.load(name)
    raised = {torch_id for torch_id, device in evidence.files(case) if device == "cpu"
              and case.headline.met_by(evidence.find(case, None, (), torch_id))}
    assert raised == set(case.headline.torches)


def test_all_evidence_is_small():
    sizes = [path.stat().st_size for path in torches.ROOT.glob("cases/*/evidence/*.json")]
    assert sum(sizes) < 3e6 and max(sizes) < 1e5, "bytes; a checkout is to stay quick"
