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
    entry_of,
    is_kwarg,
    leaves,
    names_in,
    own_nodes,
    parameters,
    positional,
    starts,
    starts_line,
    statement_line,
    text,
)
from .calls import CREATES, JOINS, KEEPS, LIKE, LOADS, cast_of, keyword_of, receiver_of
from .functions import Function, left_over
from .past import DEPTH, Past
from .values import MISSING, is_a, is_numpy, is_torch, module_name, mro, space_of

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
        if isinstance(node, (ast.Await, ast.Starred, ast.NamedExpr, ast.YieldFrom)):
            return node.value, site, line, pick
        if isinstance(node, ast.Name):
            return self.back_name(node, site, line, pick)
        if isinstance(node, ast.Attribute):
            return self.back_attribute(node, site, line, pick)
        if isinstance(node, ast.Subscript):
            return self.back_subscript(node, site, line, pick)
        if isinstance(node, ast.Call):
            return self.back_call(node, site, line, pick)
        if isinstance(node, ast.BinOp):
            return self.back_operands(leaves(node), node, site, line)
        if isinstance(node, ast.UnaryOp):
            return node.operand, site, line, pick
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            return self.back_choice(node, site, line, pick)
        if isinstance(node, (ast.Tuple, ast.List, ast.Dict)):
            return self.back_literal(node, site, line, pick)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return node.elt, site, node.elt.lineno, pick[1:]
        return self.end("made" if isinstance(node, ast.Compare) else "unknown", node, site, line)

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
            name = next((name for name, held in outer.locals.items()
                         if held is value and name.isidentifier()), None) if outer.mine else None
            if name is not None:
                at = statement_line(outer, outer.line)
                self.add(outer, at, frames.working(outer) or ast.Name(name), name)
                return ast.Name(name, ast.Load()), outer, at, ()
            outer = outer.parent
        return None

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

    def back_choice(self, node, site, line, pick):
        if isinstance(node, ast.IfExp):
            truth = self.truth(node.test, site, line)
            if truth is not None:
                return (node.body if truth else node.orelse), site, line, pick
            options = [node.body, node.orelse]
        else:
            options = node.values
        return self.likely(options, site, line), site, line, pick

    def likely(self, options, site, line):
        """The node that is of the odd dtype, of several; the first, with a doubt, if unclear."""
        fitting = [node for node in options if self.dtype_at(node, site, line) == self.dtype]
        alike = {text(failures.base_name(node) or node) for node in options}
        if len(fitting) != 1 and len(alike) > 1:
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
                if function is not frames.scope(site) and starts(function) != starts(
                        frames.scope(site)) and (
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
                return self.end("argument", source, site, starts_line(source))
            place, pick = len(positional(source)) + pick[0], pick[1:]
            name = None
        elif arguments.kwarg and arguments.kwarg.arg == name:
            if not pick:
                return self.end("argument", source, site, starts_line(source))
            name, pick = pick[0], pick[1:]
        if place is not None:
            place -= self.is_bound(source, site)
            if place < 0:
                return self.end("unknown", source, site, starts_line(source))
        return self.given(place, name, site, pick)

    def given(self, place, name, site, pick):
        """Find what was passed at `place`, or as `name`, to the function of `site`."""
        caller, call, line = self.call_of(site)
        if call is None:
            if site.code is None:
                return self.end("unknown", frames.scope(site), site,
                                starts_line(frames.scope(site)))
            if caller is None:
                return self.end("argument", frames.scope(site), site,
                                starts_line(frames.scope(site)))
            return self.end("unknown", frames.scope(site), site, starts_line(frames.scope(site)))
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
            return default, site, starts_line(frames.scope(site)), pick
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

    def back_iterated(self, node, called, site, line, pick):
        """Some entry of a call's result: of zip, of a generator, of map; None if it is no such."""
        rest = pick[1:]
        if called in ("iter", "reversed", "tqdm", "list", "tuple", "sorted", "next") and node.args:
            return node.args[0], site, line, (ANY, *rest) if called == "next" else pick
        if called == "enumerate" and rest and node.args:
            return node.args[0], site, line, (ANY, *rest[1:])
        if called == "zip" and len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            return node.args[0].value, site, line, (ANY, ANY, *rest[1:])
        if called == "zip" and rest and isinstance(rest[0], int) and rest[0] < len(node.args):
            return node.args[rest[0]], site, line, (ANY, *rest[1:])
        if called in ("values", "items") and isinstance(node.func, ast.Attribute):
            return node.func.value, site, line, (ANY, *rest[called == "items":])
        if called == "map" and len(node.args) > 1:
            return self.back_map(node, site, line, rest)
        return None

    def back_map(self, node, site, line, rest):
        """map(f, xs): what f returns, with entries of xs for its arguments."""
        function, given = node.args[0], [entry_of(part) for part in node.args[1:]]
        call = ast.copy_location(ast.Call(function, given, []), node)
        if isinstance(function, ast.Lambda):
            code = next((c for c in site.code.co_consts if isinstance(c, types.CodeType)
                         and c.co_name == "<lambda>" and c.co_firstlineno == function.lineno), None)
            if code is not None:
                made = types.FunctionType(code, site.globals, closure=tuple(
                    types.CellType() for _ in code.co_freevars))
                inside = Function(made, MISSING, site, (call, line))
                return function.body, inside, function.body.lineno, rest
        return call, site, line, rest

    def back_attribute(self, node, site, line, pick):
        bound = self.binding(text(node), site, line)
        if bound is not None and bound.kind == "value":
            self.add(site, bound.line, bound.node, text(node))
            return bound.node, site, bound.line, (*bound.pick, *pick)
        if node.attr == "saved_tensors" and (saved := self.saved(site, pick)):
            return saved
        owner = self.value_at(node.value, site, line)
        if values.is_tensor(owner) or node.attr in ("T", "mT", "data", "grad", "real"):
            return node.value, site, line, pick
        if (function := values.getter(owner, node.attr)) is not None:
            return self.back_function(function, owner, as_call(node), site, line, pick)
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

    def back_call(self, node, site, line, pick):
        called = failures.operation(node)
        receiver = receiver_of(node, site)
        target = cast_of(node, site)
        if called.startswith("quantize_per"):
            return self.end("cast", node, site, line)
        if target is MISSING and (given := self.dtype_of_what(node, site, line)) is not None:
            return (*given, pick)  # x.to(y.dtype): the dtype is y's
        if target is not None:
            if target == self.dtype or target is MISSING:
                return self.end("cast", node, site, line)
            return self.end("unknown", node, site, line)
        function, owner = self.function_of(node, site, line)
        callee = values.look_up(node.func, site)
        if callee is MISSING:
            callee = self.loop_member(node.func, site, line)
        value = self.value_at(node, site, line)
        if (pick[:1] == (ANY,) or called == "next") and not values.is_tensor(value):
            inner = self.back_iterated(node, called, site, line, pick if called != "next"
                                       else (ANY, *pick))
            if inner is not None:
                return inner
        if pick[:1] == (ANY,) and is_a(callee, type) and is_torch(callee):
            return self.end("loader", node, site, line)  # a DataLoader that is made on the spot
        if called in ("tuple", "list") and pick and node.args:
            return node.args[0], site, line, pick
        if values.is_module(callee):
            return self.back_module(callee, node, site, line, pick)
        if is_a(callee, type) and not is_torch(callee):
            return self.back_constructor(callee, node, site, line, pick)
        if function is not None:
            return self.back_function(function, owner, node, site, line, pick)
        if called in LIKE and not keyword_of(node, "dtype") and self.dtype.is_floating_point:
            like = receiver if called.startswith("new_") else (node.args or [None])[0]
            if like is not None:
                return like, site, line, ()
        if called in CREATES | LIKE and (given := self.dtype_of_what(node, site, line)) is not None:
            self.add(site, line, node, entry_name(node))
            return (*given, ())  # zeros(…, dtype=y.dtype): the dtype is y's
        if called in CREATES or called in LIKE:
            return self.end("numpy" if self.from_numpy(node, site, line) else "made",
                            node, site, line)
        if is_numpy(callee) or isinstance(node.func, ast.Attribute) and is_numpy(
                values.look_up(node.func.value, site)):
            return self.end("numpy", node, site, line)
        if called in JOINS and node.args:
            first = node.args[0]
            if isinstance(first, (ast.List, ast.Tuple)):
                return self.back_operands(first.elts, node, site, line)
            if called != "where":
                self.add(site, line, node, text(first), inside=True)
                return first, site, line, (ANY,)
            return self.back_operands(node.args[1:], node, site, line)
        if called in LOADS and is_torch(callee):
            self.add(site, line, node, entry_name(node), "unknown")
            return None  # a file's contents are an end, if not an explanation: no doubt
        if called in ("get", "pop", "setdefault") and receiver is not None and node.args and \
                isinstance(node.args[0], ast.Constant):
            return receiver, site, line, (node.args[0].value, *pick)
        if called in ("dict", "OrderedDict") and pick:
            for keyword in node.keywords:
                if keyword.arg == pick[0]:
                    return keyword.value, site, line, pick[1:]
        if self.autocasts(site, line, called):
            return self.end("cast", node, site, line)
        operands = ([receiver] if receiver is not None and called in KEEPS or
                    receiver is not None and self.dtype_at(receiver, site, line) is not None
                    else []) + list(node.args) + [k.value for k in node.keywords]
        operands = [part for part in operands if not isinstance(part, ast.Constant)]
        tensors = [part for part in operands if self.dtype_at(part, site, line) is not None]
        in_place = called.endswith("_") and not called.endswith("__")
        if receiver is not None and (in_place or called in KEEPS):
            return receiver, site, line, ()
        if tensors:
            return self.back_operands(tensors, node, site, line)
        if called in KEEPS and operands or is_torch(callee) and len(operands) == 1 and \
                not self.is_number(operands[0], site, line):
            return operands[0], site, line, ()
        if is_torch(callee):
            return self.end("made", node, site, line)
        return self.end("unknown", node, site, line)

    def dtype_of_what(self, call, site, line):
        """Return (node, site, line) of y in x.to(y.dtype), or d = y.dtype and x.to(d); or None."""
        for node in [*call.args, *(keyword.value for keyword in call.keywords)]:
            at = line
            if isinstance(node, ast.Name) and (bound := self.quiet_binding(node.id, site, line)):
                node, at = bound.node, bound.line
            if isinstance(node, ast.Attribute) and node.attr == "dtype":
                return node.value, site, at
        return None

    def back_function(self, function, owner, node, site, line, pick):
        inside, ends = self.enter(function, owner, node, site, line)
        if not ends or self.depth(site) > DEPTH:
            return self.end("unknown", node, site, line)
        self.add(site, line, node, text(node.func), inside=pick)
        if function.__code__.co_flags & 0x20 and pick[:1] == (ANY,):
            pick = pick[1:]  # a generator: what it yields
        if len(ends) > 1:
            fitting = [end for end in ends
                       if not pick and self.dtype_at(end[0], inside, end[1]) == self.dtype]
            if len(fitting) != 1:
                self.doubt(f"`{text(node.func)}` returns at several lines")
            ends = fitting or ends
        return ends[-1][0], inside, ends[-1][1], pick

    def back_constructor(self, callee, node, site, line, pick):
        """Batch(images=x).images is x."""
        if values.one_of(torch.autograd.Function, mro(callee)):
            return self.end("unknown", node, site, line)
        if pick and isinstance(pick[0], str):
            for keyword in node.keywords:
                if keyword.arg == pick[0]:
                    self.add(site, line, node, text(keyword.value))
                    return keyword.value, site, line, pick[1:]
            order = list(space_of(callee).get("__dataclass_fields__")
                         or space_of(callee).get("_fields", ()))
            if pick[0] in order and order.index(pick[0]) < len(node.args):
                self.add(site, line, node, text(node.args[order.index(pick[0])]))
                return node.args[order.index(pick[0])], site, line, pick[1:]
        return self.end("unknown", node, site, line)

    def back_module(self, module, node, site, line, pick):
        """A module's result: of its parameters' dtype, of autocast's, or of what it was given."""
        inputs = [part for part in node.args] + [k.value for k in node.keywords]
        dtypes = failures.parameters_of(module)
        if is_torch(type(module)) and dtypes and \
                self.autocasts(site, line, values.class_name(module)):
            return self.end("cast", node, site, line)
        children = list(values.held(module, "_modules").items())
        if type(module) is torch.nn.Sequential and children:
            for name, child in reversed(children):
                if failures.parameters_of(child):
                    inner = ast.Attribute(node.func, name)
                    if not is_torch(type(child)):
                        return self.back_forward(child, node, site, line, pick)
                    if self.dtype in failures.parameters_of(child):
                        return self.parameter(child, inner, site, line, node)
        elif not is_torch(type(module)):
            return self.back_forward(module, node, site, line, pick)
        elif values.class_name(module) in ("DataParallel", "OptimizedModule"):
            inner = next((child for name, child in children if name in ("module", "_orig_mod")
                          and values.is_module(child)), None)
            if inner is not None:
                return self.back_forward(inner, node, site, line, pick)
        elif self.dtype in dtypes:
            return self.parameter(module, node.func, site, line, node)
        if inputs:
            return self.back_operands(inputs[:1], node, site, line) if len(inputs) == 1 else (
                inputs[0], site, line, ())
        return self.end("unknown", node, site, line)

    def parameter(self, module, node, site, line, call):
        own = [(path, name, p) for path, part in values.walk(module)
               for name, p in values.own_tensors(part, ("_parameters",)) if p.dtype == self.dtype]
        path, name, self.trail.held = own[0]
        label = ".".join(part for part in (text(node), path, name) if part)
        self.add(site, line, call, label.replace("self.", "", 1), "parameter")
        self.trail.how = "parameter"
        return None

    def back_forward(self, module, node, site, line, pick):
        function = values.attribute(module, "forward")
        if is_a(function, types.MethodType) and is_a(
                function.__func__, types.FunctionType):
            return self.back_function(function.__func__, module, node, site, line, pick)
        return self.end("unknown", node, site, line)

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
