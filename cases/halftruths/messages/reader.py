"""The message reader: what a pasted error about dtypes means, and what cures it.

    print(halftruths.explain("RuntimeError: expected scalar type Half but found Float"))

Needs no torch, so that an answer takes no second. The rules are data, in rules.json, which is made
from rules.toml; on which torch and device a message was raised, and what a fix did there, is in
recorded.json, which is made from the evidence. `python -m cases.lab.recorded_words` makes both.
"""

import collections
import functools
import html
import itertools
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ..base import PROGRAM, BadInput, OneLineParser, obey, spans
from ..dtypes import COMPLEX, NAMES, SCALARS, spelled
from ..pages import linked, page
from .words import plain

RULES = Path(__file__).with_name("rules.json")
RECORDED = Path(__file__).with_name("recorded.json")
LIMIT = 1_000_000  # bytes; more is a log, not a message
AROUND = 20_000  # characters at the end of a long text without exceptions that are read
FRAMES = 2_000  # characters before an exception, its innermost frames, that may tell its kind
CUT = 20  # characters that are left of a message cut short, at least
SHOWN = 5  # readings at most
CHAIN = 20  # exceptions of one text that are looked at
MESSAGE = 1_000  # characters of an exception's message that are read
SYMPTOM_LENGTH = 2_000  # a longer text is no symptom told in words

TOPIC, SYMPTOM, MAY_SAY, SAYS = range(4)  # how a rule fits, from weak to strong
MANY = 4  # topics beyond this number say no more

VERDICTS = {"runs": "then run", "costs": "then run at a cost", "moves": "meet another error",
            "fails": "fail as before"}

SEND = ("the full traceback as text", "torch.__version__",
        "the device, and what torch.cuda.is_available() says",
        "the dtypes of the model's parameters: {p.dtype for p in model.parameters()}",
        "dtype and shape of the inputs", "whether autocast or a trainer's fp16 or bf16 is on")

PREFIX = r"(?:c10::|torch\.(?:cuda\.)?)?"
DTYPE = (r"(?:struct )?(?:c10::|at::|torch\.|cuda\.|CPU|CUDA)*"
         rf"(?:Float8_\w+|{spelled(*SCALARS)})(?:Tensor|Type)?\b")
