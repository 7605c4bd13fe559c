"""env/evidence.py: what is left to do, made and deleted one torch at a time, nothing by halves."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import cases
from cases.lab import evidence, gate, recorded_words, torches
from cases.lab.case import Missing

CASE = cases.load("encoder_bf16")
MACHINE = {"torch": "2.6.0+cpu", "python": "3.11.2", "platform": "Linux", "processor": "x86_64"}


@pytest.fixture
def script(monkeypatch):
    """The script as a module. No torch is live but this one; making one only notes its name."""
    monkeypatch.syspath_prepend(torches.ROOT / "env")
    spec = importlib.util.spec_from_file_location("sweep", torches.ROOT / "env" / "evidence.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.made = []
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    monkeypatch.setattr(module.create, "make_older",
                        lambda torch_id, cuda: module.made.append(f"made {torch_id}"))
    monkeypatch.setattr(module.create, "remove",
                        lambda torch_id: module.made.append(f"removed {torch_id}"))
    # It is the checkout's, and would be written of what these tests make of the cases.
    monkeypatch.setattr(recorded_words, "renew", lambda: ["✓ renewed"])
    return module


@pytest.fixture
def few(monkeypatch):
    """A sweep of two outcomes, as torch 2.6 would give them."""
    entries = [{**gate.ask(CASE, None, fixes).to_json(), "torch": MACHINE["torch"]}
               for fixes in ((), ("mask_to_device",))]

    def record(case, torch_id, device, folder, each):
        for _ in entries:
            each()
        return [(evidence.write(case, torch_id, device, entries, MACHINE, folder), len(entries))]

    monkeypatch.setattr(gate, "record", record)


def run(script, out, *more):
    return script.main(["--torch", "torch-2.6", "--case", CASE.name, "--out", str(out), *more])


def test_a_torch_that_is_not_here_is_made_asked_and_deleted(script, few, tmp_path, capsys):
    assert run(script, tmp_path) == 0
    assert script.made == ["made torch-2.6", "removed torch-2.6"]
    assert (tmp_path / CASE.name / "torch-2.6-cpu.json").is_file()
    assert "✓ torch-2.6: 2 outcomes in " in capsys.readouterr().out


def test_what_is_done_is_not_done_again_unless_asked(script, few, tmp_path, capsys):
    assert run(script, tmp_path) == 0
    script.made.clear()
    assert run(script, tmp_path) == 0 and script.made == []
    assert "up to date" in capsys.readouterr().out
    assert run(script, tmp_path, "--again") == 0 and script.made


@pytest.mark.parametrize("spoil", [
    lambda text: text[:-40],
    lambda text: text.replace(CASE.digest, "0" * 16),
    lambda text: text.replace("2.6.0+cpu", "2.6.1+cpu"),
])
def test_what_is_damaged_older_or_of_another_torch_is_done_again(script, few, tmp_path, spoil):
    run(script, tmp_path)
    path = tmp_path / CASE.name / "torch-2.6-cpu.json"
    whole = path.read_text("utf-8")
    path.write_text(spoil(whole), "utf-8")
    script.made.clear()
    assert run(script, tmp_path) == 0 and script.made
    assert path.read_text("utf-8") == whole


def test_what_explain_knows_is_renewed_with_the_evidence_of_the_checkout(
        script, few, home, tmp_path, capsys):
    ways = ["--torch", "torch-2.6", "--case", CASE.name]
    for said in ("✓ torch-2.6: 2 outcomes in ", "up to date"):
        assert script.main(ways) == 0
        out = capsys.readouterr().out
        assert said in out and out.endswith("✓ renewed\n")
    assert script.main([*ways, "--out", str(tmp_path / "away")]) == 0
    assert "renewed" not in capsys.readouterr().out
    assert script.main(["--gather", str(tmp_path / "away"), "--case", CASE.name]) == 0
    assert capsys.readouterr().out.endswith("✓ renewed\n")


def test_a_torch_that_was_here_stays(script, few, tmp_path, monkeypatch):
    monkeypatch.setattr(torches, "is_live", lambda torch_id: True)
    assert run(script, tmp_path) == 0 and script.made == []


def test_one_that_cannot_be_had_is_said_and_passed_over(script, few, tmp_path, monkeypatch, capsys):
    def refuse(torch_id, cuda):
        raise script.create.Stop("not enough room on the disk: 1.0 GB free, 8.0 GB needed.")

    monkeypatch.setattr(script.create, "make_older", refuse)
    assert run(script, tmp_path) == 1, "it was asked for by name"
    assert "- torch-2.6: not enough room on the disk" in capsys.readouterr().out
    assert script.made == []  # make_older cleans up after itself, and may have refused the place
    out = ["--case", CASE.name, "--out", str(tmp_path)]
    assert script.main(out) == 0, "all that can be had here was recorded"


@pytest.mark.parametrize("error, said", [
    (RuntimeError("torch-2.6: the interpreter died (killed by signal 11)"), "✗ encoder_bf16 not"),
    (Missing("case encoder_bf16 needs transformers"), "- torch-2.6: encoder_bf16 not recorded"),
])
def test_a_death_or_a_lack_is_one_line_and_nothing_is_written(
        script, tmp_path, monkeypatch, capsys, error, said):
    def fail(case, torch_id, device, folder, each):
        each()
        raise error

    monkeypatch.setattr(gate, "record", fail)
    assert run(script, tmp_path) == 1
    assert said in capsys.readouterr().out
    assert script.made[-1] == "removed torch-2.6" and not list(tmp_path.rglob("*"))


def test_an_interruption_still_deletes_the_torch(script, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(gate, "record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(script, tmp_path)
    assert script.made[-1] == "removed torch-2.6"


@pytest.mark.parametrize("wrong", [
    ["--torch", "torch-9.9"], ["--case", "nope"], ["--device", "tpu"], ["--gather", "no/such"],
])
def test_bad_arguments_are_one_line_and_exit_2(script, capsys, wrong):
    with pytest.raises(SystemExit) as stopped:
        script.main(wrong)
    text = capsys.readouterr().err
    assert stopped.value.code == 2
    assert text.count("\n") == 1 and text.startswith("env/evidence.py: ")


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A copy of the case whose evidence may be written."""
    class Copy(type(CASE)):
        folder = tmp_path / "home"

    for name in ("model.py", "fixes.py", "case.py"):
        Copy.folder.mkdir(exist_ok=True)
        shutil.copy(CASE.folder / name, Copy.folder)
    copy = Copy(**vars(CASE))
    monkeypatch.setattr(cases, "load", lambda name: copy)
    return copy


