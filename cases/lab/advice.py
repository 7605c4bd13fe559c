"""Advice, tested: a check does what the advice says and yields what it saw; a verdict follows.

A check is plain code that yields a Seen for each scene it tries. Effects of a scene:

    holds      the claim is true there, or the remedy cures at no cost
    harms      it runs, and something is lost
    fails      the claim is false there, or another error takes the first one's place
    no effect  nothing changes
    idle       there is nothing to cure
    not shown  it cannot be tried there, and why

No check says its own verdict: `judged` computes it from the effects of all scenes, on all torches.
"""

import ast
import hashlib
import importlib.util
import inspect
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

import cases
from cases import advice as catalogue
from cases.halftruths.base import BadInput, spans
from cases.halftruths.messages.words import same_error, without_numbers
from cases.lab import evidence, torches
from cases.lab.base import ROOT
from cases.lab.case import Missing
from cases.lab.run import check_device, steady

ARTICLES = ("encoder", "c10half", "chatglm")
EFFECTS = ("holds", "harms", "fails", "no effect", "idle", "not shown")
VERDICTS = {"holds": "✓", "holds here": "◑", "no effect": "○", "fails": "✗", "harms": "▼",
            "can't be shown here": "?"}
# Modules of ours whose functions a check may use, and that no other hash covers.
OURS = re.compile(r"cases\.(?!lab\.|halftruths\.|notebook\.)\w+\.(?!model$|fixes$|case$)")
SHOWN = 240  # characters of what was seen in one scene, where a person reads them


@dataclass(frozen=True)
class Seen:
    """What a check saw in one scene: its conditions in words, the effect, and what was measured.

    processor: the effect depends on the processor, as a time does; the gate then compares it only
    on the kind of processor that it was recorded on.
    """

    scene: str
    effect: str
    shown: str
    processor: bool = False

    def __post_init__(self):
        if self.effect not in EFFECTS:
            raise ValueError(f"unknown effect {self.effect!r}; allowed: {', '.join(EFFECTS)}")


@dataclass(frozen=True)
class Advice:
    """One claim of an article, and the check that tries it.

    claim: what the article says. why: one sentence on what is the matter. instead: the line of
    advice to give. source: documentation, source file and symbol, or issue number.
    notebook: the number of the notebook that shows it, such as "01".
    check: `check(device)`, a generator of Seen.
    """

    id: str
    article: str
    claim: str
    check: Callable
    why: str
    instead: str
    source: str
    notebook: str

    @property
    def case(self):
        """Name of the case it stands beside, or "" where it belongs to none."""
        name = self.check.__module__.split(".")[1]
        return "" if name == "advice" else name

    @property
    def code(self):
        """The check's text: what a reader reads, and can run."""
        return segments(inspect.getmodule(self.check), self.check.__name__)[0]

    @property
    def digest(self):
        """Hash of the check, of what it uses in its module, and of the case it stands beside.

        And of a script that its module names as SCRIPT, one that it runs in other processes.
        """
        module = inspect.getmodule(self.check)
        parts = segments(module, self.check.__name__)
        if hasattr(module, "SCRIPT"):
            script = importlib.util.find_spec(module.SCRIPT)
            parts.append(script.loader.get_source(module.SCRIPT))
        if self.case:
            parts.append(cases.load(self.case).digest)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def advice(id, **fields):
    """Make an Advice of the check below it; see Advice for the fields."""
    return lambda check: Advice(id=id, check=check, **fields)


