"""The road of an odd dtype: from the operand that failed back to where that dtype came in.

Read from source and names, backwards: the last binding of a name, what its expression works on,
the caller's argument, the return of a function that is no longer there. Where two roads are equally
likely the Trail says so.
"""

import ast
import types
from dataclasses import dataclass, field

import torch

from ..dtypes import dtype_name
from . import failures, frames, values
from .bindings import (
    ANY,
    as_call,
    bindings,
    default_of,
    entries,
    entry_name,
    is_kwarg,
    line_of_definition,
    names_in,
    own_nodes,
    parameters,
    positional,
    statement_line,
    text,
)
from .calls import cast_of
from .functions import Function, left_over
from .past import Past
from .rules import UNKNOWN, How, Place, effect_of
from .values import MISSING, is_a, module_name, space_of

STEPS = 80  # of one road


@dataclass
class Step:
    """One station of a road: a line of a Site, the name and node that carried the dtype there."""

    site: frames.Site
    line: int
    node: ast.AST
    name: str
    how: str = ""
    inside: bool = False  # the name is that of a list, dict or object which held the tensor
    handed: tuple | None = None  # (node, name) of a call on the same line that was handed it


@dataclass
class Trail:
    """Steps from the entry to the failing line. how: how the dtype entered.

    doubts: sentences; none where the road was read to its end without a choice.
    """

    dtype: torch.dtype
    steps: list = field(default_factory=list)
    doubts: list = field(default_factory=list)
    how: str = "unknown"
    held: torch.Tensor | None = None  # the parameter that it came out of


def trace(failure, operand, line=None):
    """Return the Trail of an Operand of a Failure back to where its dtype came in.

    line: of the Failure's site, where its expression stands; the one it was busy with if None.
    """
    tracker, site = Tracker(operand.dtype), failure.site
    line = line or site.line
    tracker.add(site, line, failure.node, operand.name)
    pick = (operand.name,) if operand.node is getattr(failure.node, "func", None) else ()
    if isinstance(operand.node, ast.Starred):
        pick = (ANY,)
    tracker.run(operand.node, site, statement_line(site, line), pick)
    tracker.trail.steps.reverse()
    return tracker.trail


