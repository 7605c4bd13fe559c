"""The form of every committed notebook: outputs stored, nothing hidden, described, in order."""

import nbformat
import notebook_checks
import pytest

import cases

NOTEBOOKS = notebook_checks.notebooks()
DRAFTS = [cases.load(name).notebook for name in cases.DRAFTS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_form(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    about_a_case = not path.stem.startswith("00")
    found = notebook_checks.lint(notebook, shape=about_a_case and path.name not in DRAFTS)
    assert found == [], "\n".join([path.name] + found)
