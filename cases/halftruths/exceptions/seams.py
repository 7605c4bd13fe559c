"""The seam of an odd dtype's road: the one place on it where a cast, or another dtype, belongs.

Each seam is a function that returns a Cure or None; the first one that does is taken. Only the
reader's own files are changed.
"""

import ast
from typing import NamedTuple

import torch

from . import cure, failures, frames, values
from .bindings import bindings, own_nodes, text
from .calls import SEVERAL, keyword_of
from .functions import Function
from .road import Step, Trail

REDUCES = ("softmax", "log_softmax", "sum", "mean", "cumsum", "prod")


class Road(NamedTuple):
    """What the seams are asked about: a Trail that should have had the dtype `home`.

    odd: the node of the odd operand. steps: those in the reader's own files.
    whole: an explicit cast is changed at once, for nothing of its dtype is wanted.
    """

    trail: Trail
    failure: failures.Failure
    odd: ast.AST
    home: torch.dtype
    steps: list
    whole: bool

    @property
    def entry(self):
        """The first Step in the reader's own files."""
        return self.steps[0]

    def enters_as(self, *hows, kind=ast.Call):
        """True if the dtype came in at the entry, in one of these ways, by such a node."""
        return self.entry is self.trail.steps[0] and self.trail.how in hows and isinstance(
            self.entry.node, kind)

    @property
    def is_cast(self):
        """True if the dtype came in by an explicit cast, which could name another dtype."""
        node = self.entry.node
        return self.enters_as("cast") and failures.operation(node) not in REDUCES and \
            not cure.is_quantised(self.trail.dtype) and \
            not values.is_module(values.look_up(node.func, self.entry.site))

    @property
    def was_chosen(self):
        """True if a creation wrote the dtype down: someone wanted it there."""
        return self.enters_as("made") and chosen(self.entry.node)

    def cast(self, site, *nodes):
        """The Cure that casts nodes of a Site; a creation among them is made in the dtype."""
        found = cure.change(site, [(node, cure.cast(site, node, self.home)) for node in nodes])
        return found and self.priced(found, self.trail.how == "made" and all(
            cure.created(site, node, self.home) for node in nodes))

    def recast(self):
        """The Cure that gives the cast at the entry another dtype."""
        site, node = self.entry.site, self.entry.node
        found = cure.change(site, [(node, cure.recast(site, node, self.home))])
        return found and self.priced(found)

    def priced(self, found, created=False):
        drawn = "; random numbers are others" if created and "rand" in found.code else ""
        return found.at_the_price_of(cure.price(self.trail.dtype, self.home, created) + drawn)


def along(trail, failure, odd, home, whole=False):
    """Return the Cure that gives the odd dtype's road the dtype `home`, at its seam, or None."""
    steps = [step for step in trail.steps if step.site.mine]
    road = Road(trail, failure, odd, home, steps, whole)
    return next(filter(None, (seam(road) for seam in SEAMS)), None) if steps else None


def quantised_operand(road):
    """A quantised tensor is made plain on the line that failed, or where it was last handed on."""
    if not cure.is_quantised(road.trail.dtype):
        return None
    at = [(road.failure.site, road.odd)] if road.failure.site.mine else [
        (step.site, piece_of(step, step.node, step.name)) for step in reversed(road.steps)]
    for site, node in at:
        if node is not None:
            plain = cure.cast(site, node, road.home, quantised=True)
            return road.priced(cure.change(site, [(node, plain)]))
    return None


def creation_without_a_dtype(road):
    """Nobody chose the dtype of what was made: it is made in the right one."""
    if road.enters_as("made", "numpy") and not chosen(road.entry.node):
        return road.cast(road.entry.site, road.entry.node)
    return None


def cast_of_the_whole(road):
    return road.recast() if road.whole and road.enters_as("cast") else None


def result_of_an_operator(road):
    """An operator made the dtype, of integers say: its result is cast."""
    if road.enters_as("made", kind=ast.BinOp):
        return road.cast(road.entry.site, road.entry.node)
    return None


def result_of_a_layer(road):
    """A layer's weights gave the dtype: its result is cast."""
    if road.enters_as("parameter"):
        return road.cast(road.entry.site, road.entry.node)
    return None


def parameters_read_at_the_line(road):
    """A parameter is read on the line that failed: it is cast there, with those beside it."""
    site = road.failure.site
    if road.trail.how != "parameter" or not site.mine or not isinstance(road.odd, ast.Attribute):
        return None
    alike = [part for part in on_line(road.failure)
             if dtype_of(part, site) == road.trail.dtype]
    return road.cast(site, *(alike or [road.odd]))


