"""Reads an exception into an Autopsy: finds its Scene and its kind, follows the odd operand's road,
and decides, in one place, whether the answer is sure."""

import linecache
import sys
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch

from ..dtypes import dtype_name
from . import failures, frames, road, seams
from .autocast import autocast_around
from .bindings import text
from .cure import Cure
from .home import INTO
from .kinds import Doubt, Question, finding_of
from .remedies import convert_module
from .scene import scene_of

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass
class Station:
    """One line of a road, as it is told. how: how the dtype came in there, or empty."""

    file: str
    line: int
    code: str
    name: str
    dtype: str
    how: str


class Followed(NamedTuple):
    """What the road of an odd operand tells: its Stations, a Cure, and what to ask."""

    stations: list
    cure: Cure | None
    questions: list


class Reader:
    """Reads one exception into an Autopsy, and goes with its call: it holds the user's objects."""

    def __init__(self, error, result):
        self.scene, self.result = scene_of(error), result

    def read(self):
        """Fill the Autopsy; what is found first at once, in case the rest cannot be read."""
        if self.scene.failure is not None:
            self.to_where()
        finding = finding_of(self.scene)
        if finding.scene is not None:
            self.scene = finding.scene
            self.to_where()
        self.to_answer(finding)

    def to_where(self):
        """Tell where it failed, as an outcome does, and the layout of tensors that are
        not plain."""
        self.result.where = failures.to_json(self.scene.failure)
        for told, (_, tensor, *_) in zip(self.result.where["operands"],
                                         self.scene.failure.operands, strict=True):
            if tensor is None:
                continue
            if tensor.is_quantized:
                told["layout"] = "quantised"
            elif tensor.is_nested:
                told["layout"] = "nested"
            elif tensor.layout is not torch.strided:
                told["layout"] = dtype_name(tensor.layout)

    def to_answer(self, finding):
        """Tell what a Finding says, with the road of its odd operand and the cure."""
        result, scene = self.result, self.scene
        result.where = finding.where or result.where
        result.said, result.case, result.why = finding.said, finding.case, finding.why
        questions, change = list(finding.questions), finding.cure
        if finding.odd is not None:
            result.odd = {"name": finding.odd.name, "dtype": dtype_name(finding.odd.dtype)}
            followed = follow(scene, finding)
            result.road = [asdict(station) for station in followed.stations]
            if result.where and result.road:
                result.where["origin"] = dict(result.road[0])
            questions += followed.questions
            change = change or followed.cure
        if scene.away:
            questions.append(Question("It was raised in another process: of its tensors only "
                                      "those that this one holds too can be told.",
                                      Doubt.ANOTHER_PROCESS))
        if finding.odd is not None or change:
            questions += doubts_of_columns(scene.sites)
        result.cure = change._asdict() if change else None
        result.asks = [question.text for question in questions]
        result.sure = is_sure(finding, questions)
        if scene.failure is not None and finding.about_dtypes:
            result.autocast = autocast_told(scene.failure)


def is_sure(finding, questions):
    """True if the kind is certain of what it says, and no question is asked that doubts it."""
    return finding.known is not False and not any(question.doubt for question in questions)


# --- the odd operand's road, and the cure at its seam ---------------------------------------------


def follow(scene, finding):
    """Follow the odd operand of a Finding back to where its dtype came in."""
    odd, home = finding.odd, finding.home
    if finding.steps is not None:
        return Followed(stations(finding.steps, odd.dtype), None, [])
    trail = road.trace(scene.failure, odd, finding.line)
    steps = weights_road(scene, odd.tensor, trail)
    change = seam(scene, trail, finding) if finding.at_seam else None
    # A cure of the line itself is right wherever the dtype came in.
    road_doubts = Doubt.ROAD if finding.at_seam else None
    questions = [Question(sentence[0].upper() + sentence[1:] + ".", road_doubts)
                 for sentence in trail.doubts]
    questions += doubts_of_home(scene, finding, trail)
    if finding.at_seam:
        questions += doubts_of_cure(scene, odd, home, change)
    return Followed(stations(steps, odd.dtype), change, questions)


def seam(scene, trail, finding):
    """The Cure: the weights left behind are converted, or the dtype is changed on its road."""
    odd, home = finding.odd, finding.home
    converted = None
    if scene.is_own_weight(odd.tensor) and not finding.whole:
        converted = convert_module(scene, odd.dtype, home)
    return converted or seams.along(trail, scene.failure, odd.node, home, finding.whole)


def doubts_of_home(scene, finding, trail):
    """Questions about which of the dtypes is the one that is meant."""
    odd, home, known = finding.odd, finding.home, finding.known
    if known is None:
        known = trail.how == "numpy" or scene.house.mostly(home, odd.dtype)
    if not known:
        yield Question(f"Which dtype is meant at this line: {dtype_name(home)}, as is assumed "
                       f"here, or {dtype_name(odd.dtype)}?", Doubt.HOME)
    if odd.dtype.is_complex and not home.is_complex:
        yield Question(f"Is the imaginary part of `{odd.name}` meant? A cast to "
                       f"{dtype_name(home)} drops it.", Doubt.HOME)
    if is_written_into(scene.failure, odd) and was_meant(trail):
        yield Question(f"Is `{odd.name}` meant to stay {dtype_name(odd.dtype)}? Then cast what is "
                       "written into it.", Doubt.WRITTEN_INTO)


