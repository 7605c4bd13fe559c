"""The autopsy reads where the source is gone, changed, long, or was never a file."""

import linecache
import os
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from scenes import SOURCE, Net, batch, caught, finds, imported, read, step
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
    found = finds(read(caught(run, Net().half(), batch())))
    assert found.cure is None or "user.py" not in found.cure["at"]


@pytest.mark.parametrize("now", ["", "\n", "x = 1\n", "(((\n" * 9, "\0\0", "\n" * 9 + SOURCE,
                                 "\ndef run(model, x):\n    pass\n    pass\n", "café = 'é'\n" * 9])
def test_source_that_has_changed(imported, now):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_text(now)
    os.utime(path, (1, 1))
    finds(read(error))


def test_source_that_is_no_text(imported):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_bytes(bytes(range(256)) * 10)
    os.utime(path, (1, 1))
    finds(read(error))
    path.unlink()
    path.mkdir()
    linecache.clearcache()
    finds(read(error))


@pytest.mark.parametrize("name", [
    "<string>", "", "<script>alert(1)</script>.py", "\udcff.py", " ", "a\nb.py", "x" * 5000, "~",
    "<ipython-input-1-abc>", "C:\\x\\y.py", "/nowhere/<b>.py", "../../x.py", "its 'name' \".py"])
def test_names_of_files(name):
    space = {}
    exec(compile(SOURCE, name, "exec"), space)
    read(caught(space["run"], Net().half(), batch()))
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(True), name)
    try:
        finds(read(caught(space["run"], Net().half(), batch())))
    finally:
        del linecache.cache[name]


def test_code_without_lines_or_a_file():
    model, x = Net().half(), torch.ones(2, 4)
    finds(read(caught(exec, "model(x)", {"model": model, "x": x})))
    finds(read(caught(eval, "[model(x) for x in (x,)]", {"model": model, "x": x})))
    finds(read(caught(lambda: (lambda *a: model(x))(1))))
    code = compile(SOURCE, __file__, "exec")
    space = {}
    exec(code, space)
    finds(read(caught(space["run"], model, x)))  # another line of this very file
    moved = space["run"].__code__.replace(co_firstlineno=10_000)
    read(caught(types.FunctionType(moved, space), model, x))
    moved = space["run"].__code__.replace(co_name="<lambda>")
    read(caught(types.FunctionType(moved, space), model, x))
    bare = space["run"].__code__.replace(co_linetable=b"") if sys.version_info >= (3, 10) else None
    read(caught(types.FunctionType(bare, space), model, x))


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
    finds(found)
    assert "stopped halfway" not in found.text()


def test_a_search_path_of_anything(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/x"), b"/x", None, 3, "", "\0", "x" * 5000])
    finds(read(caught(step, Net().half(), batch())))


def test_a_long_file(imported):
    source = "x = 1\n" * 20_000 + SOURCE + "y = 2\n" * 20_000
    _, run = imported(source)
    start = time.perf_counter()
    finds(read(caught(run, Net().half(), batch())))
    assert time.perf_counter() - start < 2
    deep = "def run(model, x):\n    mask = x.float()\n    y = " + "+".join(["x"] * 900) + \
        "\n    return model(mask)\n"
    finds(read(caught(imported(deep)[1], Net().half(), batch())))


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
    found = finds(read(caught(run, Net().half(), torch.ones(2, 4))))
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

    found = finds(read(caught(dig, deep, torch.ones(2, 4))))
    assert found.where["module"].count("0.") == 500
    wide = nn.ModuleList([nn.Identity() for _ in range(10_000)] + [Net()]).half()
    found = finds(read(caught(lambda model, x: model[-1](x), wide, torch.ones(2, 4))))
    assert found.where["module"] == "10000.body"
