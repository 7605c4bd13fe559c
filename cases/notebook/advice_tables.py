"""The advice, tested, as tables: all of it, torch by torch, and what one check saw."""

from cases.halftruths.base import number
from cases.lab.advice import VERDICTS, short
from cases.notebook.table import Table


def table(answers):
    """Return a Table of answers, one a row: whose advice, the verdict, and what it says."""
    counts = [f"{sum(a.verdict == verdict for a in answers)} {sign} {verdict}"
              for verdict, sign in VERDICTS.items()]
    return Table(
        f"{len(answers)} pieces of advice, tried: {', '.join(counts)}",
        ("id", "article", "case", "verdict", "held in", "the article says"),
        [(a.advice.id, a.advice.article, a.advice.case or "none", f"{a.sign} {a.verdict}",
          "{} of {}".format(*a.held), a.advice.claim) for a in answers])


def by_torch(answers):
    """Return a Table of the verdicts that differ from torch to torch, a column each, on the CPU."""
    ids = sorted({place.torch_id for answer in answers for place in answer.places
                  if place.device == "cpu"}, key=number)
    rows = []
    for answer in answers:
        own = {p.torch_id: p.verdict for p in answer.places if p.device == "cpu"}
        if len(set(own.values())) > 1:
            signs = [VERDICTS[own[torch_id]] if torch_id in own else "" for torch_id in ids]
            rows.append((answer.advice.id, *signs, answer.advice.claim))
    return Table("Where the torch decides: the verdict on each alone. "
                 + ", ".join(f"{sign} {verdict}" for verdict, sign in VERDICTS.items()),
                 ("id", *(torch_id.removeprefix("torch-") for torch_id in ids),
                  "the article says"), rows)


def scenes_table(answer):
    """Return a Table of what one check saw."""
    return Table(f"{answer.advice.id} {answer.sign} {answer.verdict} ({answer.label})",
                 ("scene", "effect", "what was seen"),
                 [(one["scene"], one["effect"], short(one["shown"])) for one in answer.scenes()])