def segments(module, name):
    """Source of a module's function, without decorators, then of what else of ours it uses.

    Left out are the lab, and a case's program, fixes and case.py, which the case's digest covers.
    """
    text = inspect.getsource(module)
    own, others = {}, {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and OURS.match(node.module):
            others.update({alias.name: node.module for alias in node.names})
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own[node.name] = node
        elif isinstance(node, ast.Assign):
            own.update({target.id: node for target in node.targets
                        if isinstance(target, ast.Name)})
    wanted, found = [name], []
    for one in wanted:  # grows while it is walked
        node = own[one]
        found.append(ast.get_source_segment(text, node))
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        wanted += sorted(used & set(own) - set(wanted))
        for other in sorted(used & set(others)):
            found += segments(importlib.import_module(others[other]), other)
    return found


# ------------------------------------------------------------------ what a check says


@dataclass
class Tried:
    """What happened when something was tried: an error, or a value and what it cost.

    Like an Outcome of a case, which `remedy` takes too.
    """

    error: dict | None = None
    value: object = None
    costs: tuple = ()

    @property
    def said(self):
        if self.error:
            return words(self.error)
        parts = [text_of(self.value)] if self.value is not None else ["runs"]
        return ", ".join(parts + [cost["text"] for cost in self.costs])


def attempt(function, *arguments, costs=lambda value: ()):
    """Call `function` and return what happened, as a Tried.

    costs: `costs(value) -> [cost, …]`, what it lost if it ran; see cases.lab.numerics.cost.
    """
    try:
        value = function(*arguments)
    except Exception as error:
        return Tried(error={"type": type(error).__name__, "message": str(error).strip()})
    return Tried(value=value, costs=tuple(costs(value)))


def words(error):
    """An error's type and first line."""
    return f"{error['type']}: {(error['message'].splitlines() or [''])[0]}"


def text_of(value):
    """A value in few words: a dtype's name, a tensor's dtype, else its text."""
    if isinstance(value, torch.Tensor):
        value = value.dtype
    if isinstance(value, (tuple, list)):
        return ", ".join(map(text_of, value))
    return str(value).replace("torch.", "")


def claim(scene, said, measured, **options):
    """The article says `said`; measured was `measured`. Dtypes, texts or numbers."""
    true = bool(said == measured)
    shown = text_of(measured) if true else f"{text_of(measured)}, not {text_of(said)}"
    return Seen(scene, "holds" if true else "fails", shown, **options)


def fact(scene, true, shown, **options):
    """A statement that is true or false in this scene; shown: what it was measured by."""
    return Seen(scene, "holds" if true else "fails", shown, **options)


def harmless(scene, lost, shown, **options):
    """Something that is done and loses something, or nothing."""
    return Seen(scene, "harms" if lost else "holds", shown, **options)


def difference(scene, without, with_it, shown=None, **options):
    """The advice promises a change; without and with it: what is compared."""
    same = bool(without == with_it)
    said = f"the same: {text_of(with_it)}" if same else f"{text_of(without)} → {text_of(with_it)}"
    return Seen(scene, "no effect" if same else "holds", shown or said, **options)


def not_shown(scene, reason):
    """A scene that cannot be tried here, and why."""
    return Seen(scene, "not shown", reason)


def remedy(scene, without, with_it):
    """A remedy, from what the program did without and with it: Tried, or a case's Outcomes.

    It holds if a failure or a cost is gone and none has come; it fails if another error comes;
    it harms if what ran raises, or something is lost that was not.
    """
    before, after = ({cost["kind"] for cost in side.costs} for side in (without, with_it))
    if with_it.error and without.error:
        if same_error(without.error, with_it.error):
            return Seen(scene, "no effect", f"still {words(with_it.error)}")
        return Seen(scene, "fails", f"{words(without.error)} becomes {words(with_it.error)}")
    if with_it.error:
        return Seen(scene, "harms", f"ran, and now raises {words(with_it.error)}")
    if after - before:
        return Seen(scene, "harms", with_it.said)
    if without.error or before - after:
        return Seen(scene, "holds", f"{words(without.error) if without.error else without.said} "
                                    f"becomes: {with_it.said}")
    if before:
        return Seen(scene, "no effect", f"still {with_it.said}")
    return Seen(scene, "idle", f"nothing to cure: {without.said}")


# ------------------------------------------------------------------ the collection


class Collection:
    """All advice, with evidence in files like a case's: one a torch and device."""

    name = "advice"
    surveys = ()
    folder = ROOT / "cases" / "advice"

    @property
    def every(self):
        """Every Advice, in the order of ids."""
        found = [item for module in catalogue.MODULES
                 for item in vars(importlib.import_module(module)).values()
                 if isinstance(item, Advice) and item.check.__module__ == module]
        return sorted(found, key=lambda item: (item.id[0], int(item.id[1:])))

    @property
    def digest(self):
        """Hash of all checks, so that evidence older than one of them shows."""
        return hashlib.sha256("".join(a.digest for a in self.every).encode()).hexdigest()[:16]

    def pick(self, ids=()):
        """Return the Advice named, or all. Raises BadInput for an id that does not exist."""
        known = {item.id: item for item in self.every}
        for one in ids:
            if one not in known:
                raise BadInput(f"unknown advice {one!r}; allowed: {', '.join(known)}")
        return [known[one] for one in ids or known]


COLLECTION = Collection()


def observe(id, device="cpu"):
    """Run one check in this process; return [Seen as a dict, …]. Runs in any torch.

    Raises BadInput for an id or device that does not exist.
    """
    [item] = COLLECTION.pick([id])
    check_device(device)
    with steady():
        torch.manual_seed(0)
        try:
            return [asdict(seen) for seen in item.check(device)]
        except Missing as reason:
            return [asdict(not_shown("here", str(reason)))]


def seen_on(item, torch_id, device="cpu"):
    """Run one check on a live torch; return its [Seen, …].

    Raises RuntimeError, which names the advice, where the check raised or its interpreter died.
    """
    try:
        seen = torches.call(torch_id, "cases.lab.advice:observe", item.id, device)
    except BadInput:
        raise
    except Exception as error:
        said = words({"type": type(error).__name__, "message": str(error)})
        raise RuntimeError(f"advice {item.id}: its check raised {said}") from error
    return [Seen(**one) for one in seen]


def recorded(torch_id, device="cpu"):
    """Return {"provenance": …, "seen": {id: [Seen, …]}} of a file of evidence, or None.

    Raises BadInput, in one line, if it is damaged.
    """
    return evidence.load(evidence.path_of(COLLECTION, torch_id, device), COLLECTION, revive)


def revive(data):
    return {"provenance": data["provenance"],
            "seen": {id: [Seen(**one) for one in row] for id, row in data["seen"].items()}}


@dataclass
class Place:
    """What one check saw on one torch and device. provenance: "live" or "recorded"."""

    torch_id: str
    device: str
    provenance: str
    seen: list

    @property
    def verdict(self):
        return judged(self.seen)


@dataclass
class Answer:
    """One piece of advice and what its check saw, on one torch or on several."""

    advice: Advice
    places: list

    @property
    def verdict(self):
        return judged(seen for place in self.places for seen in place.seen)

    @property
    def sign(self):
        return VERDICTS[self.verdict]

    @property
    def held(self):
        """In how many trials it held, and of how many: a trial is a scene on one torch and device.

        Scenes with nothing to cure, and those that cannot be shown, are none.
        """
        told = [seen.effect for place in self.places for seen in place.seen
                if seen.effect not in ("idle", "not shown")]
        return told.count("holds"), len(told)

    @property
    def here(self):
        """The verdict on this process's torch alone; None where that was not asked."""
        own = [p for p in self.places if p.torch_id == torches.current() and p.device == "cpu"]
        return own[0].verdict if own else None

    def scenes(self):
        """What was seen, alike torches together: [{"scene", "effect", "shown", "where"}, …]."""
        found = {}
        for place in self.places:
            for seen in place.seen:
                key = (seen.scene, seen.effect, seen.shown)
                found.setdefault(key, []).append(place)
        return [{"scene": scene, "effect": effect, "shown": shown, "where": self.span(places)}
                for (scene, effect, shown), places in found.items()]

    def span(self, places):
        """Torches and devices of some places, in words: 'torch 2.2 to 2.14, cpu'."""
        devices = {}
        for place in places:
            devices.setdefault(place.device, set()).add(place.torch_id)
        asked = [place.torch_id for place in self.places]
        return "; ".join(f"torch {spans(ids, set(asked))}, {device}"
                         for device, ids in devices.items())

    def only(self, span):
        """A span in brackets; nothing if it is all that was asked."""
        return "" if span == self.span(self.places) else f" ({span})"

    @property
    def where(self):
        """Where the verdict holds; and if effects differ, which scenes had which effect."""
        by_effect = {}
        for place in self.places:
            for seen in place.seen:
                by_effect.setdefault(seen.effect, {}).setdefault(seen.scene, []).append(place)
        told = {effect: scenes for effect, scenes in by_effect.items() if effect != "idle"}
        if len(told) <= 1:
            places = [p for scenes in (told or by_effect).values() for some in scenes.values()
                      for p in some]
            return self.span(places)
        parts = []
        for effect in EFFECTS:
            spans = {}
            for scene, places in told.get(effect, {}).items():
                spans.setdefault(self.span(places), []).append(scene)
            if spans:
                parts.append(f"{effect}: " + "; ".join(
                    f"{' · '.join(scenes)}{self.only(span)}" for span, scenes in spans.items()))
        return ". ".join(parts)

    @property
    def lines(self):
        """Where the verdict holds, what it was seen by, why, and what to do instead."""
        item = self.advice
        return [
            f"where: {self.where}",
            *(f"{one['scene']}: {one['effect']}{self.only(one['where'])}. {short(one['shown'])}"
              for one in self.scenes()),
            f"why: {item.why}", f"instead: {item.instead}", f"source: {item.source}",
            f"notebook: {item.notebook}", self.label,
        ]

    def __str__(self):
        head = f"{self.advice.id} {self.sign} {self.verdict}: {self.advice.claim}"
        return "\n  ".join([head, *self.lines])

    @property
    def label(self):
        """Which torches it was run on just now, and of which it is recorded."""
        parts = []
        for provenance in ("live", "recorded"):
            places = [place for place in self.places if place.provenance == provenance]
            parts += [f"{provenance}: {self.span(places)}"] if places else []
        return "; ".join(parts)

    def to_json(self):
        item = self.advice
        return {
            "id": item.id, "article": item.article, "claim": item.claim,
            "verdict": self.verdict, "here": self.here, "held": list(self.held),
            "where": self.where,
            "shown_by": self.scenes(), "why": item.why, "instead": item.instead,
            "source": item.source, "case": item.case or None, "notebook": item.notebook,
            "provenance": self.label,
        }


def judged(seen):
    """The verdict that follows from what was seen."""
    effects = {one.effect for one in seen}
    told = effects - {"idle", "not shown"}
    if not told:
        return "no effect" if effects == {"idle"} else "can't be shown here"
    if "holds" in told:
        return "holds" if told == {"holds"} else "holds here"
    return next(effect for effect in ("harms", "fails", "no effect") if effect in told)


def place(item, torch_id, device="cpu"):
    """What one check sees on a torch: run there if it is live here, else recorded.

    Raises BadInput for a torch that does not exist, evidence.NotRecorded where there is none.
    """
    torches.check_id(torch_id)
    if torches.is_live(torch_id) and (device == "cpu" or torch_id == torches.current()):
        return Place(torch_id, device, "live", seen_on(item, torch_id, device))
    known = recorded(torch_id, device)
    if known is None or item.id not in known["seen"]:
        raise evidence.NotRecorded(f"advice {item.id} was not recorded on {torch_id}, {device}")
    return Place(torch_id, device, "recorded", known["seen"][item.id])


def ask(id, torch_id=None, device="cpu"):
    """Return the Answer on one torch; by default live on this one, and recorded on all others.

    Raises BadInput for an id, torch or device that does not exist.
    """
    [item] = COLLECTION.pick([id])
    if torch_id:
        return Answer(item, [place(item, torch_id, device)])
    here = place(item, torches.current(), device)
    return Answer(item, [here] + [other for other in published_places(item)
                                  if (other.torch_id, other.device) != (here.torch_id, device)])


def published_places(item):
    return [Place(torch_id, device, "recorded", recorded(torch_id, device)["seen"][item.id])
            for torch_id, device in evidence.files(COLLECTION)
            if item.id in recorded(torch_id, device)["seen"]]


def published(ids=()):
    """Return the Answers as they are published: from the evidence of all torches."""
    return [Answer(item, published_places(item)) for item in COLLECTION.pick(ids)]


def short(text):
    """A text of at most SHOWN characters; the JSON has all of it."""
    return text if len(text) <= SHOWN else text[:SHOWN].rsplit(" ", 1)[0] + " …"


# ------------------------------------------------------------------ recorded, and held to it


def record(torch_id, device="cpu", folder=None, each=lambda: None):
    """Run all checks on a live torch and write the evidence; return [(path, rows written)].

    Raises RuntimeError where a check raised, or its interpreter died; nothing is then written.
    """
    machine = torches.call(torch_id, "cases.lab.evidence:machine", device)
    rows = {}
    for item in COLLECTION.every:
        rows[item.id] = evidence.dump([asdict(seen) for seen in seen_on(item, torch_id, device)])
        each()
    path = evidence.write_file(
        evidence.path_of(COLLECTION, torch_id, device, folder),
        evidence.new_provenance(COLLECTION, device, machine, COLLECTION.digest), {"seen": rows})
    return [(path, len(rows))]


def check(torch_id, device="cpu", ids=()):
    """Run all checks on a live torch; return the differences from what was recorded, as lines."""
    known = recorded(torch_id, device)
    if known is None:
        return [f"advice: nothing is recorded for {torch_id}, {device}"]
    found = [f"advice: {name} is older than a check; record it again"
             for name in evidence.stale(COLLECTION)]
    machine = torches.call(torch_id, "cases.lab.evidence:machine", device)
    same_processor = machine["processor"] == known["provenance"]["processor"]
    for item in COLLECTION.pick(ids):
        old = known["seen"].get(item.id, [])
        try:
            apart = differences(item, old, new := seen_on(item, torch_id, device), same_processor)
            if apart and any(seen.processor for seen in new):  # a busy machine: time it once more
                apart = differences(item, old, seen_on(item, torch_id, device), same_processor)
        except RuntimeError as error:
            apart = [str(error)]
        found += apart
    return found


def differences(item, old, new, same_processor=True):
    """Lines that say how one row's scenes differ from those recorded; numbers are not compared."""
    before, after = ({seen.scene: seen for seen in side} for side in (old, new))
    found = []
    for scene in {**before, **after}:
        was, now = before.get(scene), after.get(scene)
        if was and now and (now.processor and not same_processor or alike(was, now)):
            continue
        was, now = (f"{one.effect} ({one.shown})" if one else "not there" for one in (was, now))
        found.append(f"advice {item.id}, {scene}: was {was}, is {now}")
    verdicts = judged(old), judged(new)
    if found and verdicts[0] != verdicts[1]:
        found.append(f"advice {item.id}: the verdict here was {verdicts[0]!r}, is {verdicts[1]!r}")
    return found


def alike(one, other):
    return one.effect == other.effect and (
        one.processor or without_numbers(one.shown) == without_numbers(other.shown))
