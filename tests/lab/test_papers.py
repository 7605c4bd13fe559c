"""The README is true: its index is the evidence's, and what it names is there."""

import re

import cases
from cases.lab import advice
from cases.lab.torches import ROOT
from cases.notebook import lesson

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_index_is_what_the_evidence_says():
    section = README.split("## Find your error")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(.+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == [tuple(row) for row in lesson.index().rows]


def rows_of(section, start):
    """The rows of the README's table that begins with this head, as tuples of cells."""
    table = README.split(section)[1].split(start)[1].split("\n\n")[0]
    return [tuple(line.strip("| ").split(" | ")) for line in table.splitlines()[2:]]


def test_the_silent_failures_are_the_cases_own():
    rows = rows_of("## Find your error", "| nothing is raised, but")
    assert rows == [tuple(row) for row in lesson.silent_index().rows]


def test_the_verdicts_on_advice_are_those_of_the_evidence():
    answers = advice.published()
    expected = [
        (article, *(str(sum(a.advice.article == article and a.verdict == verdict for a in answers))
                    for verdict in advice.VERDICTS))
        for article in advice.ARTICLES
    ]
    assert rows_of("## The advice, tested", "| article") == expected
    half_true = sum(answer.verdict == "holds here" for answer in answers)
    assert f"{half_true} of the {len(answers)} are half true" in README


def test_every_notebook_of_a_case_is_there():
    for name in cases.NAMES:
        assert (ROOT / "notebooks" / cases.load(name).notebook).is_file()


def test_links_lead_somewhere():
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / target).exists(), f"{page}: {target}"
