"""The tools as they are published: built, installed elsewhere, run beside a user's own files."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cases import halftruths
from cases.lab.base import ROOT

SCRIPT = """\
import torch
from cases import half
layer = half(torch.nn.Linear(4, 4))
x = torch.ones(2, 4)
layer(x)
"""
OWN = "def half(module):\n    return module.half()\n"
TEST = """\
import torch

def test_a_layer():
    torch.nn.Linear(4, 4).half()(torch.ones(2, 4))
"""
MAGIC = """\
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "halftruths")
shell.run_cell("import torch; torch.nn.Linear(4, 4).half()(torch.ones(2, 4))")
print(shell.run_line_magic("autopsy", ""))
"""
MESSAGE = "expected scalar type Half but found Float"


def succeed(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel built from a copy of the checkout, and the wheel built from the sdist."""
    home = tmp_path_factory.mktemp("built")
    copy = home / "checkout"
    shutil.copytree(ROOT / "cases" / "halftruths", copy / "cases" / "halftruths")
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    sdist = copy / "dist" / succeed(sys.executable, "-c", build, cwd=copy).split()[-1]
    made = []
    for source in (copy, sdist):
        out = home / f"wheel{len(made)}"
        succeed(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
                "--no-build-isolation", "--wheel-dir", out, source)
        made += out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheels, tmp_path_factory):
    """The Python of an environment with the wheel, and torch and pytest from this one's."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    succeed(sys.executable, "-m", "venv", "--without-pip", venv)
    inside = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(succeed(inside, "-c", where).strip())
    succeed(sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--no-deps",
            "--no-index", wheels[0])
    # Appended without its .pth files: this environment's own would bring the checkout along.
    (site / "borrowed.pth").write_text(succeed(sys.executable, "-c", where))
    return inside


@pytest.fixture
def folder(tmp_path):
    """A user's folder, with a package `cases` of its own."""
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "__init__.py").write_text(OWN)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "test_layer.py").write_text(TEST)
    (tmp_path / "magic.py").write_text(MAGIC)
    return tmp_path


def run(python, *words, cwd):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([*map(str, (python, *words))], cwd=cwd, env=clean,
                          capture_output=True, encoding="utf-8")


def test_the_wheel_is_small_and_holds_the_package_alone(wheels):
    first, second = (zipfile.ZipFile(wheel) for wheel in wheels)
    assert max(wheel.stat().st_size for wheel in wheels) <= 300_000
    names = first.namelist()
    assert sorted(names) == sorted(second.namelist()), "the sdist brings the same"
    assert {name.split("/")[0] for name in names} == {"halftruths",
                                                      "half_truths-0.1.0.dist-info"}
    assert {"halftruths/messages/rules.json", "halftruths/messages/recorded.json"} <= set(names)
    told = first.read("half_truths-0.1.0.dist-info/METADATA").decode()
    assert [line for line in told.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: torch>=1.13"]


@pytest.mark.parametrize("way", ["script", "module"])
def test_the_autopsy_reads_a_script_with_its_own_cases(python, folder, way):
    command = [python, "-m", "halftruths"] if way == "module" else [
        python.with_name("half-truths")]
    done = run(*command, "autopsy", "--json", "train.py", cwd=folder)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["error"]["type"] == "RuntimeError", done.stderr
    assert found["odd"] == {"name": "input", "dtype": "float32"} and found["cure"]
    done = run(*command, "autopsy", "train.py", cwd=folder)
    assert "train.py:4" in done.stdout and "odd" in done.stdout


def test_explain_needs_no_torch(python, folder):
    done = run(python.with_name("half-truths"), "explain", MESSAGE, cwd=folder)
    assert done.returncode == 0 and done.stdout.startswith("linear-matmul-mismatch")
    assert "https://" in done.stdout and " notebooks/" not in done.stdout
    probe = ("import sys; from halftruths.command import main; "
             f"main(['explain', {MESSAGE!r}]); "
             "print('torch' in sys.modules, 'cases' in sys.modules)")
    assert run(python, "-c", probe, cwd=folder).stdout.endswith("False False\n")


def test_an_answer_names_the_command_that_is_there(python, folder):
    probe = "import halftruths; print(halftruths.autopsy(ValueError('x')))"
    for said, command in ((run(python, "-c", probe, cwd=folder).stdout, "half-truths"),
                          (str(halftruths.autopsy(ValueError("x"))), "python -m cases")):
        assert said.rstrip().split("give the text to: ")[1].startswith(f"{command} explain -")


@pytest.mark.parametrize("words, said", [
    ((), "half-truths: unknown command ''; allowed: autopsy, explain\n"),
    (("audti",), "half-truths: unknown command 'audti'; allowed: autopsy, explain\n"),
    (("autopsy",), "half-truths: autopsy needs a SCRIPT; allowed: a file of Python text\n"),
    (("explain",), "half-truths: empty; give a message, a traceback, or a symptom in words\n"),
])
def test_bad_input_is_one_line(python, folder, words, said):
    done = run(python.with_name("half-truths"), *words, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_pytest_finds_the_plugin_by_itself(python, folder):
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_layer.py", cwd=folder)
    assert "1 failed" in done.stdout and "autopsy" in done.stdout, done.stdout + done.stderr
    assert "input, float32\n" in done.stdout


def test_the_extension_brings_the_magic(python, folder):
    done = run(python, "magic.py", cwd=folder)
    assert "input, float32\n" in done.stdout, done.stdout + done.stderr


def test_from_the_checkout_a_script_gets_its_own_cases_too(folder):
    """python -m cases loads our `cases` first; the script must not see it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "cases", "autopsy", "--json", folder / "train.py"],
                          cwd=ROOT, env=env, capture_output=True, encoding="utf-8")
    assert json.loads(done.stdout)["odd"] == {"name": "input", "dtype": "float32"}, done.stderr
