"""Paste nothing, get the cure: what an exception tells about dtypes, from its traceback alone.

    try:
        model(batch)
    except Exception as error:
        print(halftruths.autopsy(error))

Which module and which op failed, which operand is the odd one, the road of its dtype back to
where it came in, the cure at that place and what it costs. Nothing is hooked and nothing is run
a second time; no tensor's values are read; what is returned holds text only.
"""

import gc
import html
from dataclasses import dataclass, field

import torch

from ..messages.reader import notebook
from ..pages import linked, page
from . import values
from .reading import Reader
from .scene import message_of

SHOWN = 500  # characters of a message that are shown


@dataclass
class Autopsy:
    """What an exception tells. All of it is text and numbers: no object of the user's is kept.

    where, odd, road, cure, case, sure: as `to_json` says. said: what happened, in a sentence.
    asks: what cannot be known from the traceback, and the next question. autocast: in words.
    why: why the odd operand is the odd one, or that of two none is.
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
    why: str = ""
    asks: list = field(default_factory=list)

    @property
    def found(self):
        """True if this is an error about dtypes, devices or scaling that the autopsy knows."""
        return bool(self.odd or self.cure or self.case)

    def to_json(self):
        """Return {"error": {"type", "message"}, "where": {"module", "op", "operands", "origin"} or
        None, see failures.to_json, "odd": {"name", "dtype"} or None, "road": [{"file", "line",
        "code", "name", "dtype", "how"}, ...] from where the dtype came in, which is the origin, to
        the line that failed, "cure": {"at", "code", "costs"} or None, "case": name or None,
        "sure": bool, "said", "autocast": text, "asks": [text, ...]}.
        """
        keys = "error where odd road cure case sure said autocast asks".split()
        return {key: getattr(self, key) for key in keys}

    def rows(self):
        """What to show under the error, as [(name, [line, ...], is code)]: the cure first."""
        found = [("what", [self.said], False)]
        if self.cure:
            likely = "cure" if self.sure else "likely cure"
            found.append((f"{likely}, {self.cure['at']}", self.cure["code"].splitlines(), True))
            found.append(("costs", [self.cure["costs"]], False))
        if not self.sure and self.asks:
            found.append(("not sure", self.asks, False))
        if self.where:
            module = {None: "no module", "": "the model itself"}.get(
                self.where["module"], self.where["module"])
            found.append(("where", [f"{module}: {self.where['op']}"], False))
            if self.where["operands"]:
                found.append(("operands", [self.operand(o) for o in self.where["operands"]], False))
        if self.odd:
            found.append(("odd", [f"{self.odd['name']}, {self.odd['dtype']}", self.why], False))
        if self.road:
            width = max(len(f"{s['file']}:{s['line']}") for s in self.road)
            found.append((f"road of {self.road[0]['dtype']}", [
                f"{s['file'] + ':' + str(s['line']):{width}}  {s['code']}"
                + (f"   ({s['how']})" if s["how"] else "") for s in self.road], True))
        if self.autocast:
            found.append(("autocast", [self.autocast], False))
        if self.case:
            told = f"case {self.case}, {page(notebook(self.case))}"
            found.append(("of this kind", [told], False))
        return [(name, [line for line in lines if line], code) for name, lines, code in found]

    def operand(self, told):
        shape = "×".join("ragged" if length == -1 else str(length) for length in told["shape"]) \
            if told["shape"] is not None else "not in sight"
        parts = [f"{told['name']}: {told['dtype']}", shape or "scalar", told["device"],
                 told.get("layout")]
        odd = " ← odd" if self.odd and told["name"] == self.odd["name"] else ""
        return ", ".join(part for part in parts if part) + odd

    @property
    def heading(self):
        return f"{self.error['type']}: {self.error['message']}"

    def text(self):
        """Plain text; the HTML says the same."""
        parts = [self.heading]
        for name, lines, code in self.rows():
            if code or len(lines) > 1:
                parts += [f"  {name}:", *(f"    {line}" for line in lines)]
            else:
                parts.append(f"  {name}: {lines[0] if lines else ''}")
        return "\n".join(parts)

    __str__ = __repr__ = text

    def _repr_html_(self):
        # Inline, for Jupyter sets text flush right and strips style sheets from untrusted pages.
        left = 'style="text-align:left;vertical-align:top"'
        body = ""
        for name, lines, code in self.rows():
            inside = "<br>".join(map(linked, lines)) if not code else (
                "<pre>" + html.escape("\n".join(lines)) + "</pre>")
            head = f"<th scope=row {left}>{html.escape(name)}:</th>"
            body += f"<tr>{head}<td {left}>{inside}</td></tr>"
        return (f'<table class="ht-answer"><caption {left}><strong>{linked(self.heading)}'
                f"</strong></caption><tbody>{body}</tbody></table>")


def autopsy(error):
    """Return the Autopsy of an exception that was raised. Never raises, and changes nothing.

    error: an exception with its traceback, as caught. Anything else gets an Autopsy that says so.
    """
    if not values.is_a(error, BaseException):
        return Autopsy({"type": "nothing to read", "message": "no exception"},
                       said="Give it an exception that was caught: halftruths.autopsy(error).")
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
    if len(message) <= SHOWN:
        return message
    first, *_, last = message.splitlines() * 2
    return f"{first[:SHOWN].rstrip()} … {last[:SHOWN] if last != first else ''}".rstrip()
