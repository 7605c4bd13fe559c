"""The gate over advice, tested: a change in what a check sees must turn it red and name the row."""

import importlib.util
import json
import sys

import pytest

from cases import advice as catalogue
from cases import cli
from cases.lab import advice, evidence, torches

pytestmark = pytest.mark.fault

HERE = torches.current()
TEXT = '''"""A remedy that cures, a claim with a measured error, and a time."""

from cases.lab.advice import Seen, advice, attempt, fact, remedy

about = dict(article="encoder", claim="…", why="…", instead="…", source="…", notebook="05")


def program(half):
    if half:
        raise RuntimeError("expected scalar type Float but found Half")
    return 1.0


@advice("Z1", **about)
def cure(device):
    yield remedy("train", attempt(program, True), attempt(program, False))
    yield remedy("validate", attempt(program, True), attempt(program, True))


@advice("Z2", **about)
def measured(device):
    yield fact("sum", 0.003 < 0.004, "relative error 0.003")
    yield Seen("time", "holds", "1.5 times as fast", processor=True)
'''


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """A function that runs the gate over a text's checks, held to the record of those above."""
    monkeypatch.setattr(catalogue, "MODULES", ("cases.advice.small",))
    monkeypatch.setattr(advice.COLLECTION, "folder", tmp_path, raising=False)

    def check(old="", new="", ids=()):
        path = tmp_path / f"small{len(list(tmp_path.glob('small*.py')))}.py"
        assert old in TEXT
        path.write_text(TEXT.replace(old, new) if old else TEXT, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("cases.advice.small", path)
        monkeypatch.setitem(sys.modules, spec.name, importlib.util.module_from_spec(spec))
        spec.loader.exec_module(sys.modules[spec.name])
        if not evidence.files(advice.COLLECTION):
            advice.record(HERE)
        return advice.check(HERE, ids=ids)

    assert check() == []
    return check


def edit(change):
    path = evidence.path_of(advice.COLLECTION, HERE, "cpu")
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def record_of(id, scene, **changes):
    """Change what was recorded of one scene."""
    def change(data):
        [seen] = [one for one in data["seen"][id] if one["scene"] == scene]
        seen.update(changes)

    return edit(change)


def says(lines, *parts):
    """Assert that the lines are these, each beginning so, and no more."""
    assert len(lines) == len(parts), lines
    for line, part in zip(lines, parts, strict=True):
        assert line.startswith(part), lines


STALE = f"advice: {HERE}-cpu.json is older than a check; record it again"


def test_a_remedy_made_a_no_op(gate):
    says(gate("    if half:", "    if True:"), STALE,
         "advice Z1, train: was holds (RuntimeError: expected scalar type Float but found Half "
         "becomes: 1.0), is no effect",
         "advice Z1: the verdict here was 'holds here', is 'no effect'")


def test_a_failure_that_no_longer_fails(gate):
    says(gate("    if half:", "    if False:"), STALE,
         "advice Z1, train: was holds (RuntimeError: expected scalar type Float but found Half "
         "becomes: 1.0), is idle", "advice Z1, validate: was no effect",
         "advice Z1: the verdict here was 'holds here', is 'no effect'")


def test_a_message_that_changed(gate):
    says(gate("Float but found Half", "Half but found Float"), STALE,
         "advice Z1, train: was holds (RuntimeError: expected scalar type Float but",
         "advice Z1, validate: was no effect (still RuntimeError: expected scalar type Float but")


def test_a_measurement_that_changed_sides(gate):
    says(gate("0.003 < 0.004", "0.005 < 0.004"), STALE,
         "advice Z2, sum: was holds (relative error 0.003), is fails",
         "advice Z2: the verdict here was 'holds', is 'holds here'")


def test_another_number_is_no_difference(gate):
    """The other side: a digit that another processor rounds otherwise is not red."""
    says(gate('"relative error 0.003"', '"relative error 0.002"'), STALE)


def test_an_effect_was_recorded_that_does_not_happen(gate):
    record_of("Z2", "sum", effect="fails")
    says(gate(), "advice Z2, sum: was fails (relative error 0.003), is holds",
         "advice Z2: the verdict here was 'holds here', is 'holds'")


def test_a_scene_that_is_gone(gate):
    says(gate('    yield fact("sum", 0.003 < 0.004, "relative error 0.003")\n', ""), STALE,
         "advice Z2, sum: was holds (relative error 0.003), is not there")


def test_a_scene_that_was_not_recorded(gate):
    edit(lambda data: data["seen"]["Z1"].pop())
    says(gate(), "advice Z1, validate: was not there, is no effect",
         "advice Z1: the verdict here was 'holds', is 'holds here'")


def test_a_row_that_was_not_recorded(gate):
    edit(lambda data: data["seen"].pop("Z2"))
    says(gate(), "advice Z2, sum: was not there", "advice Z2, time: was not there",
         "advice Z2: the verdict here was \"can't be shown here\", is 'holds'")


def test_a_check_that_sees_nothing(gate):
    says(gate('    yield fact("sum"', '    return\n    yield fact("sum"'), STALE,
         "advice Z2, sum: was holds", "advice Z2, time: was holds",
         "advice Z2: the verdict here was 'holds', is \"can't be shown here\"")


def test_a_check_that_raises_is_named_and_the_others_still_run(gate):
    record_of("Z2", "sum", effect="fails")
    says(gate("yield remedy(\"train\"", "1 / 0\n    yield remedy(\"train\""), STALE,
         "advice Z1: its check raised ZeroDivisionError: division by zero",
         "advice Z2, sum: was fails", "advice Z2: the verdict here")


def test_a_check_that_raises_is_not_recorded(gate):
    path = evidence.path_of(advice.COLLECTION, HERE, "cpu")
    before = path.read_bytes()
    gate("yield remedy(\"train\"", "1 / 0\n    yield remedy(\"train\"")
    with pytest.raises(RuntimeError, match="advice Z1: its check raised ZeroDivisionError"):
        advice.record(HERE)
    assert path.read_bytes() == before


def test_an_interpreter_that_dies(gate, monkeypatch):
    call = torches.call

    def dies(torch_id, function, *arguments):
        if arguments[0] == "Z2":
            raise RuntimeError("torch-2.13: the interpreter died (killed by signal 9)")
        return call(torch_id, function, *arguments)

    monkeypatch.setattr(torches, "call", dies)
    says(gate(), "advice Z2: its check raised RuntimeError: torch-2.13: the interpreter died")


def test_a_time_is_compared_on_the_same_processor_alone(gate):
    record_of("Z2", "time", effect="fails")
    says(gate(), "advice Z2, time: was fails", "advice Z2: the verdict here was")
    edit(lambda data: data["provenance"].update(processor="another"))
    assert gate() == []


def test_evidence_older_than_a_check(gate):
    edit(lambda data: data["provenance"].update(digest="0" * 16))
    says(gate(), STALE)


def test_evidence_of_another_torch_older_than_a_check(gate):
    path = evidence.path_of(advice.COLLECTION, HERE, "cpu")
    edit(lambda data: data["provenance"].update(digest="0" * 16))
    path.rename(path.with_name("torch-1.13-cpu.json"))
    advice.record(HERE)
    says(gate(), "advice: torch-1.13-cpu.json is older than a check; record it again")


def test_evidence_missing(gate):
    path = evidence.path_of(advice.COLLECTION, HERE, "cpu")
    path.rename(path.with_name("torch-1.13-cpu.json"))
    says(gate(), f"advice: nothing is recorded for {HERE}, cpu")


def test_evidence_damaged(gate, capsys):
    path = evidence.path_of(advice.COLLECTION, HERE, "cpu")
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    assert cli.main(["check", "advice"]) == 2
    assert f"{path.name} of case advice is damaged" in capsys.readouterr().err


def test_an_effect_that_does_not_exist(gate, capsys):
    path = record_of("Z2", "sum", effect="cures")
    assert cli.main(["check", "advice"]) == 2
    assert f"{path.name} of case advice is damaged (unknown effect 'cures'" in (
        capsys.readouterr().err)


def test_a_difference_is_exit_code_1_and_names_the_row(gate, capsys):
    record_of("Z2", "sum", effect="fails")
    assert cli.main(["check", "advice"]) == 1
    said = capsys.readouterr().out
    assert "✗ advice Z2, sum: was fails (relative error 0.003), is holds" in said
    assert f"✗ advice on {HERE}: 2 differences" in said


def test_only_the_rows_asked_for(gate):
    record_of("Z2", "sum", effect="fails")
    assert gate(ids=["Z1"]) == []
