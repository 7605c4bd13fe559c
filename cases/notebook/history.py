"""One program on every torch and device there is an answer from, setting by setting."""

import functools
import html
import itertools
import string
from dataclasses import dataclass

import torch

from cases.halftruths.base import BadInput, number, spans
from cases.halftruths.messages.words import plain
from cases.lab import evidence, torches
from cases.lab.outcome import verdict_of
from cases.lab.run import ask
from cases.notebook.palette import letters
from cases.notebook.table import Table

NOT_KNOWN, ANY = "?", "any"


@dataclass(frozen=True)
class Column:
    """A torch on a device. `live`: run here and now; else it comes from evidence."""

    torch_id: str
    device: str
    live: bool

    @property
    def head(self):
        return self.torch_id.removeprefix("torch-") + (" cuda" if self.device == "cuda" else "")

    def ask(self, case, setting, fixes, training=False):
        """Return the Outcome here, run or recorded; None if there is none, or no such package."""
        try:
            if self.live:
                return ask(case, setting, fixes, self.device, self.torch_id, training=training)
            return evidence.find(case, setting, fixes, self.torch_id, self.device)
        except BadInput:
            return None


class History:
    """What `case` does, with `fixes`, in every setting and on every torch with evidence.

    Where a torch is live here it is run, without the dozens of steps that show what training
    costs; elsewhere its outcome comes from evidence.

    only: {factor: value or tuple of values}, to look at a part of the settings.
    columns: list of Column, oldest torch first, cuda after cpu.
    messages: {letter: "Type: first line"}, in the order in which they are met.
    factors: names of the factors that make a difference, in the case's order.
    rows: [(values of the factors, cells), …], both tuples of text; settings with one history
        share a row. A cell is a message's letter, or the letters of the output's dtype, or
        NOT_KNOWN. The value of a factor that makes no difference in a row is ANY.

    Raises BadInput for a factor, value or fix that the case does not have.
    """

    def __init__(self, case, fixes=(), only=None):
        self.case, self.fixes = case, [fix.name for fix in case.pick(fixes)]
        self.columns, self.messages = columns(case), {}
        values = {factor.name: factor.values for factor in case.factors}
        for name, some in (only or {}).items():
            values[name] = (some,) if isinstance(some, str) else tuple(some)
            for value in values[name]:
                case.setting({name: value})
        said = {}
        for chosen in itertools.product(*values.values()):
            setting = dict(zip(values, chosen, strict=True))
            said[chosen] = tuple(self.said(setting, column) for column in self.columns)
        found = parts(values, said)
        self.factors = [name for name, some in values.items()
                        if any(len(part[name]) < len(some) for part, _ in found)]
        self.rows = [
            (tuple(ANY if part[name] == values[name] else " ".join(part[name])
                   for name in self.factors), tuple(map(self.cell, texts)))
            for part, texts in found
        ]

    def said(self, setting, column):
        """What was raised, or the letters of the output's dtype, or NOT_KNOWN."""
        outcome = column.ask(self.case, setting, self.fixes)
        if outcome is None:
            return NOT_KNOWN
        if outcome.status == "ran":
            return letters(outcome.output_dtype)
        return f"{outcome.error['type']}: {plain(outcome.error['message'])}"

    def cell(self, said):
        """A letter for what was raised, in the order of the rows; what is short already stays."""
        if ": " not in said:
            return said
        known = {text: letter for letter, text in self.messages.items()}
        if said not in known:
            place = len(known)
            known[said] = string.ascii_uppercase[place % 26] * (place // 26 + 1)
            self.messages[known[said]] = said
        return known[said]

    @property
    def caption(self):
        """What is shown, and where each column comes from."""
        added = "".join(f" with {fix}" for fix in self.fixes)
        missing = "" if self.on_gpu else " No outcome has been recorded on a GPU."
        return (f"{self.case.name}{added}, torch by torch. A letter: what was raised, see below. "
                f"f32, f16, bf16: it runs, and that is its output. "
                f"{provenance(self.columns)}{missing}")

    @property
    def on_gpu(self):
        return any(column.device == "cuda" for column in self.columns)

    def table(self):
        """The cells as a Table, one column a torch."""
        heads = (*self.factors, *(column.head for column in self.columns))
        return Table(self.caption, heads, [(*chosen, *cells) for chosen, cells in self.rows])

    def messages_table(self):
        """The letters and what they stand for, with the torches that say it."""
        def met(letter, device):
            ids = [column.torch_id for place, column in enumerate(self.columns)
                   if column.device == device and any(cells[place] == letter
                                                      for _, cells in self.rows)]
            listed = [column.torch_id for column in self.columns if column.device == device]
            return ids and spans(ids, listed) + " cuda" * (device == "cuda")

        return Table("What was raised", ("", "on torch", "the message"),
                     [(letter, "; ".join(filter(None, (met(letter, "cpu"), met(letter, "cuda")))),
                       said) for letter, said in self.messages.items()])

    def __str__(self):
        return f"{self.table()}\n\n{self.messages_table()}"

    __repr__ = __str__

    def _repr_html_(self):
        # Under its picture the grid is only for who cannot see that; messages are for all.
        return (f"<p>{html.escape(self.caption)}</p>{self.messages_table()._repr_html_()}"
                f"<details><summary>The picture as a table</summary>"
                f"{self.table()._repr_html_()}</details>")


def columns(case):
    """Every torch and device with evidence of `case`, and this process's own torch.

    So the columns are the same on every machine, whatever is installed there.
    """
    here = {(torches.current(), "cpu")}
    if torch.cuda.is_available():
        here.add((torches.current(), "cuda"))
    pairs = sorted({*evidence.files(case), *here},
                   key=lambda pair: (pair[1], number(pair[0])))
    return [Column(torch_id, device, device == "cpu" and torches.is_live(torch_id)
                   or (torch_id, device) in here)
            for torch_id, device in pairs]


def provenance(columns):
    """Which columns were run just now, in a sentence; notebook/sanitize.cfg knows it."""
    live = ", ".join(column.head for column in columns if column.live)
    return f"Live here: {live}; the others are recorded."


def fixes_table(case, setting=None):
    """Return a Table of verdicts: each fix alone, on every torch there is an answer from.

    In phase train a verdict counts what training costs too. Raises BadInput for a setting that
    the case does not have.
    """
    setting, across = case.setting(setting), columns(case)
    rows = []
    for names in [()] + [(fix.name,) for fix in case.fixes]:
        told = [column.ask(case, setting, names, training=True) for column in across]
        signs = [verdict_of(case, outcome)[0] if outcome else NOT_KNOWN for outcome in told]
        rows.append((names[0] if names else "no fix", *signs))
    return Table(
        f"Each fix alone, torch by torch: ✗ fails as without it, ↪ moves the error, ✓ runs, "
        f"◐ runs at a cost. {provenance(across)}",
        ("fix", *(column.head for column in across)), rows)


def parts(values, cells):
    """Split settings into as few parts as tell every history apart.

    values: {factor: its values}. cells: {a value of each factor: its history}, hashable.
    Returns [({factor: values}, history), …]. Each split is by one factor, whose values with equal
    histories stay together.
    """
    names = list(values)

    @functools.cache
    def split(part):
        if len({cells[chosen] for chosen in itertools.product(*part)}) == 1:
            return [(part, cells[tuple(some[0] for some in part)])]
        best = None
        for place, some in enumerate(part):
            alike = {}
            for value in some:
                own = tuple(cells[chosen] for chosen in itertools.product(
                    *part[:place], (value,), *part[place + 1:]))
                alike.setdefault(own, []).append(value)
            if len(alike) > 1:
                found = [row for group in alike.values()
                         for row in split((*part[:place], tuple(group), *part[place + 1:]))]
                if best is None or len(found) < len(best):
                    best = found
        return best

    return [(dict(zip(names, part, strict=True)), history)
            for part, history in split(tuple(values.values()))]
