"""The tables of README.md and notebooks/messages.md: made of the evidence, between marks.

    python -m cases.notebook.papers     writes what is out of date, and names it

A mark is a line, <!-- made: NAME -->; what is made ends with <!-- end of NAME -->.
"""

import re

import cases
from cases.halftruths.base import spans
from cases.lab import advice, evidence
from cases.lab.base import ROOT
from cases.lab.case import Headline
from cases.notebook import lesson

README, MESSAGES = ROOT / "README.md", ROOT / "notebooks" / "messages.md"


def markdown(headers, rows):
    """A table in Markdown; a cell's own bars are written so that they part no cells."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |"
                     for line in lines)


def notebooks():
    """A row a case: its notebook, what people meet, and on which torches."""
    rows = []
    for case in map(cases.load, cases.RECORDED):
        listed = [torch_id for torch_id, device in evidence.files(case) if device == "cpu"]
        met = spans(case.headline.torches, listed)
        text = case.headline.text
        rows.append((f"[{case.notebook[:2]}](notebooks/{case.notebook})",
                     f"`{text}`" if isinstance(case.headline, Headline) else text, met))
    return markdown(("notebook", "what people meet", "on torch, CPU"), rows)


def verdicts():
    """How many pieces of advice have which verdict, by article; and in a sentence."""
    answers = advice.published()
    heads = ("article", *(f"{sign} {verdict}" for verdict, sign in advice.VERDICTS.items()))
    rows = [(article, *(sum(a.advice.article == article and a.verdict == verdict for a in answers)
                        for verdict in advice.VERDICTS)) for article in advice.ARTICLES]
    here = sum(answer.verdict == "holds here" for answer in answers)
    return (f"{markdown(heads, rows)}\n\nSo {here} of the {len(answers)} hold in some scenes and "
            "not in others.")


def messages():
    """Every message that a program of the notebooks raises without fixes."""
    table = lesson.index()
    return markdown(table.headers, [(f"`{text}`", where) for text, where in table.rows])


def symptoms():
    """Every failure that raises nothing."""
    table = lesson.silent_index()
    return markdown(table.headers, table.rows)


PARTS = {README: (notebooks, verdicts), MESSAGES: (messages, symptoms)}


def filled(text, name, part):
    """`text` with `part` between the marks of `name`. ValueError if they are not there, once."""
    pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"the marks of {name!r} are not there once")
    return pattern.sub(lambda found: f"{found[1]}{part}\n{found[2]}", text)


def paper(path):
    """A page's text as it should be."""
    text = path.read_text(encoding="utf-8")
    for part in PARTS[path]:
        text = filled(text, part.__name__, part())
    return text


if __name__ == "__main__":
    for path in PARTS:
        if (text := paper(path)) != path.read_text(encoding="utf-8"):
            evidence.write_whole(path, text)
            print(path.relative_to(ROOT).as_posix())
