"""Another interpreter: started once, asked often; its death is one clear line."""

import json
import os
import threading

import pytest

from cases.halftruths.base import BadInput
from cases.lab import torches

MAIN = torches.main_id()
needs_main = pytest.mark.skipif(
    torches.interpreter(MAIN) is None, reason=f"no interpreter of its own for {MAIN} here"
)


@pytest.fixture
def start():
    """Start a Worker that is stopped when the test ends."""
    started = []

    def one(limit=torches.TIME_LIMIT):
        started.append(torches.Worker(MAIN, limit=limit))
        return started[-1]

    yield one
    for worker in started:
        worker.close()


def test_versions_compare_as_numbers():
    assert torches.number("torch-2.13") == (2, 13)
    assert torches.number("torch-2.2") < torches.number("torch-2.13")


def test_an_unknown_id_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"^unknown torch 'torch-9.9'; allowed: .*torch-2.13"):
        torches.check_id("torch-9.9")


def test_one_that_is_not_here_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(torches, "interpreter", lambda torch_id: None)
    with pytest.raises(BadInput, match="not live here.*env/create.py torch-1.13") as caught:
        torches.Worker("torch-1.13")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [
    "", "{", "[]", '{"env": {}}', '{"command": [], "env": {}}', '{"command": [""], "env": {}}',
    '{"command": ["/no/such/python"], "env": {}}',
])
def test_a_damaged_interpreter_file_means_not_live(tmp_path, monkeypatch, text):
    folder = tmp_path / ".torches" / "torch-1.13"
    folder.mkdir(parents=True)
    (folder / "interpreter.json").write_text(text)
    monkeypatch.setattr(torches, "ROOT", tmp_path)
    monkeypatch.setattr(torches, "main_id", lambda: MAIN)
    assert torches.interpreter("torch-1.13") is None


@needs_main
def test_one_interpreter_answers_many_questions(start):
    worker = start()
    first = worker.ask({"call": "cases.lab.torches:current"})
    assert first == worker.ask({"call": "cases.lab.torches:current"})
    assert worker.process.poll() is None


@needs_main
def test_killed_in_the_middle_of_a_question(start):
    worker = start()
    threading.Timer(0.2, worker.process.kill).start()  # it is still importing torch
    with pytest.raises(RuntimeError) as caught:
        worker.ask({"call": "cases.lab.torches:current"})
    assert str(caught.value).startswith(f"{MAIN}: the interpreter died (")
    assert "\n" not in str(caught.value)


@needs_main
def test_no_answer_within_the_limit(start):
    worker = start(limit=0.2)
    with pytest.raises(RuntimeError) as caught:
        worker.ask({"call": "cases.lab.torches:current"})
    assert str(caught.value) == f"{MAIN}: no answer within 0.2 s; the interpreter was stopped"
    assert worker.process.poll() is not None


@needs_main
def test_what_it_died_of_is_quoted(start):
    with pytest.raises(RuntimeError) as caught:
        start().ask({"call": "cases.lab.torches:no_such_function"})
    assert str(caught.value) == (
        f"{MAIN}: the interpreter died (exit code 1) AttributeError: "
        "module 'cases.lab.torches' has no attribute 'no_such_function'"
    )


@needs_main
def test_after_a_death_the_next_question_starts_another():
    first = torches.worker(MAIN)
    first.process.kill()
    first.process.wait()
    second = torches.worker(MAIN)
    assert second is not first
    assert torches.call(MAIN, "cases.lab.torches:current") == MAIN
    second.close()


@needs_main
def test_an_interrupted_question_leaves_no_stale_answer(start, monkeypatch):
    def interrupt(timeout):
        raise KeyboardInterrupt

    worker = start()
    monkeypatch.setattr(worker.answers, "get", interrupt)
    with pytest.raises(KeyboardInterrupt):
        worker.ask({"call": "cases.lab.torches:current"})
    assert worker.process.poll() is not None


@needs_main
def test_what_a_program_prints_is_no_answer(start):
    answer = start().ask({"call": "tests.lab.test_torches:loud"})
    assert answer == {"said": "quietly"}


def loud():
    """Called in the other interpreter: prints, as programs do, before it answers."""
    print(json.dumps({"said": "aloud"}), flush=True)
    return {"said": "quietly"}


OWN = {"LD_LIBRARY_PATH": "/no/libraries", "VIRTUAL_ENV": "/no/venv", "PYTHONUSERBASE": "/no/base",
       "PYTHONSTARTUP": "/no/file.py", "PYTHONWARNINGS": "ignore", "OF_ITS_OWN": "1"}


@needs_main
def test_a_worker_of_a_worker_gets_the_readers_shell(start, monkeypatch):
    found = torches.interpreter(MAIN)
    monkeypatch.setattr(torches, "interpreter", lambda torch_id: {**found, "env": OWN})
    shell = {"LD_LIBRARY_PATH": "/the/readers", "VIRTUAL_ENV": "/the/readers/venv",
             "PYTHONPATH": "/the/readers/modules", "PYTHONHOME": "/no/home"}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OF_ITS_OWN", raising=False)
    first = start()
    for name, value in OWN.items():
        assert first.ask({"call": "os:getenv", "arguments": [name]}) == value
    assert first.ask({"call": "os:getenv", "arguments": ["PYTHONHOME"]}) is None
    second = first.ask({"call": "cases.lab.torches:environment", "arguments": [{}]})
    assert second["LD_LIBRARY_PATH"] == "/the/readers"
    assert second["PYTHONPATH"] == str(torches.ROOT) and second["PYTHONNOUSERSITE"] == "1"
    assert not {"PYTHONWARNINGS", "OF_ITS_OWN", *torches.ASTRAY} & set(second)


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")
def test_the_oldest_torch_hands_its_libraries_to_no_other():
    arguments = [MAIN, "os:getenv", "LD_LIBRARY_PATH"]
    seen = torches.call("torch-1.13", "cases.lab.torches:call", *arguments)
    assert seen == os.environ.get("LD_LIBRARY_PATH")
    torches.close("torch-1.13")
