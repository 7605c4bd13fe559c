"""What a name stood for, and of which dtype, at a line of a program that has gone on since.

A frame keeps its last values only. A value is trusted if its name was not bound again; else the
source is followed: the last binding before the line, what its call makes, the caller's argument.
"""

import ast
import types

import torch

from . import failures, frames, values
from .bindings import (
    Binding,
    bindings,
    bound_in,
    branch,
    entry_of,
    excluded,
    implicit_arguments,
    in_one_loop,
    is_handed_on,
    is_rebound,
    leaves,
    line_of_definition,
    parameters,
    positional,
    statement_line,
    text,
)
from .calls import INTEGERS, dtype_value, is_fraction, keyword_of
from .functions import Function
from .rules import MAX_RECURSION, How, Place, effect_of
from .values import MISSING, is_a, is_numpy, is_torch, module_name

OF_ITS_PARTS = (How.KEEPS, How.LIKE, How.CHOICE, How.ENTERS)


class Past:
    """Questions about a line that is over. dtype: the one that is looked for.

    doubts: sentences about choices that the source leaves open.
    """

    def __init__(self, dtype):
        self.dtype, self.doubts = dtype, []
        self.asked, self.kept = set(), []
        self.known, self.unknown = {}, {}

    def is_number(self, node, site, line):
        """True for a plain number of Python's, or a shape: what gives a result no dtype."""
        if isinstance(node, ast.Call):
            owner = values.look_up(node.func, site)
            known = is_a(owner, (type, types.BuiltinFunctionType))
            return known and (values.one_of(owner, (len, int, float, abs, round, max, min))
                              or module_name(owner) == "math") or isinstance(
                node.func, ast.Attribute) and node.func.attr in ("size", "dim", "numel", "item")
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "device", "dtype"):
            return True
        if isinstance(node, ast.Subscript) and self.is_number(node.value, site, line):
            return True
        if isinstance(node, (ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp)):
            return all(self.is_number(part, site, line) for part in leaves(node))
        return values.one_of(type(self.value_at(node, site, line)),
                             (int, float, bool, str, type(None), torch.Size))

    def is_scalar(self, node, site, line):
        value = self.value_at(node, site, line)
        return values.is_tensor(value) and value.dim() == 0

    def implicit_arguments(self, source, site):
        """How many parameters the call of a Site did not write down: 1, `self`, or 0."""
        caller, call, _ = self.call_of(site)
        if call is None:
            return implicit_arguments(source)
        rest = source.args.vararg and site.locals.get(source.args.vararg.arg)
        if isinstance(site, Function) and not isinstance(caller, Function):
            return int(site.bound)
        passed = [values.look_up(part.value, caller) if isinstance(part, ast.Starred) else (None,)
                  for part in call.args]
        if is_a(rest, tuple) and not positional(source) and all(
                is_a(part, tuple) for part in passed):
            return min(max(len(rest) - sum(map(len, passed)), 0), 1)
        if is_a(values.look_up(call.func, caller), types.FunctionType):
            return 0
        return implicit_arguments(source)

    def call_of(self, site):
        """Return (Site, call node, line) of the call that led to `site`; the node may be None."""
        if isinstance(site, Function):
            return (site.parent, *(site.call or (None, None)))
        caller = site.parent
        if caller is None:
            return None, None, None
        node = frames.working(caller)
        line = statement_line(caller, caller.line)
        if site.code is not None and site.code.co_flags & 0x20:  # a generator: who made it?
            node = self.maker(node, caller, line)
        if isinstance(node, ast.Call):
            node = self.lazy(node, caller, line)
        if site.code is not None and site.code.co_flags & 0x280:  # a coroutine
            called = values.look_up(node.func, caller) if isinstance(node, ast.Call) else None
            if not is_a(called, types.FunctionType) or called.__code__ is not site.code:
                node = None
        return caller, node if isinstance(node, ast.Call) else None, line

    def maker(self, node, caller, line):
        """The call that made a generator which `node` resumes: next(g), for … in g."""
        if isinstance(node, ast.Call) and text(node.func) == "next" and node.args:
            node = node.args[0]
        if node is None or not isinstance(node, (ast.Name, ast.Call)):
            loops = [n for n in ast.walk(frames.scope(caller) or ast.Pass())
                     if isinstance(n, (ast.For, ast.comprehension))
                     and n.iter.lineno == caller.line]
            node = loops[-1].iter if loops else node
        if isinstance(node, ast.Call) and text(node.func) in ("enumerate", "iter", "list") and \
                node.args:
            node = node.args[0]
        if isinstance(node, ast.Name):
            binding = self.binding(node.id, caller, line)
            node = binding.node if binding and binding.kind == "value" else None
        return node

    def lazy(self, node, caller, line):
        """The call of f in `map(f, xs)`, which runs when a list or a loop asks for it."""
        while isinstance(node, ast.Call) and text(node.func) in ("list", "tuple", "next", "sum",
                                                                 "max", "min", "sorted", "dict"):
            node = node.args[0] if node.args else None
            if isinstance(node, ast.Name):
                bound = self.quiet_binding(node.id, caller, line)
                node = bound.node if bound and bound.kind == "value" else None
        if isinstance(node, ast.Call) and text(node.func) == "map" and len(node.args) > 1:
            return ast.copy_location(ast.Call(
                node.args[0], [entry_of(part) for part in node.args[1:]], []), node)
        return node

    def function_of(self, node, site, line):
        """Return (function, owner or MISSING) of a call into Python source of the reader's own."""
        callee = values.look_up(node.func, site)
        if callee is MISSING and isinstance(node.func, ast.Attribute):
            owner = self.value_at(node.func.value, site, line)
            callee = values.attribute(owner, node.func.attr)
        if callee is not MISSING and not is_a(callee, (types.FunctionType, types.MethodType, type)):
            # What lru_cache and its like keep; or an object of the reader's that can be called.
            kept = values.stored(callee).get("__wrapped__")
            callee = kept if kept is not None else callee if values.is_module(
                callee) else values.attribute(callee, "__call__")
        if is_a(callee, types.MethodType):
            function, owner = callee.__func__, callee.__self__
        else:
            function, owner = callee, MISSING
        if not is_a(function, types.FunctionType) or is_torch(function):
            return None, MISSING
        return function, owner

    def enter(self, function, owner, node, site, line):
        """Return the Function that a call went into, and the ends it may have come to."""
        inside = Function(function, owner, site, (node, line))
        self.kept.append(inside)  # what is known is known by its id
        source = frames.scope(inside)
        if source is None:
            return inside, []
        names = positional(source)[inside.bound:]
        if not any(isinstance(part, ast.Starred) for part in node.args):
            for name, part in [*zip(names, node.args, strict=False),
                               *((k.arg, k.value) for k in node.keywords if k.arg in names)]:
                value = self.value_at(part, site, line)
                if value is not MISSING:
                    inside.locals[name] = value
        ends = inside.ends()
        return inside, [end for end in ends
                        if self.reached(source, end[1], inside, end[1])] or ends

    def depth(self, site):
        count = 0
        while site is not None:
            count += isinstance(site, Function)
            site = site.parent
        return count

    def loop_member(self, node, site, line):
        """`for layer in self.layers: x = layer(x)`: the last layer made the last x."""
        if isinstance(node, ast.Name) and (bound := self.binding(node.id, site, line)):
            if bound.kind == "for":
                over = values.look_up(bound.node, site)
                members = list(values.held(over, "_modules").values()) \
                    if values.is_module(over) else []
                return members[-1] if members else MISSING
        return MISSING

    def from_numpy(self, node, site, line):
        """True for a tensor that is made of a NumPy array, and takes its dtype."""
        if failures.operation(node) == "from_numpy":
            return True
        if not node.args or keyword_of(node, "dtype") is not None:
            return False
        return self.numpy_made(node.args[0], site, line) is not None

    def numpy_made(self, node, site, line, depth=0):
        """The NumPy value, or the node that made it, that an expression is about; or None."""
        for _ in range(MAX_RECURSION if depth < MAX_RECURSION else 0):
            value = self.value_at(node, site, line)
            if is_numpy(value):
                return value
            if isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
                node = node.value
            elif isinstance(node, ast.BinOp):
                left = self.numpy_made(node.left, site, line, depth + 1)
                if left is not None:
                    return left
                node = node.right
            elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
                node = node.elt
            elif isinstance(node, ast.Call):
                if is_numpy(values.look_up(node.func, site)):
                    return node
                function, owner = self.function_of(node, site, line)
                if function is not None:
                    site = Function(function, owner, site, (node, line))
                    ends = site.ends()
                    if not ends:
                        return None
                    node, line = ends[-1]
                    continue
                if not isinstance(node.func, ast.Attribute):
                    return None
                node = node.func.value
            elif isinstance(node, ast.Name):
                bound = self.quiet_binding(node.id, site, line)
                if bound is None or bound.kind not in ("value", "for"):
                    return None
                node, line = bound.node, bound.line
            else:
                return None
        return None

    def binding(self, name, site, line):
        """Return the last Binding of a name before `line`, or None."""
        source = frames.scope(site)
        if source is None:
            return None
        now = branch(source, line)
        found = [b for b in bindings(source, name) if (b.line < line or b.inner)
                 and not excluded(branch(source, b.line), now)
                 and self.reached(source, b.line, site, line)]
        earlier = self.last_of(found, source, name, site, line) if found else Binding(
            "argument", source, line_of_definition(source)) if name in parameters(source) else None
        later = [b for b in bindings(source, name)
                 if b.line >= line and not b.inner and in_one_loop(source, b.line, line)]
        if not later or (name, id(site)) in self.asked:
            return earlier or (later[-1] if later else None)
        self.asked.add((name, id(site)))  # what a loop binds is asked of itself once
        try:
            return self.carried(earlier, later, name, site)
        finally:
            self.asked.discard((name, id(site)))

    def carried(self, earlier, later, name, site):
        """The Binding of a name in a loop that binds it again below: of this round or the last."""
        options = ([earlier] if earlier else []) + later
        known = [(b, self.argument_dtype(name, site, 0) if b.kind == "argument"
                  else self.dtype_at(b.node, site, b.line) if b.kind == "value" else None)
                 for b in options]
        fitting = [b for b, dtype in known if dtype == self.dtype] or [
            b for b, dtype in known if dtype is None]
        if earlier is None or len(fitting) == 1:
            return (fitting or options)[-1]
        if not (earlier in fitting and all(is_handed_on(b, name) for b in fitting[1:])):
            self.doubt(f"`{name}` is bound again further down in the loop, at line "
                       f"{later[-1].line} of {frames.show_file(site.filename)}")
        return (fitting or options)[0]

    def last_of(self, found, source, name, site, line):
        """The Binding that counts: the last, unless it stands in a branch and another fits."""
        now = branch(source, line)
        last = found[-1]
        surely = [b for b in found if set(branch(source, b.line)) <= set(now)]
        if last in surely or len(found) == 1 and name not in parameters(source):
            return last
        options = [b for b in found if not surely or b.line >= surely[-1].line]
        if not surely and name in parameters(source):
            options.insert(0, Binding("argument", source, line_of_definition(source)))
        known = [(b, self.dtype_at(b.node, site, b.line) if b.kind == "value" else None)
                 for b in options]
        fitting = [b for b, dtype in known if dtype == self.dtype]
        unknown = [b for b, dtype in known if dtype is None]
        others = [b for b in unknown if not is_handed_on(b, name)]
        if fitting and (len(fitting) == 1 or is_handed_on(fitting[-1], name)):
            possible = [fitting[-1]]
            # One of which nothing is known may be what was run: in a `try`, say.
            sure = all(b.kind != "value" for b in others)
        else:
            possible = fitting or others or unknown
            sure = len(possible) == 1
        if not sure:
            self.doubt(f"`{name}` is bound in a branch before line {line} of "
                       f"{frames.show_file(site.filename)}, which may not have been taken")
        return (possible or options)[-1]

    def reached(self, source, line, site, now):
        """False if the line stands under a condition that is known not to hold."""
        for node, side in branch(source, line):
            if isinstance(node, ast.If):
                truth = self.truth(node.test, site, now)
                if truth is not None and truth != (side == "body"):
                    return False
        return True

    def truth(self, test, site, line):
        """Whether a test holds: of a plain bool, of None, of `not`; None where it is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.truth(test.operand, site, line)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(
                test.ops[0], (ast.Is, ast.IsNot)) and getattr(
                test.comparators[0], "value", MISSING) is None:
            value = self.value_at(test.left, site, line)
            if value is MISSING or isinstance(test.left, ast.Name) and not isinstance(
                    site, Function) and is_rebound(frames.scope(site), test.left.id):
                return None
            return (value is None) == isinstance(test.ops[0], ast.Is)
        value = self.value_at(test, site, line)
        return value if type(value) is bool else None

    def value_at(self, node, site, line):
        """What a node stood for at `line`; MISSING if its names were bound anew since."""
        source = frames.scope(site)
        # A frame knows what its names came to be; a function that is over, its arguments.
        first, last = (0, line) if isinstance(site, Function) else (line, site.line)
        if source is not None and any(first <= b.line < last for name in bound_in(source, node)
                                      for b in bindings(source, name)):
            return MISSING
        return values.look_up(node, site)

    def dtype_at(self, node, site, line, depth=0):
        """Return the dtype of a tensor that a node stood for at `line`, or None if not known."""
        if depth > MAX_RECURSION:
            return None
        key = id(node), id(site), line
        if key not in self.known and depth < self.unknown.get(key, MAX_RECURSION + 1):
            found = self.find_dtype(node, site, line, depth)
            if found is None:
                self.unknown[key] = depth  # asked from less deep down it may yet be known
            else:
                self.known[key] = found
        return self.known.get(key)

    def find_dtype(self, node, site, line, depth):
        value = self.value_at(node, site, line)
        if values.is_tensor(value):
            return failures.dtype_of(value)
        deeper = depth + 1
        if isinstance(node, ast.Name):
            bound = self.quiet_binding(node.id, site, line)
            if bound and bound.kind in ("value", "same"):
                inner = node if bound.kind == "same" else bound.node
                return self.dtype_at(inner, site, bound.line, deeper)
            if bound and bound.kind == "argument":
                return self.argument_dtype(node.id, site, deeper)
            return None
        if isinstance(node, ast.Subscript):
            return self.dtype_at(node.value, site, line, deeper)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return None  # its entries have a dtype, a list has none
        effect = effect_of(self, Place(node, site, line), deeper)
        return self.dtype_of(effect, deeper) if effect is not None else None

    def dtype_of(self, effect, depth):
        """The dtype that an Effect gives its result, or None if not known."""
        if effect.dtype is not None or effect.how not in OF_ITS_PARTS:
            return effect.dtype
        found = {self.dtype_of_place(part, depth) for part in effect.parts}
        return found.pop() if len(found) == 1 else None

    def dtype_of_place(self, place, depth):
        """The dtype of an expression, or of the entry of it that is picked."""
        node, site, line, pick = place
        if not pick:
            return self.dtype_at(node, site, line, depth)
        value = self.value_at(node, site, line)
        for key in pick:
            value = values.item(value, key)
        if values.is_tensor(value):
            return failures.dtype_of(value)
        effect = effect_of(self, place, depth + 1) if depth <= MAX_RECURSION else None
        return self.dtype_of(effect, depth + 1) if effect is not None else None

    def promoted(self, nodes, site, line, depth):
        """The dtype of a result of these operands; None if one of them is not known."""
        result = None
        for node in nodes:
            if self.is_number(node, site, line):
                continue
            dtype = self.dtype_at(node, site, line, depth)
            if dtype is None:
                return None
            result = dtype if result is None else promoted(result, dtype)
            if result is None:
                return None
        return result

    def argument_dtype(self, name, site, depth):
        """dtype of what a function was given under a plain name, where it has bound it anew."""
        source = frames.scope(site)
        caller, call, line = self.call_of(site)
        if call is None or name not in positional(source):
            return None
        place = positional(source).index(name) - self.implicit_arguments(source, site)
        for number, part in enumerate(call.args):
            if isinstance(part, ast.Starred):
                value = values.item(self.value_at(part.value, caller, line), place - number)
                return values.is_tensor(value) and failures.dtype_of(value) or None
            if number == place:
                return self.dtype_at(part, caller, line, depth)
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.dtype_at(keyword.value, caller, line, depth)
        return None

    def dtype_of_new(self, node, called, site, line):
        if (given := keyword_of(node, "dtype")) is not None:
            found = dtype_value(given, site)
            return found if is_a(found, torch.dtype) else None
        if called in INTEGERS:
            return torch.int64
        if self.from_numpy(node, site, line):
            value = self.numpy_made(node.args[0], site, line)
            if is_numpy(value):
                return getattr(torch, str(getattr(value, "dtype", "")), None)
            return torch.float64 if value is not None and is_fraction(node.args[0], value) else None
        if called in ("tensor", "as_tensor", "full", "arange"):
            numbers = [n.value for part in node.args[called == "full":] for n in ast.walk(part)
                       if isinstance(n, ast.Constant)]
            if not any(isinstance(number, float) for number in numbers):
                return None if called != "arange" or not numbers else torch.int64
        return torch.get_default_dtype()

    def quiet_binding(self, name, site, line):
        """A binding asked for on the way: doubts about it are none about the road."""
        before = list(self.trail.doubts)
        found = self.binding(name, site, line)
        self.trail.doubts[:] = before
        return found

    def doubt(self, sentence):
        if sentence not in self.trail.doubts:
            self.trail.doubts.append(sentence)


def promoted(one, other):
    """The dtype of a result of two dtypes; None where torch has none, as for float8."""
    try:
        return torch.promote_types(one, other)
    except RuntimeError:
        return None
