"""What may import what, as the design says: read from the source, and tried on the oldest torch."""

import ast
import os
import subprocess
import sys

import pytest

import cases
from cases import advice
from cases.lab import torches

LAB = torches.ROOT / "cases" / "lab"
# What notebooks alone use, and what else it may then import.
SHOWN = {"panel": {"ipywidgets", "anywidget", "traitlets"}, "sortable": {"anywidget", "traitlets"},
         "box": {"anywidget", "traitlets"}, "figures": {"matplotlib", "PIL"}}
IMPORTABLE = sorted(path.stem for path in LAB.glob("*.py") if path.stem not in SHOWN)


def imported(path):
    """Names of the top packages that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return names


def outside(path):
    """The packages among them that are neither the standard library's, nor torch, nor ours."""
    tops = {name.split(".")[0] for name in imported(path)}
    return tops - set(sys.stdlib_module_names) - {"torch", "cases"}


@pytest.mark.parametrize("path", sorted(LAB.glob("*.py")), ids=lambda path: path.name)
def test_the_lab_needs_torch_alone(path):
    # pip carries the parser of TOML that Python 3.10 lacks.
    assert outside(path) <= SHOWN.get(path.stem, {"pip"})


@pytest.mark.parametrize("name", cases.NAMES)
def test_a_program_knows_nothing_of_the_lab(name):
    folder = cases.load(name).folder
    for part in ("model", "fixes"):
        ours = {module for module in imported(folder / f"{part}.py") if module.startswith("cases")}
        assert ours <= {f"cases.{name}.model", "cases.lab"}, "the last is for newer_torch"
    for part in ("model", "fixes", "case"):
        assert outside(folder / f"{part}.py") <= {"transformers", "PIL", "numpy"}


@pytest.mark.parametrize("name", advice.MODULES)
def test_a_check_of_advice_is_plain_torch(name):
    path = torches.ROOT.joinpath(*name.split(".")).with_suffix(".py")
    assert outside(path) <= {"transformers", "numpy"}
    own = name.rpartition(".")[0]
    ours = {module for module in imported(path) if module.startswith("cases")}
    assert all(module == "cases" or module.startswith(("cases.lab", own)) for module in ours)


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")
def test_all_of_it_starts_on_the_oldest_torch():
    found = torches.interpreter("torch-1.13")
    lines = [f"import cases.lab.{name}" for name in IMPORTABLE]
    lines += [f"import cases; cases.load({name!r})" for name in cases.NAMES]
    lines += ["from cases.lab import advice; advice.COLLECTION.every"]
    done = subprocess.run(
        [*found["command"], "-c", "\n".join(lines)], cwd=torches.ROOT, capture_output=True,
        env={**os.environ, **found["env"]}, encoding="utf-8")
    assert done.returncode == 0, done.stderr