class Tracker(Past):
    """Walks a road backwards, from expression to expression, and notes its stations in a Trail."""

    def __init__(self, dtype):
        super().__init__(dtype)
        self.trail = Trail(dtype, doubts=self.doubts)
        self.visited = set()

    def run(self, node, site, line, pick):
        """Walk back from `node`, evaluated at `line` of `site`, until the dtype's entry.

        pick: entries still to be taken from what the node stands for: keys, places, attributes.
        """
        place = (node, site, line, pick)
        for _ in range(STEPS):
            key = (id(place[0]), id(place[1]), place[2], place[3])
            if key in self.visited:
                self.doubt(f"`{text(place[0])}` is fed back to itself in a loop")
                return
            self.visited.add(key)
            place = self.back(*place)
            if place is None:
                return
        self.doubt("the road was too long to follow to its end")

    def back(self, node, site, line, pick):
        if not site.mine and (known := self.readers_name(node, site, line, pick)) is not None:
            return known
        if self.is_other(node, site, line, pick):
            self.doubt(f"`{text(node)}` is of another dtype now: the road is lost there")
            return None
        if isinstance(node, ast.Name):
            return self.back_name(node, site, line, pick)
        if isinstance(node, ast.Attribute):
            return self.back_attribute(node, site, line, pick)
        if isinstance(node, ast.Subscript):
            return self.back_subscript(node, site, line, pick)
        if isinstance(node, (ast.Tuple, ast.List, ast.Dict)):
            return self.back_literal(node, site, line, pick)
        place = Place(node, site, line, pick)
        return self.follow(effect_of(self, place) or UNKNOWN, place)

    def is_other(self, node, site, line, pick):
        """True if what is followed is a tensor of another dtype: then the road went wrong."""
        if not isinstance(node, ast.Name) or pick:
            return False
        value = self.value_at(node, site, line)
        return values.is_tensor(value) and failures.dtype_of(value) != self.dtype and \
            failures.is_floating(failures.dtype_of(value)) and failures.is_floating(self.dtype)

    def readers_name(self, node, site, line, pick):
        """Go straight to a function of the reader's own that has a name for the same tensor."""
        value = self.value_at(node, site, line)
        for key in pick:
            value = values.item(value, key)
        if not values.is_tensor(value):
            return None
        outer = site.parent
        while outer is not None:
            called = [name for name, held in outer.locals.items()
                      if held is value and name.isidentifier()] if outer.mine else []
            if called:
                at, busy = statement_line(outer, outer.line), frames.working(outer)
                part = self.handed_on(busy, called, outer)
                self.add(outer, at, busy or part, text(part))
                return part, outer, at, ()
            outer = outer.parent
        return None

    def handed_on(self, busy, called, site):
        """The part of a call that stands for a tensor with these names; one of them, if none does.

        y = x.float() may be x itself. The road leads through the cast, which would undo a cure
        before it, and through the name that was handed on.
        """
        found = ast.Name(called[0], ast.Load())
        for part in ast.walk(busy) if isinstance(busy, ast.Call) else ():
            if isinstance(part, ast.Call) and part is not busy and names_in(part) & set(called) \
                    and cast_of(part, site) == self.dtype:
                return part
            if isinstance(part, ast.Name) and part.id in called:
                found = part
        return found

    def back_literal(self, node, site, line, pick):
        if pick and isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == pick[0]:
                    return value, site, line, pick[1:]
                if key is None and self.has(value, site, pick[0]):  # {**other}
                    return value, site, line, pick
        elif pick and pick[0] == ANY and not isinstance(node, ast.Dict) and node.elts:
            return self.likely(node.elts, site, line), site, line, pick[1:]
        elif pick and isinstance(pick[0], int) and -len(node.elts) <= pick[0] < len(node.elts):
            return node.elts[pick[0]], site, line, pick[1:]
        elif isinstance(node, (ast.Tuple, ast.List)) and not pick:
            return self.back_operands(node.elts, node, site, line)
        return self.end("made", node, site, line)

    def has(self, node, site, key):
        return values.item(values.look_up(node, site), key) is not MISSING

    def likely(self, options, site, line):
        """The node that is of the odd dtype, of several; the first, with a doubt, if unclear."""
        fitting = [node for node in options if self.dtype_at(node, site, line) == self.dtype]
        alike = {text(failures.base_name(node) or node) for node in options}
        unknown = [node for node in options if self.dtype_at(node, site, line) is None
                   and self.value_at(node, site, line) is MISSING]
        if (len(fitting) != 1 or unknown) and len(alike) > 1:
            self.doubt(f"line {line} of {frames.show_file(site.filename)} may take either branch")
        return (fitting or options)[0]

    def back_operands(self, nodes, whole, site, line):
        """Go on with the operand that is of the odd dtype: it gives the result its dtype."""
        known = [(node, self.dtype_at(node, site, line)) for node in nodes]
        odd = [node for node, dtype in known if dtype == self.dtype]
        others = {dtype for _, dtype in known
                  if dtype is not None and dtype.is_floating_point and dtype != self.dtype}
        if len(odd) > 1:  # a tensor of no dimension gives no dtype to others
            odd = [node for node in odd if not self.is_scalar(node, site, line)] or odd
        if odd:
            how = "cat" if others else ""
            self.add(site, line, whole, text(odd[0]), how)
            return odd[0], site, line, ()
        unknown = [node for node, dtype in known if dtype is None
                   and not self.is_number(node, site, line)]
        if len(unknown) == 1:
            return unknown[0], site, line, ()
        if unknown and len({frozenset(names_in(node)) for node in unknown}) > 1:
            self.doubt(f"which of the operands in `{text(whole)}` was {dtype_name(self.dtype)} "
                       "cannot be read any more")
        if unknown:
            return unknown[0], site, line, ()
        return self.end("made", whole, site, line)

    def back_name(self, node, site, line, pick):
        source = frames.scope(site)
        if not site.mine and "torch" in site.filename and node.id in parameters(source):
            return self.back_argument(node.id, site, pick)  # torch hands on what it was given
        binding = self.binding(node.id, site, line)
        if binding is None:
            return self.back_outside(node, site, line, pick)
        if pick and (entry := self.entry(node.id, source, site, line, pick)):
            return entry
        if pick[:1] == (ANY,) and self.is_source(node, site, line):
            return self.end("loader", node, site, line)
        if binding.kind == "argument":
            return self.back_argument(node.id, site, pick)
        if binding.kind == "same":  # x += y keeps the dtype of x
            return node, site, binding.line, pick
        if binding.kind == "with":
            return self.end("unknown", node, site, binding.line)
        pick = (*binding.pick, *pick)
        if binding.kind == "for":
            pick = (ANY, *pick)
        self.add(site, binding.line, binding.node, node.id, inside=pick)
        return binding.node, site, binding.line, pick

    def is_source(self, node, site, line):
        """True for an object that makes the entries which are gone over, as a DataLoader does."""
        value = self.value_at(node, site, line)
        return value is not MISSING and not values.is_tensor(value) and not is_a(
            value, (list, tuple, dict, types.GeneratorType, zip, map, enumerate))

    def entry(self, name, source, site, line, pick):
        """Go on with what was put into a list or dict after it was made: append, x[i] = y."""
        if source is None:
            return None
        put = [(part, at, key) for part, at, key in entries(source, name) if at < line or
               isinstance(site, Function)]
        if isinstance(pick[0], str) and pick[0] != ANY:
            put = [entry for entry in put if entry[2] == pick[0]]
        elif any(key == pick[0] for _, _, key in put):
            put = [entry for entry in put if entry[2] == pick[0]]
        if not put:
            return None
        fitting = [entry for entry in put if self.dtype_at(entry[0], site, entry[1]) == self.dtype]
        if len(put) > 1 and len(fitting) != 1:
            self.doubt(f"`{name}` is filled at several lines of {frames.show_file(site.filename)}")
        node, at, _ = (fitting or put)[-1]
        self.add(site, at, node, name)
        return node, site, at, pick[1:]

    def back_outside(self, node, site, line, pick):
        """A name that its function does not bind: an enclosing function's, or a global."""
        value = values.look_up(node, site)
        outer = site.parent
        if site.name in frames.COMPREHENSIONS and outer is not None and node.id in outer.locals:
            return node, outer, statement_line(outer, outer.line), pick
        while outer is not None:
            if outer.locals is site.globals or outer.locals.get(node.id, MISSING) is value is not \
                    MISSING and outer.name != site.name:
                if node.id in outer.locals:
                    return node, outer, statement_line(outer, outer.line), pick
            outer = outer.parent
        if node.id not in site.globals and site.code is not None:
            # The function that made this one is over; its source tells what it bound.
            for function in frames.functions_around(site.filename, site.code.co_firstlineno):
                own = frames.first_line_of_code(frames.scope(site))
                if frames.first_line_of_code(function) != own and (
                        node.id in parameters(function) or bindings(function, node.id)):
                    maker = frames.Site(site.filename, float("inf"), function.name, None,
                                        ({}, site.globals), None, source=function)
                    return node, maker, float("inf"), pick
        if node.id in site.globals and value is not MISSING and site.name != "<module>":
            module = frames.Site(site.filename, float("inf"), "<module>", site.code,
                                 (site.globals, site.globals), None)
            if self.binding(node.id, module, float("inf")) is not None:
                return node, module, float("inf"), pick
        return self.end("unknown", node, site, line)

    def back_argument(self, name, site, pick):
        """Go on in the caller, with what it handed over under `name`."""
        source = frames.scope(site)
        place = positional(source).index(name) if name in positional(source) else None
        arguments = source.args
        if arguments.vararg and arguments.vararg.arg == name:
            if not pick or not isinstance(pick[0], int):
                return self.end("argument", source, site, line_of_definition(source))
            place, pick = len(positional(source)) + pick[0], pick[1:]
            name = None
        elif arguments.kwarg and arguments.kwarg.arg == name:
            if not pick:
                return self.end("argument", source, site, line_of_definition(source))
            name, pick = pick[0], pick[1:]
        if place is not None:
            place -= self.implicit_arguments(source, site)
            if place < 0:
                return self.end("unknown", source, site, line_of_definition(source))
        return self.given(place, name, site, pick)

    def given(self, place, name, site, pick):
        """Find what was passed at `place`, or as `name`, to the function of `site`."""
        caller, call, line = self.call_of(site)
        if call is None:
            if site.code is None:
                return self.end("unknown", frames.scope(site), site,
                                line_of_definition(frames.scope(site)))
            if caller is None:
                return self.end("argument", frames.scope(site), site,
                                line_of_definition(frames.scope(site)))
            return self.end("unknown", frames.scope(site), site,
                            line_of_definition(frames.scope(site)))
        own = frames.scope(caller)
        for number, node in enumerate(call.args):
            if isinstance(node, ast.Starred):
                if place is None or place < number:
                    continue
                value = values.look_up(node.value, caller)
                rest = len(value) if is_a(value, (tuple, list)) else left_over(caller)
                if rest is not None and place - number >= rest:
                    place = None  # it was passed by its name
                    continue
                hook = self.hooked(caller, place - number, value)
                if hook is not None:
                    return hook
                return node.value, caller, line, (place - number, *pick)
            if number == place:
                self.hand_over(caller, line, call, node, pick)
                return node, caller, line, pick
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg == name:
                self.hand_over(caller, line, call, keyword.value, pick)
                return keyword.value, caller, line, pick
        for keyword in call.keywords:
            if keyword.arg is None and name is not None:
                value = values.look_up(keyword.value, caller)
                if value is MISSING or values.item(value, name) is not MISSING:
                    if not is_kwarg(own, keyword.value):
                        self.hand_over(caller, line, call, keyword.value, (name, *pick))
                    return keyword.value, caller, line, (name, *pick)
        default = default_of(frames.scope(site), name)
        if default is not None and getattr(default, "value", True) is not None:
            return default, site, line_of_definition(frames.scope(site)), pick
        return self.end("unknown", call, caller, line)

    def hand_over(self, site, line, call, node, pick):
        self.add(site, line, call, text(node), inside=pick)

    def hooked(self, caller, place, value):
        """Go on in a forward pre-hook, where one changed the arguments of a module's call."""
        if not caller.filename.replace("\\", "/").endswith("torch/nn/modules/module.py"):
            return None
        module = caller.module
        if module is None and caller.parent is not None:
            module = caller.parent.module
        hooks = list(values.held(module, "_forward_pre_hooks").values()) \
            if module is not None else []
        outer = caller
        while outer is not None and outer.name != "_wrapped_call_impl":
            outer = outer.parent
        if not hooks or outer is None:
            return None
        before = values.item(outer.locals.get("args", MISSING), place)
        after = values.item(value, place)
        if before is after or before is MISSING or after is MISSING:
            return None
        hook = next((h for h in reversed(hooks) if is_a(h, types.FunctionType)), None)
        if hook is None:
            return None
        inside = Function(hook, module, caller, None)
        ends = inside.ends()
        if not ends:
            return None
        pick = (place,) if isinstance(ends[-1][0], (ast.Tuple, ast.List)) or text(
            ends[-1][0]).startswith("tuple(") else ()
        return ends[-1][0], inside, ends[-1][1], pick

    def back_attribute(self, node, site, line, pick):
        bound = self.binding(text(node), site, line)
        if bound is not None and bound.kind == "value":
            self.add(site, bound.line, bound.node, text(node))
            return bound.node, site, bound.line, (*bound.pick, *pick)
        if node.attr == "saved_tensors" and (saved := self.saved(site, pick)):
            return saved
        owner = self.value_at(node.value, site, line)
        if values.is_tensor(owner) or node.attr == "real":
            return node.value, site, line, pick
        effect = effect_of(self, Place(node, site, line, pick))
        if effect is not None:
            return self.follow(effect, Place(as_call(node), site, line, pick))
        if values.is_module(owner):
            return self.back_stored(node, owner, site, line, pick)
        if pick and (put := self.attribute_filled(owner, node.attr)):
            return (*put, pick[1:])
        made = self.attribute_made(owner, node.attr)
        if made is not None:
            return (*made, pick)
        if text(node.value) == "self" and values.is_tensor(values.attribute(owner, node.attr)):
            self.doubt(f"what set `{text(node)}` is not in sight")
            return self.end("attribute", node, site, line)
        return node.value, site, line, (node.attr, *pick)

    def saved(self, site, pick):
        """ctx.saved_tensors in a backward: what its forward gave to save_for_backward."""
        outer = getattr(site.code, "co_qualname", "").split(".")[0]
        forward = values.attribute(site.globals.get(outer, MISSING), "forward")
        forward = forward.__func__ if is_a(forward, types.MethodType) else forward
        if not is_a(forward, types.FunctionType) or not pick:
            return None
        inside = Function(forward, MISSING, None, None)
        for node in own_nodes(frames.scope(inside) or ast.Pass()):
            if isinstance(node, ast.Call) and text(node.func).endswith(".save_for_backward") and \
                    isinstance(pick[0], int) and pick[0] < len(node.args):
                return node.args[pick[0]], inside, node.lineno, pick[1:]
        return None

    def back_stored(self, node, owner, site, line, pick):
        """A tensor that a module holds: as parameter, as buffer, or as a plain attribute."""
        own = values.stored(owner)
        for store, how in (("_parameters", "parameter"), ("_buffers", "buffer")):
            if node.attr in values.held(owner, store):
                if how == "buffer" and (made := self.attribute_made(owner, node.attr)):
                    self.end(how, node, site, line)
                    self.add(made[1], made[2], made[0], node.attr, how)
                    return None
                if how == "parameter":
                    self.trail.held = values.held(owner, store)[node.attr]
                return self.end(how, node, site, line)
        if (held_by := parametrized(owner, node.attr, self.dtype)) is not None:
            self.trail.held = held_by
            return self.end("parameter", node, site, line)
        made = self.attribute_made(owner, node.attr)
        if made is None:
            if node.attr in own:
                self.doubt(f"what set `{text(node)}` is not in sight")
            return self.end("attribute" if node.attr in own else "unknown", node, site, line)
        # A float64 one comes from what made it; another is odd for being no buffer.
        by_function = self.dtype == torch.float64 and isinstance(
            made[0], ast.Call) and self.function_of(*made)[0] is not None
        if pick or by_function or not values.is_tensor(own.get(node.attr)):
            self.add(made[1], made[2], made[0], node.attr)
            return (*made, pick)
        self.end("attribute", node, site, line)
        self.add(made[1], made[2], made[0], f"{text(node.value)}.{node.attr}", "attribute")
        return None

    def methods(self, owner):
        """Yield (Function, its ast) of the methods of the reader's own class."""
        if owner is MISSING or module_name(type(owner)).startswith(("torch.", "builtins")):
            return
        for function in list(space_of(type(owner)).values()):
            if is_a(function, types.FunctionType):
                inside = Function(function, owner, None, None)
                if (source := frames.scope(inside)) is not None:
                    yield inside, source

    def attribute_filled(self, owner, name):
        """Return (node, site, line) of the one `self.name[…] = node` in the class, or None."""
        put = [(node, inside, line) for inside, source in self.methods(owner)
               for node, line, _ in entries(source, f"self.{name}")]
        return put[0] if len(put) == 1 else None

    def attribute_made(self, owner, name):
        """Return (node, site, line) of `self.name = node` in the class of `owner`, or None."""
        for inside, source in self.methods(owner):
            for part in own_nodes(source):
                if isinstance(part, ast.Assign) and any(
                        text(t) == f"self.{name}" for t in part.targets) and \
                        getattr(part.value, "value", True) is not None:
                    return part.value, inside, part.lineno
                if isinstance(part, ast.Call) and text(part.func) == "self.register_buffer" and \
                        len(part.args) > 1 and getattr(part.args[0], "value", None) == name:
                    return part.args[1], inside, part.lineno
        return None

    def back_subscript(self, node, site, line, pick):
        bound = self.binding(text(node), site, line)
        if bound is not None and bound.kind == "value":
            self.add(site, bound.line, bound.node, text(node))
            return bound.node, site, bound.line, (*bound.pick, *pick)
        base = self.value_at(node.value, site, line)
        key = values.look_up(node.slice, site)
        if not values.is_tensor(base) and is_a(base, (dict, list, tuple)) and not \
                values.is_key(key):
            key = ANY
        if values.is_tensor(base) or not values.is_key(key):
            return node.value, site, line, pick
        if key == ANY:
            self.add(site, line, node.value, text(node.value))
            return node.value, site, line, (ANY, *pick)
        if values.is_module(base):
            self.trail.held = values.item(base, key)
            return self.end("parameter", node, site, line)
        return node.value, site, line, (key, *pick)

    def follow(self, effect, place):
        """Go on with the part of an Effect that is of the odd dtype; None at the road's end."""
        while effect.otherwise is not None and effect.dtype != self.dtype:
            effect = effect.otherwise  # autocast gave no such dtype
        node, site, line, _ = place
        if effect.how is How.PARAMETER and self.dtype in failures.parameters_of(effect.module[0]):
            return self.parameter(*effect.module, site, line, node)
        if effect.quiet:
            self.add(site, line, node, entry_name(node), effect.how.value)
            return None
        is_new = effect.how is How.LIKE and not self.dtype.is_floating_point
        if is_new or not effect.parts:
            return self.end(self.how_of_end(effect), node, site, line)
        if effect.name:
            self.add(site, line, node, effect.name, inside=effect.inside)
        if effect.how in (How.JOINS, How.PARAMETER):
            return self.back_operands([part.node for part in effect.parts], node, site, line)
        if effect.how is How.CHOICE:
            return place._replace(node=self.likely(
                [part.node for part in effect.parts], site, line))
        return self.likely_end(effect.parts, node) if effect.how is How.ENTERS \
            else effect.parts[0]

    def how_of_end(self, effect):
        """How the dtype came in, at an Effect that nothing is followed from."""
        if effect.how in (How.JOINS, How.LIKE):
            return "made"
        another = effect.how is How.CAST and effect.dtype not in (None, self.dtype)
        return "unknown" if another or effect.how is How.PARAMETER else effect.how.value

    def likely_end(self, ends, call):
        """Of the ends of a function the one that is of the odd dtype; else the last."""
        if len(ends) == 1:
            return ends[0]
        fitting = [end for end in ends if not end.pick
                   and self.dtype_at(*end[:3]) == self.dtype]
        if len(fitting) != 1:
            self.doubt(f"`{text(call.func)}` returns at several lines")
        return (fitting or ends)[-1]

    def parameter(self, module, node, site, line, call):
        own = [(path, name, p) for path, part in values.walk(module)
               for name, p in values.own_tensors(part, ("_parameters",)) if p.dtype == self.dtype]
        path, name, self.trail.held = own[0]
        label = ".".join(part for part in (text(node), path, name) if part)
        self.add(site, line, call, label.replace("self.", "", 1), "parameter")
        self.trail.how = "parameter"
        return None

    def add(self, site, line, node, name, how="", inside=False):
        """Note a station; a second one of the same line only adds how."""
        if failures.is_machinery(site):
            return
        line = getattr(node, "lineno", line) if line == float("inf") else line
        steps = self.trail.steps
        if len(steps) > 1 and steps[-1].site.filename == site.filename and steps[-1].line == line:
            if not steps[-1].inside and isinstance(steps[-1].node, ast.Call):
                steps[-1].handed = steps[-1].handed or (steps[-1].node, steps[-1].name)
            steps[-1].how = how or steps[-1].how
            steps[-1].node, steps[-1].name = node, name or steps[-1].name
            steps[-1].inside = bool(inside)
            return
        steps.append(Step(site, line, node, name, how, bool(inside)))

    def end(self, how, node, site, line):
        own = getattr(node, "lineno", None)
        if own is not None and own > line and not isinstance(node, ast.FunctionDef):
            line = own  # of a statement over several lines, the one that it stands on
        self.add(site, line, node, entry_name(node), how)
        self.trail.how = how
        if how == "unknown":
            self.doubt(f"where `{entry_name(node)}` got its dtype cannot be read from here")
        return None


def parametrized(module, name, dtype):
    """The parameter of that dtype behind a weight which is computed when it is read, or None."""
    made = values.held(module, "_modules").get("parametrizations")
    made = values.item(made, name) if values.is_module(made) else MISSING
    if not values.is_module(made):
        return None
    return next((tensor for _, part in values.walk(made) for _, tensor in values.own_tensors(part)
                 if tensor.dtype == dtype), None)
