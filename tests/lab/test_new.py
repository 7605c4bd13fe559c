"""A new case: what is written runs as it stands, and a name that cannot be writes nothing."""

import json
import os
import shutil
import subprocess
import sys

import nbformat
import notebook_checks
import pytest

from cases.halftruths.base import BadInput
from cases.lab import new, torches
from cases.notebook import runner


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what a new case is written into, with one."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(torches.ROOT / "cases", root / "cases",
                    ignore=shutil.ignore_patterns("evidence", "__pycache__"))
    for folder in ("notebooks", "env"):
        (root / folder).mkdir()
    (root / "notebooks" / "08_other.ipynb").touch()
    shutil.copy(torches.ROOT / "env" / "torches.toml", root / "env")
    new.create("kv_cache", root)
    return root


def said(checkout, *argv):
    """Run `python -m` there; return (exit code, standard output)."""
    done = subprocess.run([sys.executable, "-m", *argv], cwd=checkout, encoding="utf-8",
                          env={**os.environ, "PYTHONPATH": str(checkout),
                               "PYTHONIOENCODING": "utf-8"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def test_it_fails_as_it_stands_and_its_fix_cures(checkout):
    _, out = said(checkout, "cases", "run", "kv_cache", "--json")
    outcome = json.loads(out)
    assert outcome["verdict"] == "fails" and outcome["where"]["module"] == "layer"
    _, out = said(checkout, "cases", "run", "kv_cache", "--fix", "cast_batch", "--json")
    assert json.loads(out)["verdict"] == "runs"


def test_a_draft_is_checked_where_it_was_recorded(checkout):
    here = torches.current()
    code, out = said(checkout, "cases", "check", "kv_cache")
    assert (code, out) == (0, f"- kv_cache: not checked, a draft that was not recorded on {here}, "
                              "cpu\n")
    code, out = said(checkout, "cases", "record", "kv_cache")
    assert code == 0 and out.splitlines()[1:] == [
        "  recorded so far, the headline is met on these torches; put them in case.py: "
        f"{(here,)!r}",
        "✓ recorded.json renewed, for `explain`"]  # this copy has no evidence of other cases
    # As told, on a line of its own: the evidence is not older than that.
    case = checkout / "cases" / "kv_cache" / "case.py"
    text = case.read_text(encoding="utf-8")
    assert text.count(" ()),") == 1
    case.write_text(text.replace(" ()),", f"\n        {(here,)!r}),"), encoding="utf-8")
    assert said(checkout, "cases", "check", "kv_cache") == (
        0, f"✓ kv_cache on {here}: 0 differences\n")
    case.write_text(text.replace("(4, 16,", "(5, 16,"), encoding="utf-8")
    code, out = said(checkout, "cases", "check", "kv_cache")
    assert code == 1 and f"{here}-cpu.json is older than the case" in out


def test_the_notebook_runs_and_its_solutions_solve(checkout, monkeypatch):
    path = checkout / "notebooks" / "09_kv_cache.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    found = notebook_checks.lint(notebook)
    assert [line for line in found if "was not run" not in line] == []
    monkeypatch.setattr(notebook_checks, "defines", lambda cell: True)  # every cell is to run
    nbformat.write(notebook_checks.with_solutions(notebook), path)
    code, out = said(checkout, "cases.notebook.runner", "kv_cache")
    assert code == 0, out
    [copy] = (checkout / "build" / "notebooks").rglob("*.ipynb")
    executed = nbformat.read(copy, as_version=4)
    assert len(runner.code_cells(executed)) == len(runner.code_cells(notebook)) + 2
    assert list(notebook_checks.judge_exercises(executed)) == []


def test_a_second_one_stands_beside_the_first(checkout):
    paths = new.create("fp8", checkout)
    assert [path.relative_to(checkout).as_posix() for path in paths] == [
        "cases/fp8/__init__.py", "cases/fp8/model.py", "cases/fp8/fixes.py", "cases/fp8/case.py",
        "notebooks/10_fp8.ipynb", "cases/__init__.py"]
    code, out = said(checkout, "cases", "list")
    assert code == 0 and "kv_cache: Kv cache (a draft)" in out and "fp8: Fp8 (a draft)" in out


@pytest.mark.parametrize("name", ["", "Kv", "kv-cache", "kv_", "_kv", "9x", "../x", "class", "été",
                                  "lab", "mask_overflow"])
def test_a_name_that_cannot_be_writes_nothing(checkout, name):
    before = sorted(checkout.rglob("*"))
    with pytest.raises(BadInput, match="allowed: "):
        new.create(name, checkout)
    assert sorted(checkout.rglob("*")) == before