def doubts_of_cure(scene, odd, home, change):
    if scene.is_own_weight(odd.tensor) and odd.tensor.requires_grad and odd.dtype == torch.float32:
        yield Question("Are these weights trained? In low precision they lose small updates. To "
                       "keep them float32, cast what they are given, and their result.",
                       Doubt.TRAINED)
    if home.is_floating_point and not scene.is_own_weight(odd.tensor):
        for weight in scene.failure.operands:
            if scene.is_own_weight(weight.tensor) and weight.dtype != home and \
                    weight.dtype.is_floating_point:
                yield Question(f"Is `{weight.name}` meant to stay {dtype_name(weight.dtype)}? With "
                               f"`{odd.name}` cast alone, it is the next to disagree.", Doubt.HOME)
    if odd.tensor is not None and odd.tensor.device.type == "cpu" and \
            odd.tensor.layout in COMPRESSED and home in (torch.float16, torch.bfloat16):
        kind = f"{dtype_name(odd.tensor.layout)} tensors in {dtype_name(home)}"
        yield Question(f"Has this torch a kernel for {kind}? If the cure ends in \"not "
                       "implemented\", compute this line in float32.", Doubt.KERNEL)
    if change is None:
        yield Question("Where does your own code hand it over? Cast it there: "
                       f".to({dtype_name(home)}).", Doubt.NO_CURE)


def doubts_of_columns(sites):
    """Python 3.10 tells the line that failed, and not which of its calls: the road is a guess
    wherever a line that it was read from has several."""
    guessed = next((site for site in reversed(sites) if len(site.candidates) > 1), None)
    if guessed is not None:
        version = ".".join(map(str, sys.version_info[:2]))
        at = f"{frames.show_file(guessed.filename)}:{guessed.line}"
        yield Question(f"Python {version} does not tell which of {len(guessed.candidates)} calls "
                       f"on the line {at} failed: split the line and run it again.",
                       Doubt.COLUMNS)


def is_written_into(failure, odd):
    """True for the tensor that an op writes into, or for one that autocast made to be written.

    Then either side may be the one to change: no census of a model decides that.
    """
    op, first = failure.op, failure.operands[0]
    if not odd.dtype.is_floating_point or odd.dtype == torch.float64:
        return False
    if op.rstrip("_") in INTO and odd.tensor is None:
        return True
    return (op.rstrip("_") in INTO or op.endswith("_")) and odd.name == first.name


def was_meant(trail):
    """True if someone may have chosen the dtype that a Trail begins with."""
    if trail.how == "cast":
        return True
    return trail.how in ("made", "attribute", "buffer") and any(
        seams.chosen(step.node) for step in trail.steps[:1] if seams.is_call(step.node))


def weights_road(scene, tensor, trail):
    """The steps of a Trail; for a parameter, first the line that made or converted it."""
    if trail.how != "parameter":
        return trail.steps
    holder = tensor if scene.is_own_weight(tensor) else trail.held
    made = scene.house.made(holder, trail.dtype) if holder is not None else None
    if made is None:
        return trail.steps
    site, node = made
    return [road.Step(site, node.lineno, node, text(node), "parameter"), *trail.steps]


def stations(steps, dtype):
    """The Stations of steps, one a line."""
    found = []
    for step in steps:
        told = Station(frames.show_file(step.site.filename), step.line,
                       cut(linecache.getline(step.site.filename, step.line).strip()),
                       cut(step.name, 80), dtype_name(dtype), step.how)
        last = found[-1] if found else None
        if last is not None and (last.file, last.line) == (told.file, told.line):
            last.how = last.how or told.how
        else:
            found.append(told)
    return found


def cut(text, longest=200):
    """A text for one line; of a longer one its beginning."""
    return text if len(text) <= longest else text[:longest].rstrip() + " …"


def autocast_told(failure):
    """Which autocast block stood around the line that failed, and what it does to it."""
    around = autocast_around(failure.site, failure.site.line)
    device = next((o.tensor.device.type for o in failure.operands if o.tensor is not None), "cpu")
    if around is None:
        return ("None is seen around these lines; one that a trainer switches on does not show in "
                "a traceback.")
    at = f"{frames.show_file(around['site'].filename)}:{around['line']}"
    if around["enabled"] is False:
        return f"Switched off here, by the block at {at}."
    if around["device"] not in (None, device):
        return (f"The block at {at} is for {around['device']}; these tensors are on {device}, "
                "where it does nothing.")
    dtype = dtype_name(around["dtype"]) or "a dtype that cannot be read"
    unsure = "" if around["enabled"] else ", if it is switched on"
    return f"On for {around['device'] or device} in {dtype}{unsure}: {at}."