KINDS = {  # {name:float64} in a pattern
    "float16": rf"{PREFIX}(?:{spelled('float16', 'bfloat16')})(?:Tensor)?\b",
    "float64": rf"{PREFIX}(?:{spelled('float64')})(?:Tensor)?\b",
    "complex": rf"{PREFIX}(?:{spelled(*COMPLEX)})(?:Tensor)?\b",
    "int64": rf"{PREFIX}(?:{spelled('int64', 'int32')})(?:Tensor)?\b",
    "int8": rf"{PREFIX}(?:float8_\w+|q?(?:{spelled('int8', 'uint8')}))(?:Tensor)?\b",
}
WORDS = {  # {low} in a pattern
    "low": r"(?:\b(?:fp|bf|float|bfloat)[ -]?(?:8|16)\b|\bhalf\b|_BF16\b|\b16[- ]?bits?\b|"
           r"\bmixed[ -]precision|\bautocast|\bamp\b|precision ?= ?.?(?:16|half)|"
           r"\blow(?:er)?[ -]precision|\w+\.half\(\))",
    "half": r"(?:\bfp16\b|\bhalf\b|\bfloat16\b|\w+\.half\(\))",
}
PRECISION = re.compile(
    WORDS["low"] + r"|\b(?:d|data ?)types?\b|\bprecision\b|\b(?:fp|float)(?:32|64)\b|\bdouble\b|"
    r"\bMPS\b|\bfp8\b|\bnans?\b|\bgradscaler\b", re.IGNORECASE)

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])|\[(?:\d{1,2};)*\d{1,2}m")
EXCEPTION = re.compile(r"(?<![\w.])(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]*"
                       r"(?:Error|Exception|Warning))(?:: ?|(?= *$))", re.MULTILINE | re.ASCII)
NOT_MESSAGE = re.compile(r"^\s*(?:Traceback |File \"|During handling|The above exception|$)|"
                         r"^\[?\d{4}-\d\d-\d\d|^\s*Exception raised from ")


@dataclass(frozen=True)
class Reading:
    """One way to understand a text. `to_json` says its fields; text is for people, both plain."""

    kind: str
    why: str
    device: str | None
    torch: str | None
    operands: tuple
    cause: str
    checks: tuple
    cures: tuple
    case: str | None
    evidence: tuple

    def to_json(self):
        return {"kind": self.kind, "why": self.why, "device": self.device, "torch": self.torch,
                "operands": list(self.operands), "cause": self.cause, "checks": list(self.checks),
                "cures": list(self.cures), "case": self.case, "evidence": list(self.evidence)}


class Answer:
    """What `explain` found. readings: list of Reading, best first; empty if nothing is known."""

    def __init__(self, readings):
        self.readings = readings

    @property
    def recognised(self):
        return bool(self.readings)

    def to_json(self):
        """Return {"recognised": bool, "readings": [...]}, and "send" where nothing is known."""
        found = {"recognised": self.recognised,
                 "readings": [reading.to_json() for reading in self.readings]}
        return found if self.recognised else {**found, "send": list(SEND)}

    def blocks(self):
        """What to show, as [(heading, [(name, text), ...]), ...]; a name may be empty."""
        if not self.readings:
            return [("Not recognised: no rule here knows these words as an error about dtypes.",
                     [("", "To ask elsewhere, or to report it, send:"),
                      *(("", f"- {what}") for what in SEND)])]
        first, *others = self.readings
        rows = [(operand["name"], f"{operand['dtype']}, {operand['means']}")
                for operand in first.operands]
        rows.append(("cause", first.cause))
        rows += [("check", check) for check in first.checks]
        for cure in first.cures:
            measured = f" Measured: {cure['measured']}." if cure["measured"] else ""
            rows.append(("cure", f"{cure['text']} Costs: {cure['costs']}.{measured}"))
        if first.case:
            rows.append(("notebook", page(notebook(first.case))))
            rows.append(("program", f"in a checkout: python -m cases run {first.case}"))
        about = ("torch", first.torch), ("device", first.device), ("why", first.why)
        rows += [(name, text) for name, text in about if text]
        rows += [tuple(item.split(": ", 1)) for item in first.evidence
                 if item.startswith("recorded: ")]
        reports = [item for item in first.evidence if not item.startswith("recorded: ")]
        rows += [("public reports", ", ".join(reports))] if reports else []
        blocks = [(first.kind, rows)]
        if others:
            blocks.append(("It may also be", [(other.kind, f"{other.cause} ({other.why})")
                                              for other in others]))
        return blocks

    def text(self):
        """Plain text; the HTML says the same."""
        return "\n\n".join(
            "\n".join([heading, *(f"  {name}: {text}" if name else f"  {text}"
                                  for name, text in rows)])
            for heading, rows in self.blocks())

    __str__ = __repr__ = text

    def _repr_html_(self):
        # Inline, for Jupyter sets text flush right and strips style sheets from untrusted pages.
        left = 'style="text-align:left;vertical-align:top"'
        parts = []
        for heading, rows in self.blocks():
            body = ""
            for name, group in itertools.groupby(rows, key=lambda row: row[0]):
                texts = [linked(text) for _, text in group]
                head = f"<th scope=row rowspan={len(texts)} {left}>{html.escape(name)}</th>"
                cells = [f"<td {left}>{text}</td></tr>" for text in texts]
                body += "<tr>" + (head if name else "") + "<tr>".join(cells)
            parts.append(f'<table class="ht-answer"><caption {left}><strong>{html.escape(heading)}'
                         f"</strong></caption><tbody>{body}</tbody></table>")
        return "".join(parts)


def explain(text):
    """Return an Answer about a pasted text: a message, a traceback, a log, a symptom in words.

    Raises BadInput, in one line, if it is empty, not text, or larger than LIMIT bytes.
    """
    text = clean(check(text))
    raised, frames = exceptions(text)
    around = flat(frames if raised else text[-AROUND:])
    tried = raised or [around]
    hits = fits(by_message, tried, around)
    if not hits and not raised:
        hits = fits(by_symptom, tried, around)
    if not hits and (whole := completed(tried[0])):
        hits = fits(by_message, [whole], around)
    if raised and not hits:
        hits = [hit for hit in fits(by_symptom, tried[:1], around)
                if hit.how == SYMPTOM and PRECISION.search(hit.part)]
    if hits and hits[0].how == SAYS:  # beside sure words, what else it may be, no guesses
        hits = [hit for hit in hits if hit.how == SAYS or hit.beside]
    return Answer([reading(hit) for hit in hits[:SHOWN]])


def fits(how, parts, around):
    """Return the best Hit of each rule that fits one of the parts in a way, best first."""
    hits = []
    for rule in rules():
        own = [hit for place, part in enumerate(parts) if (hit := how(rule, part, around, place))]
        hits += [max(own, key=Hit.rank)] if own else []
    return sorted(hits, key=Hit.rank, reverse=True)  # stable: among equals the file's order


@dataclass(frozen=True)
class Hit:
    """A rule that fits a text: how well, by which words, and in which part of the text.

    beside: what around the words points to this rule. topics: how many of its topics are named.
    place: 0 for the exception that was raised last.
    """

    rule: dict
    how: int
    found: re.Match
    beside: tuple
    topics: int
    part: str
    place: int

    def rank(self):
        """Of how it is said, then what was raised last, then what stands around it."""
        return self.how, -self.place, 4 * len(self.beside) + min(self.topics, MANY)


def by_message(rule, part, around, place):
    """Return the Hit of a rule whose words a part says, or None; `around` is looked at beside."""
    for how, key in (SAYS, "says"), (MAY_SAY, "may_say"):
        if found := searched(rule[key], part):
            return Hit(rule, how, max(found, key=telling), beside(rule, around), 0, part, place)
    return None


def by_symptom(rule, part, around, place):
    """Return the Hit of a rule whose symptoms or topics a part, in people's words, tells of."""
    if len(part) > SYMPTOM_LENGTH:
        return None
    topics = {hit[0].lower(): hit for hit in pattern(rule["topics"]).finditer(part)}
    for text in rule["symptoms"]:
        if found := pattern(text).search(part):
            return Hit(rule, SYMPTOM, found, beside(rule, around), len(topics), part, place)
    if topics and PRECISION.search(part):
        first = next(iter(topics.values()))
        return Hit(rule, TOPIC, first, tuple(topics), len(topics), part, place)
    return None


def beside(rule, around):
    """Return the words around a message, or a symptom, that point to a rule."""
    return tuple(hit[0] for hit in searched(rule["with"], around))


def searched(patterns, text):
    """Return the match of each of a rule's patterns that is found in a text."""
    return [hit for words in patterns if (hit := pattern(words).search(text))]


def telling(found):
    """Of the patterns of a rule that match, the one which names most dtypes tells most."""
    return sum(said is not None for said in found.groups()), len(found[0])


def reading(hit):
    """Say in words, with the evidence there is, what a Hit means."""
    rule, records = hit.rule, recorded(hit.part)
    said_by = {case for case, *_ in records}
    cases = [name for name in rule["cases"] if name in said_by] or rule["cases"]
    case = cases[0] if cases else None
    groups = {name: said for name, said in hit.found.groupdict().items() if said}
    return Reading(
        kind=rule["kind"],
        why=why(hit),
        device=device_of(hit.found[0], records),
        torch=torch_of(records),
        operands=tuple({"name": name, "dtype": dtype_of(said),
                        "means": rule["means"][name]} for name, said in groups.items()),
        cause=rule["cause"],
        checks=tuple(rule["checks"]),
        cures=tuple({"text": cure["text"], "costs": cure["costs"], "fix": cure.get("fix"),
                     "measured": measured(cure.get("fix"), case, hit)}
                    for cure in rule["cures"]),
        case=case,
        evidence=(*outcomes(records), *rule["reports"]),
    )


def why(hit):
    """Which words led to a reading, and what speaks for it against others with the same words."""
    words = f"the words '{hit.found[0].strip()}'"
    if hit.how <= SYMPTOM:
        words = "a symptom told in words"
    if hit.how == SAYS:
        reason = f"{words} are said of this kind alone"
    elif hit.beside:
        named = ", ".join(f"'{word}'" for word in hit.beside)
        reason = f"{words}; {named} beside them points to this kind"
    elif hit.how == SYMPTOM:
        reason = f"{words}, with no message to go by"
    else:
        reason = f"{words} are said of several kinds, and nothing beside them points to this one"
    return reason + ("; an earlier exception in the chain" if hit.place else "")


def dtype_of(said):
    """Return 'c10::Half' or 'torch.cuda.HalfTensor' as 'float16'."""
    name = re.sub(r"^(?:struct )?(?:c10::|at::|torch\.|cuda\.|cpu|cuda)*|(?:tensor|type)$", "",
                  said.strip().lower())
    return NAMES.get(name, name)


# --- the text ---------------------------------------------------------------------------------


def check(text):
    """Return text, decoded if it is bytes; BadInput if it is empty, binary or too large."""
    if not isinstance(text, (str, bytes)):
        raise BadInput(f"a message is text, not {type(text).__name__}")
    if len(text if isinstance(text, bytes) else text.encode("utf-8", "replace")) > LIMIT:
        raise BadInput(f"more than {LIMIT:,} bytes; give the traceback alone, at most that much")
    if isinstance(text, bytes):
        # PowerShell pipes UTF-16.
        wide = text.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = text.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    odd = sum(char < " " and char not in "\t\n\r\x1b\b\f" or char == "\ufffd" for char in text)
    if "\0" in text or odd > len(text) / 10:
        raise BadInput("not text; give a message, a traceback or a symptom as text")
    if not text.strip():
        raise BadInput("empty; give a message, a traceback, or a symptom in words")
    return text


def clean(text):
    """Return a text without colours, entities, curly quotes and words too long to be any."""
    text = html.unescape(ANSI.sub("", text)).encode("utf-8", "replace").decode()
    text = text.translate(str.maketrans("\u2018\u2019\u201c\u201d\u00a0\uff1a\r`", "''\"\" :\n "))
    return re.sub(r"\S{300,}", " ", text)


def flat(text):
    return " ".join(text.split())


def exceptions(text):
    """Return ([message of each exception named in a text], the last one's frames and message).

    The last raised comes first, and warnings after all else: seldom does a program die of one.
    Each message is there once, and at most CHAIN are.
    """
    errors, warnings, frames = {}, {}, ""
    for hit in reversed(list(EXCEPTION.finditer(text))):
        lines = text[hit.start():hit.start() + MESSAGE].split("\n")
        ends = [place for place, line in enumerate(lines) if place and NOT_MESSAGE.match(line)]
        message = "\n".join(lines[:min(ends, default=len(lines))])
        warns = hit["type"].endswith("Warning")
        if not (errors or warns):
            frames = text[max(0, hit.start() - FRAMES):hit.start() + len(message)]
        (warnings if warns else errors)[flat(message)] = None
        if len(errors) == CHAIN:
            break
    found = [*errors, *warnings][:CHAIN]
    return found, frames or " ".join(found)


# --- the rules --------------------------------------------------------------------------------


@functools.cache
def rules():
    """Return the rules, a list of dicts; `pattern` compiles what they look for."""
    found = json.loads(RULES.read_text(encoding="utf-8"))
    for rule in found:
        for key in ("says", "may_say", "symptoms", "with", "cases", "reports"):
            rule.setdefault(key, [])
        rule.setdefault("topics", r"(?!)")
        rule.setdefault("means", {})
    return found


@functools.cache  # when first looked for: to compile all took half the time of an answer
def pattern(text):
    """Compile a rule's pattern: see rules.toml for what stands in braces."""
    def expand(brace):
        name, kind = brace.groups()
        return WORDS.get(name) or f"(?P<{name}>{KINDS[kind] if kind else DTYPE})"

    # In another language's text a word ends where its letters begin: hence ASCII.
    # What starts by looking ahead is tried once, not from every place in the text.
    start = r"\A" if text.startswith("(?=") else ""
    return re.compile(start + re.sub(r"\{([a-z]+)(?::(\w+))?\}", expand, text),
                      re.IGNORECASE | re.ASCII)


# --- the evidence -----------------------------------------------------------------------------


@functools.cache
def recorded_file():
    return json.loads(RECORDED.read_text(encoding="utf-8"))


@functools.cache
def evidence():
    """What our programs were recorded doing: ({words: {(case, torch id, device), ...}},
    {(case, fix): Counter}).

    The Counter has (words, verdict, costs) of the fix alone, each program that fails without it
    by those words counted once a torch and device.
    """
    data, fixes = recorded_file(), {}
    words = {said: set(map(tuple, places)) for said, places in data["words"].items()}
    for case, fix, said, verdict, costs, times in data["fixes"]:
        count = fixes.setdefault((case, fix), collections.Counter())
        count[said, verdict, tuple(costs)] = times
    return words, fixes


def same_words(part):
    """Return the longest recorded message that stands in a part whole, or None."""
    part = plain(part)
    own = [said for said in evidence()[0]
           if said in part and not re.match(r", but got|\w", part.split(said, 1)[1])]
    return max(own, key=len, default=None)


def completed(part):
    """Return the recorded message that a part, cut short, is the beginning of, or None."""
    part = plain(part)
    for words in evidence()[0]:
        start = part.find(words[:CUT])
        if start >= 0 and len(words) > CUT and words.startswith(part[start:]):
            return words
    return None


def recorded(part):
    """Return {(case, torch id, device), ...} that raised these very words; empty if none did."""
    return evidence()[0].get(same_words(part), set())


def outcomes(records):
    """One line a case and device: on which torches the words were recorded."""
    lines = []
    for case, device in sorted({(case, device) for case, _, device in records}):
        ids = [record[1] for record in records if (record[0], record[2]) == (case, device)]
        lines.append(f"recorded: {case} on torch {spans(ids, ids_of(device))}, {device}")
    return lines


def ids_of(device):
    return {version for about in evidence()[0].values() for _, version, on in about
            if on == device}


def torch_of(records):
    """Say on which torches the words were recorded, or None."""
    devices = sorted({device for *_, device in records})
    said = [spans({version for _, version, on in records if on == device}, ids_of(device))
            + f" ({device})" for device in devices]
    return f"recorded on {'; '.join(said)}; other programs may say it on others" if said else None


def device_of(said, records):
    """Say which device the words name and on which they were recorded, or None."""
    named = {"a CPU kernel": r"cpu|\bmkl\b|_mkl|_vml", "CUDA": r"cuda|cufft", "MPS": r"\bmps\b"}
    parts = [f"the words name {what}" for what, words in named.items()
             if re.search(words, said, re.IGNORECASE)]
    devices = sorted({device for *_, device in records})
    if devices:
        none = [name for name in ("cpu", "cuda") if not ids_of(name)]
        parts.append(f"recorded on {' and '.join(devices)}"
                     + "".join(f" (nothing is recorded on {name})" for name in none))
    return "; ".join(parts) or None


def measured(fix, case, hit):
    """Say what a fix, 'CASE:FIX', did alone to the words of a Hit; None if it is of another case.

    Where these very words were not recorded of the case, other words of the same rule count.
    """
    own_case, name = (fix or ":").split(":")
    if own_case != case:
        return None
    count = evidence()[1].get((case, name), {})
    very = same_words(hit.part)
    own = {key: times for key, times in count.items() if key[0] == very}
    own = own or {key: times for key, times in count.items()
                  if searched(hit.rule["says"] + hit.rule["may_say"], key[0])}
    if not own:
        return None
    said = [f"{times} {text}" for verdict, text in VERDICTS.items()
            if (times := sum(n for key, n in own.items() if key[1] == verdict))]
    costs = sorted({cost for key in own for cost in key[2]})
    return (f"{name} alone, on {sum(own.values())} recorded programs of {case} that fail so: "
            + ", ".join(said) + (f" ({', '.join(costs)})" if costs else ""))


def notebook(case):
    """File name of a case's notebook."""
    return recorded_file()["notebooks"][case]


# --- the command line -------------------------------------------------------------------------


def add_arguments(parser):
    parser.add_argument("message", metavar="MESSAGE", nargs="*",
                        help="in quotes, or - for standard input")
    parser.add_argument("--json", action="store_true")


def do_explain(args):
    """Print what a message means. Returns 0, also where nothing is recognised."""
    if args.message == ["-"]:
        text = sys.stdin.buffer.read(LIMIT + 1)
    else:
        text = " ".join(args.message)
    answer = explain(text)
    said = json.dumps(answer.to_json(), ensure_ascii=False) if args.json else answer.text()
    # A terminal may lack letters of the words quoted.
    terminal = sys.stdout.encoding or "utf-8"
    print(said.encode(terminal, "replace").decode(terminal), flush=True)
    return 0


def main(argv, program=PROGRAM):
    """`explain` of a program, without the import of torch that other commands need."""
    parser = OneLineParser(prog=f"{program} explain", description=__doc__.splitlines()[0])
    add_arguments(parser)
    try:
        return obey(lambda: do_explain(parser.parse_args(argv)), program=program)
    except BrokenPipeError:  # as by `| head`; what is still to be written has no reader either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
