"""Paste nothing, get the cure: what an exception tells about dtypes, from its traceback alone.

    try:
        model(batch)
    except Exception as error:
        print(cases.autopsy(error))

Which module and which op failed, which operand is the odd one, the road of its dtype back to
where it came in, the cure at that place and what it costs. Nothing is hooked and nothing is run
a second time; no tensor's values are read; what is returned holds text only.
"""

import gc
import html
from dataclasses import dataclass, field

import torch

from cases.lab import values
from cases.lab.diagnosis import Reader, message_of

LONGEST = 500  # characters of a message that are shown


@dataclass
class Autopsy:
    """What an exception tells. All of it is text and numbers: no object of the user's is kept.

    where, odd, road, cure, case, sure: as `to_json` says. said: what happened, in a sentence.
    asks: what cannot be known from the traceback, and the next question. autocast: in words.
    """

    error: dict
    where: dict | None = None
    odd: dict | None = None
    road: list = field(default_factory=list)
    cure: dict | None = None
    case: str | None = None
    sure: bool = False
    said: str = ""
    autocast: str = ""
    census: str = ""
    asks: list = field(default_factory=list)

    @property
    def found(self):
        """True if this is an error about dtypes, devices or scaling that the autopsy knows."""
        return bool(self.odd or self.cure or self.case)

    def to_json(self):
        """Return {"error": {"type", "message"}, "where": as in an outcome, or None,
        "odd": {"name", "dtype"} or None, "road": [{"file", "line", "code", "name", "dtype",
        "how"}, ...] from where the dtype came in to the line that failed, "cure": {"at", "code",
        "costs"} or None, "case": name or None, "sure": bool, "said", "autocast": text,
        "asks": [text, ...]}.
        """
        keys = "error where odd road cure case sure said autocast asks".split()
        return {key: getattr(self, key) for key in keys}

    def blocks(self):
        """What to show, as [(heading, [line, ...], is code)]."""
        found = [(f"{self.error['type']}: {self.error['message']}", [self.said], False)]
        if self.where:
            module = self.where["module"]
            place = {None: "no module", "": "the model itself"}.get(module, module)
            found.append((f"Where: {place}, {self.where['op']}", [
                f"{o['name']}: {o['dtype']} {shape_text(o['shape'])}, {o['device']}"
                + (f", {o['layout']}" if o.get("layout") else "")
                + ("  ← odd" if self.odd and o["name"] == self.odd["name"] else "")
                for o in self.where["operands"]], False))
        if self.odd and self.census:
            found.append((f"Odd one out: {self.odd['name']}, {self.odd['dtype']}",
                          [self.census], False))
        if self.road:
            width = max(len(f"{s['file']}:{s['line']}") for s in self.road)
            found.append((f"Road of {self.road[0]['dtype']}, from where it came in", [
                f"{s['file'] + ':' + str(s['line']):{width}}  {s['code']}"
                + (f"   ({s['how']})" if s["how"] else "") for s in self.road], True))
        if self.autocast:
            found.append(("Autocast", [self.autocast], False))
        if self.cure:
            found.append((f"Cure, at {self.cure['at']}",
                          self.cure["code"].splitlines(), True))
            found.append(("Costs", [self.cure["costs"]], False))
        if self.case:
            from cases.lab.explain import notebook

            found.append(("The same failure, run and measured",
                          [f"case {self.case}, notebooks/{notebook(self.case)}"], False))
        if not self.sure and self.asks:
            found.append(("Not sure", self.asks, False))
        return found

    def text(self):
        """Plain text; the HTML says the same."""
        return "\n\n".join("\n".join([heading, *(f"  {line}" for line in lines if line)])
                           for heading, lines, _ in self.blocks())

    __str__ = __repr__ = text

    def _repr_html_(self):
        found = []
        for heading, lines, code in self.blocks():
            found.append(f"<h4>{html.escape(heading)}</h4>")
            if code:
                found.append(f"<pre>{html.escape(chr(10).join(lines))}</pre>")
            else:
                found.append("".join(f"<div>{html.escape(line)}</div>" for line in lines if line))
        return "".join(found)


def shape_text(shape):
    return "×".join("ragged" if length == -1 else str(length) for length in shape) or "scalar"


def autopsy(error):
    """Return the Autopsy of an exception that was raised. Never raises, and changes nothing.

    error: an exception with its traceback, as caught. Anything else gets an Autopsy that says so.
    """
    if not values.is_a(error, BaseException):
        return Autopsy({"type": "nothing to read", "message": "no exception"},
                       said="Give it an exception that was caught: cases.autopsy(error).")
    name = type.__dict__["__name__"].__get__(type(error))
    result = Autopsy({"type": name, "message": shortened(message_of(error))})
    collecting = gc.isenabled()
    gc.disable()  # with a large model in memory one collection takes longer than the reading
    try:
        with torch._C.DisableTorchFunction():
            Reader(error, result).read()
    except Exception as fault:
        result.asks.append(f"The reading stopped halfway ({type(fault).__name__}); what is above "
                           "was read before. Please report it with the script.")
        result.sure = False
    finally:
        values.forget()
        if collecting:
            gc.enable()
    return result


def shortened(message):
    """A message for one look; of a long one, as a worker's, its first line and its last."""
    if len(message) <= LONGEST:
        return message
    first, *_, last = message.splitlines() * 2
    return f"{first[:LONGEST].rstrip()} … {last[:LONGEST] if last != first else ''}".rstrip()
