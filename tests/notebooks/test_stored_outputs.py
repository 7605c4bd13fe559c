"""Strict nbval over the committed notebooks: what they show must still be what they do."""

import configparser
import re

import notebook_checks
import pytest
from conftest import write_notebook

from cases.notebook import runner
from cases.notebook.runner import Job

pytestmark = pytest.mark.usefixtures("kernels")

NOTEBOOKS = notebook_checks.notebooks()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_as_stored(path):
    differs, said = notebook_checks.compare(path)
    assert not differs, said


# ------------------------------------------------------------------ the sanitise file

WARN = "import warnings\nwarnings.warn('mind the dtype')"


def test_a_warning_is_stored_without_its_process_id(tmp_path):
    path = write_notebook(tmp_path / "warns.ipynb", WARN)
    assert runner.refresh(Job(path), tmp_path).ok
    assert "<cell>:2: UserWarning: mind the dtype" in path.read_text(encoding="utf-8")
    differs, said = notebook_checks.compare(path)
    assert not differs, said


def test_what_is_sanitised():
    rules = configparser.ConfigParser(interpolation=None)
    rules.read(runner.SANITIZE, encoding="utf-8")
    rule, instead = next((rules[name]["regex"], rules[name]["replace"])
                         for name in rules.sections() if "process id" in name)
    assert (rule, instead) == (runner.CELL_FILE, "<cell>")
    for path in ("/tmp/ipykernel_1234/757532748.py", r"C:\Temp\ipykernel_12\7.py"):
        assert re.sub(rule, instead, f"{path}:2: UserWarning: x") == "<cell>:2: UserWarning: x"
    for name in rules.sections():
        for text in ("expected scalar type Float but found BFloat16", "✗ fails", "[8, 32] float16",
                     "/tmp/ipykernel/1.py", "relative error 0.004", "torch-2.13 (live)"):
            assert re.sub(rules[name]["regex"], "!", text) == text