def test_files_of_other_machines_are_brought_home(script, few, tmp_path, home, capsys):
    away = tmp_path / "away" / "evidence-torch-2.6"
    run(script, away)
    assert script.main(["--gather", str(tmp_path / "away"), "--case", CASE.name]) == 0
    assert "✓ encoder_bf16: torch-2.6-cpu.json, recorded " in capsys.readouterr().out
    assert evidence.files(home) == [("torch-2.6", "cpu")]
    assert (home.folder / "evidence" / "torch-2.6-cpu.json").read_bytes() == next(
        away.rglob("*.json")).read_bytes()


@pytest.mark.parametrize("spoil, said", [
    (lambda text: text[:-40], "is damaged"),
    (lambda text: text.replace(CASE.digest, "0" * 16), "older than the case"),
    (lambda text: text.replace('"format": 2', '"format": 3'), "has format 3"),
])
def test_what_is_damaged_newer_or_of_another_program_is_left(
        script, few, tmp_path, home, capsys, spoil, said):
    run(script, tmp_path / "away")
    path = next((tmp_path / "away").rglob("*.json"))
    path.write_text(spoil(path.read_text("utf-8")), "utf-8")
    assert script.main(["--gather", str(tmp_path / "away"), "--case", CASE.name]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("✗ ") and said in out
    assert evidence.files(home) == []


def test_nothing_to_gather_is_said(script, tmp_path, capsys):
    assert script.main(["--gather", str(tmp_path)]) == 1
    assert "no evidence in " in capsys.readouterr().out


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_said_before_anything_is_recorded(
        script, few, tmp_path, place):
    (tmp_path / "a file").touch()
    with pytest.raises(script.BadInput, match="cannot write in .*: name another folder"):
        run(script, tmp_path / place)
    assert script.made == []


def test_it_finds_create_py_under_pythonsafepath(tmp_path):
    done = subprocess.run(
        [sys.executable, torches.ROOT / "env" / "evidence.py", "--gather", tmp_path / "none"],
        env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(torches.ROOT)},
        cwd=tmp_path, encoding="utf-8", capture_output=True,
    )
    assert done.returncode == 2 and "--gather: no folder" in done.stderr
    assert done.stderr.count("\n") == 1


