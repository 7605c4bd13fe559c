"""The tools as they are published: built, installed elsewhere, run beside a user's own files."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
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
HOOKED = """\
import sys
import halftruths
sys.excepthook = halftruths.excepthook
""" + SCRIPT
HIDDEN = {  # what stands in torch's place while a test fails
    "not imported": "",
    "hidden": "import sys; sys.modules['torch'] = None",
    "a stub": "import sys, types; sys.modules['torch'] = types.ModuleType('torch')",
    "a stub with a version": "import sys, types; sys.modules['torch'] = types.ModuleType('torch'); "
                             "sys.modules['torch'].__version__ = '2.13'",
    "a mock": "import sys, unittest.mock; sys.modules['torch'] = unittest.mock.MagicMock()",
}
MESSAGE = "expected scalar type Half but found Float"


def succeed(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """[wheel built from a copy of the checkout, wheel built from the sdist, the sdist]."""
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
    return [*made, sdist]


@pytest.fixture(scope="module")
def wheels(built):
    return built[:2]


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
    (tmp_path / "hooked.py").write_text(HOOKED)
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


def test_the_licence_is_in_the_wheel_and_in_the_sdist(built):
    text = (ROOT / "LICENSE").read_bytes()
    for wheel in built[:2]:
        inside = zipfile.ZipFile(wheel)
        assert inside.read("half_truths-0.1.0.dist-info/licenses/LICENSE") == text
        assert "License-Expression: MIT\n" in inside.read(
            "half_truths-0.1.0.dist-info/METADATA").decode()
    with tarfile.open(built[2]) as inside:
        assert inside.extractfile("half_truths-0.1.0/LICENSE").read() == text


def test_all_links_of_the_packages_page_are_absolute(wheels):
    """PyPI shows METADATA's text: a relative address leads nowhere there."""
    text = zipfile.ZipFile(wheels[0]).read("half_truths-0.1.0.dist-info/METADATA").decode()
    page = (ROOT / "cases" / "halftruths" / "README.md").read_text(encoding="utf-8")
    assert page in text
    forms = (r"\]\(([^)\s]*)", r"^ *\[[^]]+\]: *(\S*)", r"(?:href|src) *= *[\"']?([^\"'\s>]*)")
    links = [link for form in forms for link in re.findall(form, page, re.MULTILINE)]
    assert links and all(link.startswith("https://") for link in links), links


def imported(python, code, folder):
    """Names of what the installed package brings in with it, of what takes long to import."""
    probe = f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    names = run(python, "-c", probe, cwd=folder).stdout.splitlines()[-1].split()
    assert "halftruths" in names
    return {name.split(".")[0] for name in names} & {
        "torch", "numpy", "IPython", "pytest", "_pytest", "asyncio", "tomllib", "pip", "cases"}


@pytest.mark.parametrize("code", [
    "import halftruths", f"import halftruths; halftruths.explain({MESSAGE!r}).text()",
    "import halftruths; sys.excepthook = halftruths.excepthook", "import halftruths.pytest_plugin",
    "import halftruths.command", "import halftruths.magic",
    f"from halftruths.command import main; main(['explain', {MESSAGE!r}])",
])
def test_nothing_heavy_is_imported(python, folder, code):
    assert imported(python, code, folder) == set()


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


def test_the_packages_page_shows_what_the_autopsy_says(python, tmp_path):
    page = (ROOT / "cases" / "halftruths" / "README.md").read_text(encoding="utf-8")
    script, answer = re.findall(r"```(?:python)?\n(.*?)```", page, re.DOTALL)
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = run(python.with_name("half-truths"), "autopsy", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.startswith(answer), done.stdout + done.stderr
    assert "\n  road of float32:\n    train.py:12 " in done.stdout, "as the page goes on"
    (tmp_path / "prints.py").write_text("import sys; print(sys.argv[1:])")
    done = run(python.with_name("half-truths"), "autopsy", "--json", "prints.py", "--", "--json",
               cwd=tmp_path)
    assert json.loads(done.stdout)["error"] is None and done.stderr == "['--json']\n"
    assert done.returncode == 0


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


def test_pytest_can_do_without_the_plugin(python, folder):
    done = run(python, "-m", "pytest", "-q", "-p", "no:halftruths", "-p", "no:cacheprovider",
               "test_layer.py", cwd=folder)
    assert "1 failed" in done.stdout and "autopsy" not in done.stdout


@pytest.mark.parametrize("how", HIDDEN)
def test_the_plugin_is_silent_and_harmless_without_torch(python, folder, how):
    (folder / "test_layer.py").write_text(
        f"{HIDDEN[how]}\n"
        f"def test_a_message():\n    raise RuntimeError({MESSAGE!r})\n\n"
        "def test_the_next():\n    pass\n")
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_layer.py", cwd=folder)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "autopsy" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_the_plugin_reads_on_when_a_mock_is_gone(python, folder):
    """What it needs of torch is not bound to something that a test put in its place."""
    (folder / "test_layer.py").write_text(
        "import sys, unittest.mock\n\n"
        "def test_a_mock(monkeypatch):\n"
        "    monkeypatch.setitem(sys.modules, 'torch', unittest.mock.MagicMock())\n"
        f"    raise RuntimeError({MESSAGE!r})\n\n"
        "def test_a_layer():\n    import torch\n"
        "    torch.nn.Linear(4, 4).half()(torch.ones(2, 4))\n")
    done = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_layer.py", cwd=folder)
    assert "2 failed" in done.stdout and done.stdout.count("input, float32\n") == 1, done.stdout


def test_the_excepthook_works_beside_the_users_own_cases(python, folder):
    done = run(python, "hooked.py", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    usual, _, autopsy = done.stderr.partition("\nRuntimeError: ")
    assert usual.startswith("Traceback ") and "hooked.py" in usual
    assert "input, float32\n" in autopsy and "hooked.py:7" in autopsy, done.stderr
    (folder / "hooked.py").write_text(HOOKED.replace("layer(x)", "[][0]"))
    done = run(python, "hooked.py", cwd=folder)
    assert done.stderr.splitlines()[-1] == "IndexError: list index out of range"


def test_the_extension_brings_the_magic(python, folder):
    done = run(python, "magic.py", cwd=folder)
    assert "input, float32\n" in done.stdout, done.stdout + done.stderr


def test_from_the_checkout_a_script_gets_its_own_cases_too(folder):
    """python -m cases loads our `cases` first; the script must not see it."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "cases", "autopsy", "--json", folder / "train.py"],
                          cwd=ROOT, env=env, capture_output=True, encoding="utf-8")
    assert json.loads(done.stdout)["odd"] == {"name": "input", "dtype": "float32"}, done.stderr
