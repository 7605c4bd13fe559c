"""The autopsy reads where the source is gone, changed, long, or was never a file."""

import linecache
import os
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from scenes import INSIDE, MASK, SOURCE, Net, batch, caught, finds, imported, read, step
from torch import nn

from cases import halftruths


@pytest.fixture(name="imported")
def of_a_file(tmp_path):
    """Return (path, function) of a file that was run."""
    yield imported(tmp_path)
    linecache.clearcache()


def test_source_that_is_gone(imported):
    path, run = imported()
    path.unlink()
    finds(read(caught(run, Net().half(), batch())), cure=INSIDE, asks="cannot be read from here")


@pytest.mark.parametrize("now", ["", "\n", "x = 1\n", "(((\n" * 9, "\0\0", "\n" * 9 + SOURCE,
                                 "\ndef run(model, x):\n    pass\n    pass\n", "café = 'é'\n" * 9])
def test_source_that_has_changed(imported, now):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_text(now)
    os.utime(path, (1, 1))
    # The last but one has a `run(model, x)` on the same lines: nothing shows that it has changed.
    finds(read(error), cure=INSIDE,
          asks=None if "pass" in now else "Where `x` got its dtype cannot be read from here.")


def test_source_that_is_no_text(imported):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_bytes(bytes(range(256)) * 10)
    os.utime(path, (1, 1))
    finds(read(error), cure=INSIDE, asks="cannot be read from here")
    path.unlink()
    path.mkdir()
    linecache.clearcache()
    finds(read(error), cure=INSIDE, asks="cannot be read from here")


@pytest.mark.parametrize("name", [
    "<string>", "", "<script>alert(1)</script>.py", "\udcff.py", " ", "a\nb.py", "x" * 5000, "~",
    "<ipython-input-1-abc>", "C:\\x\\y.py", "/nowhere/<b>.py", "../../x.py", "its 'name' \".py"])
def test_names_of_files(name):
    space = {}
    exec(compile(SOURCE, name, "exec"), space)
    finds(read(caught(space["run"], Net().half(), batch())), cure=INSIDE, asks="cannot be read")
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(True), name)
    try:
        finds(read(caught(space["run"], Net().half(), batch())), cure=MASK)
    finally:
        del linecache.cache[name]


def test_code_without_lines_or_a_file():
    model, x = Net().half(), torch.ones(2, 4)
    unread = {"cure": INSIDE, "asks": "cannot be read from here"}
    finds(read(caught(exec, "model(x)", {"model": model, "x": x})), **unread)
    finds(read(caught(eval, "[model(x) for x in (x,)]", {"model": model, "x": x})), **unread)
    finds(read(caught(lambda: (lambda *a: model(x))(1))),
          cure="model, x = Net().half(), torch.ones(2, 4, dtype=torch.float16)")
    code = compile(SOURCE, __file__, "exec")
    space = {}
    exec(code, space)
    finds(read(caught(space["run"], model, x)), **unread)  # another line of this very file
    for replaced in ({"co_firstlineno": 10_000}, {"co_name": "<lambda>"}, {"co_linetable": b""}):
        moved = types.FunctionType(space["run"].__code__.replace(**replaced), space)
        finds(read(caught(moved, model, x)), **unread)


def test_a_place_that_is_gone(tmp_path, monkeypatch):
    error = caught(step, Net().half(), batch())
    here = os.getcwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        found = halftruths.autopsy(error)
    finally:
        os.chdir(here)
    finds(found, cure=MASK)
    assert "stopped halfway" not in found.text()


def test_a_search_path_of_anything(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/x"), b"/x", None, 3, "", "\0", "x" * 5000])
    finds(read(caught(step, Net().half(), batch())), cure=MASK)


def test_a_long_file(imported):
    source = "x = 1\n" * 20_000 + SOURCE + "y = 2\n" * 20_000
    _, run = imported(source)
    start = time.perf_counter()
    finds(read(caught(run, Net().half(), batch())), cure=MASK)
    assert time.perf_counter() - start < 2
    deep = "def run(model, x):\n    mask = x.float()\n    y = " + "+".join(["x"] * 900) + \
        "\n    return model(mask)\n"
    finds(read(caught(imported(deep)[1], Net().half(), batch())), cure=MASK)


@pytest.mark.parametrize("expression", [
    "x" + ".view(2, 4)" * 40, "(" * 40 + "x" + " + 1)" * 40, "torch.relu(" * 40 + "x" + ")" * 40,
    "torch.cat([" + "x, " * 3_000 + "])", "x" + " + 0" * 800,
], ids=["views", "sums", "calls", "list", "deep"])
def test_long_expressions_take_no_time(imported, expression):
    _, run = imported(f"def run(model, x):\n    return model({expression})\n")
    error = caught(run, Net().half(), torch.ones(2, 4))
    start = time.thread_time()
    found = read(error)
    assert time.thread_time() - start < 0.5
    finds(found)


def test_long_lines_are_cut(imported):
    _, run = imported(f"def run(model, x):\n    y = x + 1; z = '{'a' * 100_000}'; "
                      "return model(y), z\n")
    found = finds(read(caught(run, Net().half(), torch.ones(2, 4))), cure=INSIDE,
                  asks="Where `y` got its dtype cannot be read from here.")
    assert len(found.text()) < 10_000


def test_deep_and_wide_models():
    deep = Net().half()
    for _ in range(500):
        deep = nn.Sequential(deep)

    def dig(model, x):
        inner = model
        for _ in range(500):
            inner = inner[0]
        return inner(x)

    found = finds(read(caught(dig, deep, torch.ones(2, 4))),
                  cure="return inner(x.to(torch.float16))")
    assert found.where["module"].count("0.") == 500
    wide = nn.ModuleList([nn.Identity() for _ in range(10_000)] + [Net()]).half()
    found = finds(read(caught(lambda model, x: model[-1](x), wide, torch.ones(2, 4))),
                  cure=INSIDE)
    assert found.where["module"] == "10000.body"
