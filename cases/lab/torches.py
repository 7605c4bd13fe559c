"""Other torches: which are live here, and the same case run in one of them.

`env/torches.toml` lists them. `env/create.py` leaves `.torches/<id>/interpreter.json` for each
that it could make. An interpreter is started once and asked many times, one JSON line each way,
so that a second question costs no second `import torch`.
"""

import atexit
import functools
import importlib
import json
import os
import queue
import subprocess
import threading
from pathlib import Path

import torch

from cases.halftruths.base import BadInput, number
from cases.lab.base import ROOT, read_toml
from cases.lab.case import Missing
from cases.lab.outcome import Outcome

# What leads another Python to this one's files. LD_LIBRARY_PATH may be the reader's own need.
ASTRAY = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONEXECUTABLE",
          "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
REPLACED = "HALF_TRUTHS_REPLACED"  # JSON: {name of a variable: what it was before, or null}
TIME_LIMIT = 120  # seconds for one answer, the interpreter's start and import of torch included


def current():
    """Id of the torch in this process, such as 'torch-2.13'."""
    return "torch-" + ".".join(torch.__version__.split(".")[:2])


@functools.cache
def listed():
    """Return env/torches.toml's entries, a list of dicts with id, version, python, how, for.

    Not to be changed: it is read once, for a click on another torch asks three times.
    """
    return read_toml(ROOT / "env" / "torches.toml")["torch"]


def ids():
    """Every id that may be asked for, oldest first: listed, recorded, and this process's own."""
    recorded = {path.stem.rsplit("-", 1)[0] for path in ROOT.glob("cases/*/evidence/torch-*.json")}
    return sorted({current(), *recorded, *(entry["id"] for entry in listed())}, key=number)


def check_id(torch_id):
    """Raise BadInput for an id that is not listed."""
    if torch_id not in ids():
        raise BadInput(f"unknown torch {torch_id!r}; allowed: {', '.join(ids())}")


def interpreter(torch_id):
    """Return {"command", "env", "torch"} that starts `torch_id`, or None if it is not here."""
    path = ROOT / ".torches" / torch_id / "interpreter.json"
    if torch_id == main_id() and not path.exists():
        python = ROOT / ".venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        return {"command": [str(python)], "env": {}} if python.exists() else None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        program, _ = found["command"][0], found["env"]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return found if Path(program).is_file() else None


def main_id():
    """The torch that the notebooks themselves run on: first in env/torches.toml."""
    return listed()[0]["id"]


def is_live(torch_id):
    return torch_id == current() or interpreter(torch_id) is not None


def environment(own):
    """Return what an interpreter is started with: the reader's shell's environment and its `own`.

    own: {name: value}, from its interpreter.json. This process may be such an interpreter itself:
    what was set for it is taken back first, and it was told under REPLACED what stood there.
    """
    env = dict(os.environ)
    for name, value in json.loads(env.pop(REPLACED, "{}")).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    path = os.pathsep.join([str(ROOT), *([own["PYTHONPATH"]] if own.get("PYTHONPATH") else [])])
    own = {**own, "PYTHONPATH": path, "PYTHONNOUSERSITE": "1"}
    replaced = {name: env.get(name) for name in own}
    for name in ASTRAY:
        if name in env:
            replaced.setdefault(name, env.pop(name))
    return {**env, **own, REPLACED: json.dumps(replaced)}


class Worker:
    """One other interpreter, answering questions until it is closed.

    Raises RuntimeError, in one line, if it dies or takes longer than `limit` seconds; the next
    question then starts a new one.
    """

    def __init__(self, torch_id, limit=TIME_LIMIT):
        found = interpreter(torch_id)
        if found is None:
            raise BadInput(
                f"torch {torch_id!r} is not live here; to make it: python env/create.py {torch_id}"
            )
        self.torch_id, self.limit = torch_id, limit
        self.process = subprocess.Popen(
            found["command"] + ["-m", "cases.lab.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(found["env"]), cwd=ROOT, text=True, encoding="utf-8",
        )
        self.answers, self.errors = queue.Queue(), []
        threading.Thread(target=self._listen, daemon=True).start()
        self.complaints = threading.Thread(
            target=lambda: self.errors.extend(self.process.stderr), daemon=True
        )
        self.complaints.start()

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, question):
        """Send a dict, return the dict that comes back."""
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=self.limit)
        except queue.Empty:
            self.close()
            raise RuntimeError(
                f"{self.torch_id}: no answer within {self.limit} s; the interpreter was stopped"
            ) from None
        except OSError:
            line = None
        except BaseException:  # interrupted: the answer would be taken for the next question's
            self.close()
            raise
        if line is None:
            code = self.process.wait()
            self.complaints.join(1)
            self.close()
            # Before a signal the last line is no reason, just the last thing printed.
            last = "".join(self.errors[-1:]) if code > 0 else ""
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise RuntimeError(f"{self.torch_id}: the interpreter died ({how}) {last}".strip())
        return json.loads(line)

    def close(self):
        self.process.kill()
        self.process.wait()
        _workers.pop(self.torch_id, None)


_workers = {}


def worker(torch_id):
    """The running interpreter for `torch_id`, started if need be."""
    found = _workers.get(torch_id)
    if found is None or found.process.poll() is not None:
        found = _workers[torch_id] = Worker(torch_id)
    return found


def close(torch_id):
    """Stop the interpreter of a torch, if it is running."""
    if torch_id in _workers:
        _workers[torch_id].close()


@atexit.register
def close_all():
    for torch_id in list(_workers):
        close(torch_id)


def ask(torch_id, case, setting, fixes, device="cpu", training=True):
    """Run `case` in another interpreter and return its Outcome.

    Raises BadInput where it is not live or lacks what the case needs, RuntimeError where it
    died or took too long.
    """
    answer = worker(torch_id).ask(
        {"case": case, "setting": setting, "fixes": list(fixes), "device": device,
         "training": training}
    )
    if "bad_input" in answer:
        raise (Missing if answer["missing"] else BadInput)(answer["bad_input"])
    return Outcome.from_json(answer)


def call(torch_id, function, *arguments):
    """Call "module:function", which takes and returns JSON, in the interpreter of a torch.

    Raises BadInput where it is not live, RuntimeError where it died or took too long.
    """
    if torch_id == current():
        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)(*arguments)
    return worker(torch_id).ask({"call": function, "arguments": arguments})