def cast_in_code_that_runs(road):
    """An explicit cast in a function that is still at work names another dtype."""
    return road.recast() if road.is_cast and not isinstance(road.entry.site, Function) else None


def handed_over(road):
    """Cast where one function hands it to the next; in functions that are at work, if possible."""
    for step in sorted(road.steps, key=lambda step: isinstance(step.site, Function)):
        if isinstance(step.site, Function) and (step.how or step.site.module is not None) or \
                road.was_chosen and step is road.entry:
            continue
        piece = piece_of(step, step.node, step.name)
        if piece is not None:
            return road.cast(step.site, piece)
    return None


def handed_on_in_the_same_line(road):
    for step in road.steps:
        piece = piece_of(step, *step.handed) if step.handed else None
        if piece is not None:
            return road.cast(step.site, piece)
    return None


def creation_with_a_dtype(road):
    """Someone chose the dtype of what was made; no place after it is there to cast it."""
    return road.cast(road.entry.site, road.entry.node) if road.was_chosen else None


def operand_at_the_line(road):
    """The operand itself, on the line that failed or where its name was bound."""
    failure, odd = road.failure, road.odd
    if not hasattr(odd, "lineno") or not failure.site.mine or odd in (
            failure.node, getattr(failure.node, "func", None)):
        return None
    return road.cast(failure.site, bound_once(odd, failure) or odd)


def cast_in_code_that_is_over(road):
    return road.recast() if road.is_cast else None


SEAMS = (
    quantised_operand, creation_without_a_dtype, cast_of_the_whole, result_of_an_operator,
    result_of_a_layer, parameters_read_at_the_line, cast_in_code_that_runs, handed_over,
    handed_on_in_the_same_line, creation_with_a_dtype, operand_at_the_line,
    cast_in_code_that_is_over,
)


def bound_once(odd, failure):
    """What a name was bound to, where it is read again further down: cast there, once."""
    source, line = frames.scope(failure.site), failure.site.line
    name = failures.base_name(odd)
    if source is None or not isinstance(name, ast.Name):
        return None
    again = any(isinstance(node, ast.Name) and node.id == name.id and node.lineno > line
                and isinstance(node.ctx, ast.Load) for node in own_nodes(source))
    before = [b for b in bindings(source, name.id) if b.line < line]
    plain = before and before[-1].kind == "value" and not before[-1].pick
    return before[-1].node if again and plain else None


def on_line(failure):
    """The attributes read on the line that failed: beside an odd parameter there may be another."""
    source, line = frames.scope(failure.site), failure.site.line
    return [node for node in own_nodes(source) if isinstance(node, ast.Attribute)
            and node.lineno == line and isinstance(node.ctx, ast.Load)] if source else []


def dtype_of(node, site):
    value = values.look_up(node, site)
    return failures.dtype_of(value) if values.is_tensor(value) else None


def chosen(node):
    """True for a creation whose dtype is written down: someone wanted it, for positions say."""
    return failures.operation(node) not in ("from_numpy",) and keyword_of(node, "dtype") is not None


def is_call(node):
    return isinstance(node, ast.Call)


def piece_of(step: Step, node, name):
    """The part of a step's expression that carries the odd dtype, to be cast there, or None."""
    inside = step.inside and node is step.node
    if inside or not hasattr(node, "lineno"):
        return None
    if isinstance(node, ast.Call):
        if failures.operation(node) in SEVERAL:
            return None
        parts = [part for part in cure.all_parts(node) if text(part) == name]
        if any(values.look_up(part, step.site) is not values.MISSING and not values.is_tensor(
                values.look_up(part, step.site)) for part in parts):
            return None  # an object that held the tensor
        called = values.look_up(node.func, step.site)
        if is_at_work(node, step.site):
            return parts[0] if parts else None  # it raised: there is no result to cast
        if step.how in ("parameter", "cast", "made") or values.is_module(called) and not parts:
            return node
        if parts:
            return parts[0]
        return node if step.how not in ("", "loader") else None
    if isinstance(node, ast.BinOp):
        return next((p for p in (node.left, node.right) if text(p) == name), None)
    if isinstance(node, (ast.Attribute, ast.Subscript)) and step.how in ("parameter", "buffer",
                                                                       "attribute"):
        return node
    return None


def is_at_work(node, site):
    """True for the expression that a frame of the traceback was busy with."""
    return not isinstance(site, Function) and frames.working(site) is node
