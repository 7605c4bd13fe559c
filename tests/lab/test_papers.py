"""The README is true: its tables are the evidence's, its answer is given, its links lead on."""

import os
import re
import subprocess
import sys

import pytest

import cases
from cases.lab.torches import ROOT
from cases.notebook import papers

README = papers.README.read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", "notebooks/messages.md", "tests/BENCH.md",
         *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/README.md"))]


@pytest.mark.parametrize("path", papers.PARTS, ids=lambda path: path.name)
def test_what_is_made_is_up_to_date(path):
    assert papers.paper(path) == path.read_text(encoding="utf-8"), "make notebooks writes it"


def test_a_changed_table_is_found_and_written_again():
    row = next(line for line in README.splitlines() if "01_encoder_bf16" in line)
    assert papers.filled(README.replace(row, "| another |"), "notebooks",
                         papers.notebooks()) == README
    for text in (README.replace("<!-- made: notebooks -->", ""), README * 2):
        with pytest.raises(ValueError, match="marks of 'notebooks' are not there once"):
            papers.filled(text, "notebooks", "")


def test_a_bar_in_a_cell_parts_no_cells():
    assert papers.markdown(["a"], [["x | y"]]) == "| a |\n| --- |\n| x \\| y |"


def test_the_readme_stays_short():
    assert len(README.splitlines()) <= 150


def test_the_answer_that_the_readme_shows_is_given():
    shown = next(block for block in README.split("```") if block.startswith("\nRuntimeError: "))
    done = subprocess.run(
        [sys.executable, "-m", "cases", "autopsy", "cases/llama_vision/model.py"], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE, encoding="utf-8")
    said = iter(done.stdout.splitlines())
    for line in shown.strip("\n").splitlines():
        assert line in said, f"not there, or not in this order: {line}"


def test_every_notebook_of_a_case_is_there():
    for name in cases.NAMES:
        assert (ROOT / "notebooks" / cases.load(name).notebook).is_file()


def test_links_lead_somewhere():
    for page in map(ROOT.joinpath, PAGES):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (page.parent / target).exists(), f"{page}: {target}"
