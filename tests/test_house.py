"""What may import what, as the design says: read from the source, and tried on the oldest torch."""

import ast
import os
import subprocess
import sys

import pytest

import cases
from cases import advice
from cases.lab import torches

CASES = torches.ROOT / "cases"
# One rule a folder: what of ours its files may import, and what from outside beside torch.
# pip carries the parser of TOML that Python 3.10 lacks. IPython and pytest bring themselves.
RULES = {
    "halftruths": ((), set()),
    "lab": (("cases", "cases.advice", "cases.lab", "cases.halftruths"), {"pip"}),
    "notebook": (("cases",), {"ipywidgets", "anywidget", "traitlets", "matplotlib", "PIL",
                              "nbformat", "nbclient", "nbconvert", "papermill", "psutil", "tqdm"}),
}


def imported(path):
    """Names of the modules that a file imports, wherever in it; relative ones made absolute."""
    package = path.relative_to(torches.ROOT).parent.parts
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[:len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            names |= {part if is_module(part := f"{module}.{name.name}") else module
                      for name in node.names}
    return names


def is_module(name):
    path = torches.ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.joinpath("__init__.py").is_file()


def outside(path):
    """The packages among them that are neither the standard library's, nor torch, nor ours."""
    tops = {name.split(".")[0] for name in imported(path)}
    return tops - set(sys.stdlib_module_names) - {"torch", "cases"}


def ours(path):
    return {name for name in imported(path) if name.split(".")[0] == "cases"}


def files(room):
    return sorted(CASES.joinpath(room).rglob("*.py"))


@pytest.mark.parametrize("room, path", [(room, path) for room in RULES for path in files(room)],
                         ids=lambda part: getattr(part, "stem", part))
def test_a_room_imports_what_it_may(room, path):
    allowed, packages = RULES[room]
    assert outside(path) <= packages
    for name in ours(path):
        assert name.startswith((f"cases.{room}", *(f"{part}." for part in allowed))) \
            or name in allowed, name


@pytest.mark.parametrize("path", files("halftruths"), ids=lambda path: path.stem)
def test_the_published_package_imports_itself_relatively(path):
    names = [node.module or "" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.ImportFrom) and not node.level]
    assert not [name for name in names if name.startswith(("cases", "halftruths"))]


@pytest.mark.parametrize("path", [*files("lab"), *files("notebook")], ids=lambda path: path.stem)
def test_nothing_of_ours_is_imported_late(path):
    """Inside a function stands only what spares torch, and that is in halftruths alone."""
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, (ast.FunctionDef, ast.Lambda)):
            late = [node for node in ast.walk(function) if isinstance(node, ast.ImportFrom)
                    and (node.module or "").startswith("cases")]
            assert not late, ast.unparse(late[0])


def test_the_linter_is_content():
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache"], cwd=torches.ROOT,
                          stdout=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 0, done.stdout


def test_every_folder_says_what_lives_in_it():
    """In a docstring, or where there is no package a README: at most fifteen lines."""
    for path in [*CASES.rglob("__init__.py"), *(torches.ROOT / name / "README.md"
                                                for name in ("env", "tests"))]:
        text = path.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else text
        assert said and len(said.splitlines()) <= 15, path


def test_no_circle_of_imports():
    """Every module of ours can be put above all that it imports."""
    graph = {}
    for room in RULES:
        for path in files(room):
            name = ".".join(path.relative_to(torches.ROOT).with_suffix("").parts)
            graph[name] = ours(path)
    left = dict(graph)
    while left:
        free = [name for name, needs in left.items() if not any(n in left for n in needs)]
        assert free, f"a circle among {', '.join(sorted(left))}"
        for name in free:
            del left[name]


@pytest.mark.parametrize("name", cases.NAMES)
def test_a_program_knows_nothing_of_the_lab(name):
    folder = cases.load(name).folder
    for part in ("model", "fixes"):
        known = {f"cases.{name}.model", "cases.lab", "cases.lab.torches"}
        assert ours(folder / f"{part}.py") <= known, "the last two are for newer_torch"
    for part in ("model", "fixes", "case"):
        assert outside(folder / f"{part}.py") <= {"transformers", "PIL", "numpy"}


@pytest.mark.parametrize("name", advice.MODULES)
def test_a_check_of_advice_is_plain_torch(name):
    path = torches.ROOT.joinpath(*name.split(".")).with_suffix(".py")
    assert outside(path) <= {"transformers", "numpy"}
    own = name.rpartition(".")[0]
    may = ("cases.lab", "cases.halftruths", own)
    assert all(module == "cases" or module.startswith(may) for module in ours(path))


@pytest.mark.skipif(not torches.is_live("torch-1.13"), reason="torch-1.13 is not live here")
def test_all_of_it_starts_on_the_oldest_torch():
    found = torches.interpreter("torch-1.13")
    names = [".".join(path.relative_to(torches.ROOT).with_suffix("").parts)
             for room in ("halftruths", "lab") for path in files(room)
             if path.stem not in ("__main__",)]
    lines = [f"import {name}" for name in names]
    lines += [f"import cases; cases.load({name!r})" for name in cases.NAMES]
    lines += ["from cases.lab import advice; advice.COLLECTION.every"]
    done = subprocess.run(
        [*found["command"], "-c", "\n".join(lines)], cwd=torches.ROOT, capture_output=True,
        env={**os.environ, **found["env"]}, encoding="utf-8")
    assert done.returncode == 0, done.stderr
