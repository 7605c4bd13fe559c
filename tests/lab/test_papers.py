"""The README is true: its index is the evidence's, and what it names is there."""

import re

import cases
from cases.lab import lesson
from cases.lab.torches import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_index_is_what_the_evidence_says():
    section = README.split("## Find your error")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == [tuple(row) for row in lesson.index().rows]


def test_every_notebook_of_a_case_is_there():
    for name in cases.NAMES:
        assert (ROOT / "notebooks" / cases.load(name).notebook).is_file()


def test_links_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / target).exists(), f"{page}: {target}"