def gpu_script(out, **env):
    return subprocess.run(
        [torches.ROOT / "env" / "gpu_evidence.sh", out], encoding="utf-8", capture_output=True,
        env={**os.environ, "PYTHON": sys.executable, **env},
    )


@pytest.fixture
def python(tmp_path):
    """An interpreter whose `-m cases record CASE … --out DIR` takes no time: it copies a file."""
    path = tmp_path / "python"
    path.write_text(f"""#!/bin/sh
[ "$1" = -m ] || exec {sys.executable} "$@"
mkdir -p "$8/$4" && cp "cases/$4/evidence/{torches.current()}-cpu.json" "$8/$4" && echo "✓ $4"
""", "utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_script_for_a_gpu_machine_records_every_case(tmp_path, python):
    done = gpu_script(tmp_path / "out", PYTHON=python, DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    for case in gate.units():
        assert f"{case.name}: done after " in done.stdout
        path = tmp_path / "out" / case.name / f"{torches.current()}-cpu.json"
        assert evidence.provenance(path, case)["device"] == "cpu"


def test_a_case_that_fails_there_is_said(tmp_path, python):
    done = gpu_script(tmp_path / "out", PYTHON=python, DEVICE="cpu", CASES="cpu_half no_such_case")
    assert done.returncode == 1
    assert "cpu_half: done after " in done.stdout
    assert "no_such_case: failed or stopped after " in done.stdout


@pytest.mark.parametrize("wrong, said", [
    ({"PYTHON": "no-such-python"}, "no-such-python: command not found"),
    ({"DEVICE": "tpu"}, "unknown device 'tpu'; allowed: cpu, cuda"),
])
def test_the_script_for_a_gpu_machine_says_what_it_lacks(tmp_path, wrong, said):
    done = gpu_script(tmp_path, **wrong)
    assert done.returncode == 1 and not list(tmp_path.rglob("*.json"))
    assert done.stderr.splitlines()[-1].endswith(said)


@pytest.mark.parametrize("arguments, code, said", [
    (["--help"], 2, "takes one folder at most"),
    (["a", "b"], 2, "takes one folder at most"),
    (["/dev/null/out"], 1, "cannot write in /dev/null/out"),
    (["/proc"], 1, "cannot write in /proc"),
])
def test_a_wrong_folder_is_one_line(python, arguments, code, said):
    done = subprocess.run(
        [torches.ROOT / "env" / "gpu_evidence.sh", *arguments], encoding="utf-8",
        capture_output=True, env={**os.environ, "PYTHON": python, "DEVICE": "cpu"},
    )
    assert done.returncode == code and said in done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


def test_the_folder_is_seen_from_where_the_script_is_called(tmp_path, python):
    done = subprocess.run(
        [torches.ROOT / "env" / "gpu_evidence.sh", "here"], cwd=tmp_path, capture_output=True,
        env={**os.environ, "PYTHON": python, "DEVICE": "cpu", "CASES": "cpu_half",
             "PYTHONSAFEPATH": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "cpu_half").is_dir()


def test_stopping_the_script_stops_what_it_started(tmp_path):
    slow = tmp_path / "python"
    slow.write_text(f"""#!/bin/sh
[ "$1" = -m ] || exec {sys.executable} "$@"
echo $$ > {tmp_path}/pid
exec sleep 100
""", "utf-8")
    slow.chmod(0o755)
    process = subprocess.Popen(
        [torches.ROOT / "env" / "gpu_evidence.sh", tmp_path / "out"], encoding="utf-8",
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHON": str(slow), "DEVICE": "cpu", "CASES": "cpu_half"},
    )
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert err.splitlines()[-1].startswith("gpu_evidence.sh: stopped")
    pid = (tmp_path / "pid").read_text().strip()
    wait_for(lambda: not is_running(pid))


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def is_running(pid):
    """True for a process that runs; one that is dead may still be listed, as a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
