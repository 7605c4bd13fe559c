"""The road of an odd dtype: from the operand that failed back to where that dtype came in.

Read from source and names, backwards: the last binding of a name, what its expression works on,
the caller's argument, the return of a function that is no longer there. A value that a name holds
is trusted over what the source suggests. Where two roads are equally likely the Trail says so.
"""

import ast
import types
from dataclasses import dataclass, field

import torch

from cases.lab import frames, where
from cases.lab.frames import (
    MISSING,
    is_a,
    is_numpy,
    is_torch,
    module_name,
    mro,
    space_of,
)

ANY = "*"  # a pick: some entry of what is gone over, which one is not known
STEPS = 80  # of one road; and how deep a static question may go
DEPTH = 12

CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16,
         "double": torch.float64, "long": torch.int64, "int": torch.int32, "short": torch.int16,
         "char": torch.int8, "byte": torch.uint8, "bool": torch.bool}
KEEPS = set(where.VIEWS) | set(
    "clone detach detach_ requires_grad_ cuda cpu cpu_ to_device pin_memory masked_fill masked_fill_ "
    "masked_select index_select gather repeat repeat_interleave expand_as view_as reshape_as chunk "
    "split unbind narrow roll flip tril triu clamp clamp_ relu relu_ sigmoid tanh softmax "
    "log_softmax exp log sqrt rsqrt pow abs neg sum mean max min norm mul_ add_ sub_ div_ copy_ "
    "fill_ zero_ normal_ uniform_ select swapaxes movedim T mT diagonal topk sort unflatten "
    "unfold squeeze_ unsqueeze_ new_tensor item_ tolist_ retain_grad values to_dense to_sparse "
    "scatter scatter_ index_add_ index_copy_ erf sin cos".split())
CREATES = set("zeros ones empty full rand randn randint arange linspace eye tensor as_tensor "
              "from_numpy logspace normal bernoulli tril_indices empty_strided".split())
LIKE = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
        "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"}
JOINS = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "where", "block_diag"}
LOADS = {"load", "load_file", "from_pretrained"}
INTEGERS = {"randint", "tril_indices"}
REAL = set("linspace zeros ones full rand randn random normal uniform standard_normal exponential exp "
           "sin cos sqrt log mean std float64 hanning hamming".split())


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


class Function(frames.Site):
    """A function whose frame is gone, read from its source: what it returns, not what it held."""

    def __init__(self, function, owner, parent, call):
        code = function.__code__
        first = code.co_varnames[0] if code.co_argcount else None
        known = {first: owner} if owner is not MISSING and first else {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                known[name] = cell.cell_contents
            except ValueError:
                pass
        super().__init__(code.co_filename, code.co_firstlineno, code.co_name, code,
                         (known, function.__globals__), parent)
        self.call = call  # node in the parent, and the line of its statement
        self.bound = owner is not MISSING
        self.line = float("inf")

    def ends(self):
        """Return what it returns or yields, as [(node, line)], in the order of the source."""
        source = frames.scope(self)
        if source is None:
            return []
        if isinstance(source, ast.Lambda):
            return [(source.body, source.body.lineno)]
        return [(node.value, node.lineno) for node in own_nodes(source)
                if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]


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


class Tracker:
    """Walks a road backwards, from expression to expression, and notes its stations in a Trail."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.trail = Trail(dtype)
        self.visited = set()

    # --- the walk -------------------------------------------------------------------------

    def run(self, node, site, line, pick):
        """Walk back from `node`, evaluated at `line` of `site`, until the dtype's entry.

        pick: entries still to be taken from what the node stands for: keys, places, attributes.
        """
        place = (node, site, line, pick)
        for _ in range(STEPS):
            key = (id(place[0]), id(place[1]), place[2], place[3])
            if key in self.visited:
                break
            self.visited.add(key)
            place = self.back(*place)
            if place is None:
                return
        self.doubt("the road was too long to follow to its end")

    def back(self, node, site, line, pick):
        if not site.mine and (known := self.readers_name(node, site, line, pick)) is not None:
            return known
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
            return self.back_operands([node.left, node.right], node, site, line)
        if isinstance(node, ast.UnaryOp):
            return node.operand, site, line, pick
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            return self.back_choice(node, site, line, pick)
        if isinstance(node, (ast.Tuple, ast.List, ast.Dict)):
            return self.back_literal(node, site, line, pick)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return node.elt, site, node.elt.lineno, pick[1:]
        return self.end("made" if isinstance(node, ast.Constant) else "unknown", node, site, line)

    def readers_name(self, node, site, line, pick):
        """Go straight to a function of the reader's own that holds the very same tensor by a name."""
        value = self.value_at(node, site, line)
        for key in pick:
            value = frames.item(value, key)
        if not frames.is_tensor(value):
            return None
        outer, found = site.parent, None
        while outer is not None:
            name = next((name for name, held in outer.locals.items()
                         if held is value and name.isidentifier()), None) if outer.mine else None
            found = (name, outer) if name is not None else found
            outer = outer.parent
        if found is None:
            return None
        name, outer = found
        at = statement_line(outer, outer.line)
        self.add(outer, at, frames.working(outer) or ast.Name(name), name)
        return ast.Name(name, ast.Load()), outer, at, ()

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
        return frames.item(frames.look_up(node, site), key) is not MISSING

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
        """The one of several nodes that is of the odd dtype; the first, with a doubt, if unclear."""
        fitting = [node for node in options if self.dtype_at(node, site, line) == self.dtype]
        alike = {text(where.base_name(node) or node) for node in options}
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
            self.doubt(f"which of the operands in `{text(whole)}` was {name_of(self.dtype)} "
                       "cannot be read any more")
        if unknown:
            return unknown[0], site, line, ()
        return self.end("made", whole, site, line)

    def is_number(self, node, site, line):
        """True for a plain number of Python's, or a shape: what gives a result no dtype."""
        if isinstance(node, ast.Call):
            owner = frames.look_up(node.func, site)
            known = is_a(owner, (type, types.BuiltinFunctionType))
            return known and (owner in (len, int, float, abs, round, max, min)
                              or module_name(owner) == "math") or isinstance(
                node.func, ast.Attribute) and node.func.attr in ("size", "dim", "numel", "item")
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "device", "dtype"):
            return True
        if isinstance(node, ast.Subscript) and self.is_number(node.value, site, line):
            return True
        if isinstance(node, (ast.Tuple, ast.List)):
            return all(self.is_number(part, site, line) for part in node.elts)
        if isinstance(node, ast.BinOp):
            return all(self.is_number(part, site, line) for part in (node.left, node.right))
        if isinstance(node, ast.UnaryOp):
            return self.is_number(node.operand, site, line)
        return type(self.value_at(node, site, line)) in (int, float, bool, str, type(None),
                                                          torch.Size)

    def is_scalar(self, node, site, line):
        value = self.value_at(node, site, line)
        return frames.is_tensor(value) and value.dim() == 0

    # --- names ----------------------------------------------------------------------------

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
        """True for an object that is gone over and makes its entries itself, as a DataLoader does."""
        value = self.value_at(node, site, line)
        return value is not MISSING and not frames.is_tensor(value) and not is_a(
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
        value = frames.look_up(node, site)
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

    def is_bound(self, source, site):
        """1 if the call handed over one argument less than was received: `self`, of a method."""
        caller, call, _ = self.call_of(site)
        if call is None:
            return is_bound(source)
        rest = source.args.vararg and site.locals.get(source.args.vararg.arg)
        if isinstance(site, Function) and not isinstance(caller, Function):
            return int(site.bound)
        passed = [frames.look_up(part.value, caller) if isinstance(part, ast.Starred) else (None,)
                  for part in call.args]
        if is_a(rest, tuple) and not positional(source) and all(
                is_a(part, tuple) for part in passed):
            return min(max(len(rest) - sum(map(len, passed)), 0), 1)
        if is_a(frames.look_up(call.func, caller), types.FunctionType):
            return 0
        return is_bound(source)

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
                value = frames.look_up(node.value, caller)
                rest = len(value) if is_a(value, (tuple, list)) else left_over(caller)
                if rest is not None and place - number >= rest:
                    place = None  # it was passed by its name
                    continue
                hook = self.hooked(caller, node.value, place - number, value)
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
                value = frames.look_up(keyword.value, caller)
                if value is MISSING or frames.item(value, name) is not MISSING:
                    if not is_kwarg(own, keyword.value):
                        self.hand_over(caller, line, call, keyword.value, (name, *pick))
                    return keyword.value, caller, line, (name, *pick)
        default = default_of(frames.scope(site), name)
        if default is not None:
            return default, site, starts_line(frames.scope(site)), pick
        return self.end("unknown", call, caller, line)

    def hand_over(self, site, line, call, node, pick):
        self.add(site, line, call, text(node), inside=pick)

    def hooked(self, caller, node, place, value):
        """Go on in a forward pre-hook, where one changed the arguments of a module's call."""
        if not caller.filename.replace("\\", "/").endswith("torch/nn/modules/module.py"):
            return None
        module = caller.module
        if module is None and caller.parent is not None:
            module = caller.parent.module
        hooks = list(frames.held(module, "_forward_pre_hooks").values()) \
            if module is not None else []
        outer = caller
        while outer is not None and outer.name != "_wrapped_call_impl":
            outer = outer.parent
        if not hooks or outer is None:
            return None
        before = frames.item(outer.locals.get("args", MISSING), place)
        after = frames.item(value, place)
        if before is after or MISSING in (before is MISSING and MISSING, after):
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

    def call_of(self, site):
        """Return (Site, call node, line) of the call that led to `site`; the node None if unclear."""
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
            node = self.lazy(node, site, caller, line)
        if site.code is not None and site.code.co_flags & 0x280:  # a coroutine: awaited where called?
            called = frames.look_up(node.func, caller) if isinstance(node, ast.Call) else None
            if not is_a(called, types.FunctionType) or called.__code__ is not site.code:
                node = None
        return caller, node if isinstance(node, ast.Call) else None, line

    def maker(self, node, caller, line):
        """The call that made a generator which `node` resumes: next(batches), for … in batches."""
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

    def lazy(self, node, site, caller, line):
        """The call of f in `map(f, xs)`, which runs when a list is made of it, or a loop takes it."""
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

    # --- attributes and entries -----------------------------------------------------------

    def back_attribute(self, node, site, line, pick):
        bound = self.binding(text(node), site, line)
        if bound is not None and bound.kind == "value":
            self.add(site, bound.line, bound.node, text(node))
            return bound.node, site, bound.line, (*bound.pick, *pick)
        if node.attr == "saved_tensors" and (saved := self.saved(site, pick)):
            return saved
        owner = self.value_at(node.value, site, line)
        if frames.is_tensor(owner) or node.attr in ("T", "mT", "data", "grad", "real"):
            return node.value, site, line, pick
        if frames.is_module(owner):
            return self.back_stored(node, owner, site, line, pick)
        if pick and (put := self.attribute_filled(owner, node.attr)):
            return (*put, pick[1:])
        made = self.attribute_made(owner, node.attr)
        if made is not None:
            return (*made, pick)
        return node.value, site, line, (node.attr, *pick)

    def saved(self, site, pick):
        """ctx.saved_tensors in a backward: what its forward gave to save_for_backward."""
        outer = getattr(site.code, "co_qualname", "").split(".")[0]
        forward = frames.attribute(site.globals.get(outer, MISSING), "forward")
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
        own = frames.stored(owner)
        for store, how in (("_parameters", "parameter"), ("_buffers", "buffer")):
            if node.attr in frames.held(owner, store):
                if how == "buffer" and (made := self.attribute_made(owner, node.attr)):
                    self.end(how, node, site, line)
                    self.add(made[1], made[2], made[0], node.attr, how)
                    return None
                if how == "parameter":
                    self.trail.held = frames.held(owner, store)[node.attr]
                return self.end(how, node, site, line)
        if (held_by := parametrized(owner, node.attr, self.dtype)) is not None:
            self.trail.held = held_by
            return self.end("parameter", node, site, line)
        made = self.attribute_made(owner, node.attr)
        if made is None:
            return self.end("attribute" if node.attr in own else "unknown", node, site, line)
        if pick or not frames.is_tensor(own.get(node.attr)):
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
                        text(t) == f"self.{name}" for t in part.targets):
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
        key = frames.look_up(node.slice, site)
        if not frames.is_tensor(base) and is_a(base, (dict, list, tuple)) and not is_a(
                key, (str, int)):
            key = ANY
        if frames.is_tensor(base) or not is_a(key, (str, int)):
            return node.value, site, line, pick
        if key == ANY:
            self.add(site, line, node.value, text(node.value))
            return node.value, site, line, (ANY, *pick)
        if frames.is_module(base):
            self.trail.held = frames.item(base, key)
            return self.end("parameter", node, site, line)
        return node.value, site, line, (key, *pick)

    # --- calls ----------------------------------------------------------------------------

    def back_call(self, node, site, line, pick):
        called = where.operation(node)
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
        callee = frames.look_up(node.func, site)
        if callee is MISSING:
            callee = self.loop_member(node.func, site, line)
        value = self.value_at(node, site, line)
        if (pick[:1] == (ANY,) or called == "next") and not frames.is_tensor(value):
            inner = self.back_iterated(node, called, site, line, pick if called != "next"
                                       else (ANY, *pick))
            if inner is not None:
                return inner
        if called in ("tuple", "list") and pick and node.args:
            return node.args[0], site, line, pick
        if frames.is_module(callee):
            return self.back_module(callee, node, site, line, pick)
        if is_a(callee, type) and not is_torch(callee):
            return self.back_constructor(callee, node, site, line, pick)
        if function is not None:
            return self.back_function(function, owner, node, site, line, pick)
        if called in LIKE and not keyword_of(node, "dtype") and self.dtype.is_floating_point:
            like = receiver if called.startswith("new_") else (node.args or [None])[0]
            if like is not None:
                return like, site, line, ()
        if called in CREATES or called in LIKE:
            if pick:
                pick = pick[1:]
            return self.end("numpy" if self.from_numpy(node, site, line) else "made",
                            node, site, line)
        if is_numpy(callee) or isinstance(node.func, ast.Attribute) and is_numpy(
                frames.look_up(node.func.value, site)):
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
            self.end("unknown", node, site, line)
            self.trail.doubts.clear()  # a file's contents are an end, if not an explanation
            return None
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
        """Return (node, site, line) of y in x.to(y.dtype), or in d = y.dtype and x.to(d); or None."""
        for node in [*call.args, *(keyword.value for keyword in call.keywords)]:
            at = line
            if isinstance(node, ast.Name) and (bound := self.quiet_binding(node.id, site, line)):
                node, at = bound.node, bound.line
            if isinstance(node, ast.Attribute) and node.attr == "dtype":
                return node.value, site, at
        return None

    def function_of(self, node, site, line):
        """Return (function, owner or MISSING) of a call into Python source of the reader's own."""
        callee = frames.look_up(node.func, site)
        if callee is MISSING and isinstance(node.func, ast.Attribute):
            owner = self.value_at(node.func.value, site, line)
            callee = frames.attribute(owner, node.func.attr)
        if is_a(callee, types.MethodType):
            function, owner = callee.__func__, callee.__self__
        else:
            function, owner = callee, MISSING
        if not is_a(function, types.FunctionType) or is_torch(function):
            return None, MISSING
        return function, owner

    def enter(self, function, owner, node, site, line):
        """Return the Function that a call went into, and its ends that were not surely passed by."""
        inside = Function(function, owner, site, (node, line))
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

    def depth(self, site):
        count = 0
        while site is not None:
            count += isinstance(site, Function)
            site = site.parent
        return count

    def back_constructor(self, callee, node, site, line, pick):
        """Batch(images=x).images is x."""
        if torch.autograd.Function in mro(callee):
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

    def loop_member(self, node, site, line):
        """`for layer in self.layers: x = layer(x)`: the last layer made the last x."""
        if isinstance(node, ast.Name) and (bound := self.binding(node.id, site, line)):
            if bound.kind == "for":
                over = frames.look_up(bound.node, site)
                members = list(frames.held(over, "_modules").values()) \
                    if frames.is_module(over) else []
                return members[-1] if members else MISSING
        return MISSING

    def back_module(self, module, node, site, line, pick):
        """A module's result: of its parameters' dtype, of autocast's, or of what it was given."""
        inputs = [part for part in node.args] + [k.value for k in node.keywords]
        dtypes = where.parameters_of(module)
        if is_torch(type(module)) and self.autocasts(site, line, type(module).__name__) and dtypes:
            return self.end("cast", node, site, line)
        children = list(frames.held(module, "_modules").items())
        if type(module) is torch.nn.Sequential and children:
            for name, child in reversed(children):
                if where.parameters_of(child):
                    inner = ast.Attribute(node.func, name)
                    if not is_torch(type(child)):
                        return self.back_forward(child, node, site, line, pick)
                    if self.dtype in where.parameters_of(child):
                        return self.parameter(child, inner, site, line, node)
        elif not is_torch(type(module)):
            return self.back_forward(module, node, site, line, pick)
        elif type(module).__name__ in ("DataParallel", "OptimizedModule"):
            inner = dict(children).get("module") or dict(children).get("_orig_mod")
            if frames.is_module(inner):
                return self.back_forward(inner, node, site, line, pick)
        elif self.dtype in dtypes:
            return self.parameter(module, node.func, site, line, node)
        if inputs:
            return self.back_operands(inputs[:1], node, site, line) if len(inputs) == 1 else (
                inputs[0], site, line, ())
        return self.end("unknown", node, site, line)

    def parameter(self, module, node, site, line, call):
        own = [(path, name, p) for path, part in frames.walk(module)
               for name, p in frames.own_tensors(part, ("_parameters",)) if p.dtype == self.dtype]
        path, name, self.trail.held = own[0]
        label = ".".join(part for part in (text(node), path, name) if part)
        self.add(site, line, call, label.replace("self.", "", 1), "parameter")
        self.trail.how = "parameter"
        return None

    def back_forward(self, module, node, site, line, pick):
        function = frames.attribute(module, "forward")
        if is_a(function, types.MethodType) and is_a(
                function.__func__, types.FunctionType):
            return self.back_function(function.__func__, module, node, site, line, pick)
        return self.end("unknown", node, site, line)

    def autocasts(self, site, line, called):
        """True if an autocast block around the line makes results of the odd dtype."""
        if called.lower() not in LOWERED:
            return False
        region = autocast_around(site, line)
        return bool(region and region["enabled"] and region["dtype"] == self.dtype)

    def from_numpy(self, node, site, line):
        """True for a tensor that is made of a NumPy array, and takes its dtype."""
        if where.operation(node) == "from_numpy":
            return True
        if not node.args or keyword_of(node, "dtype") is not None:
            return False
        return self.numpy_made(node.args[0], site, line) is not None

    def numpy_made(self, node, site, line):
        """The NumPy value, or the node that made it, that an expression is about; or None."""
        for _ in range(DEPTH):
            value = self.value_at(node, site, line)
            if is_numpy(value):
                return value
            if isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
                node = node.value
            elif isinstance(node, ast.BinOp):
                left = self.numpy_made(node.left, site, line)
                return left if left is not None else self.numpy_made(node.right, site, line)
            elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
                node = node.elt
            elif isinstance(node, ast.Call):
                if is_numpy(frames.look_up(node.func, site)):
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

    # --- what a name was ------------------------------------------------------------------

    def binding(self, name, site, line):
        """Return the last Binding of a name before `line`, or None."""
        source = frames.scope(site)
        if source is None:
            return None
        now = branch(source, line)
        found = [b for b in bindings(source, name) if (b.line < line or b.inner)
                 and not excluded(branch(source, b.line), now)
                 and self.reached(source, b.line, site, line)]
        if found:
            return self.last_of(found, source, name, site, line)
        if name in parameters(source):
            return Binding("argument", source, starts_line(source))
        later = [b for b in bindings(source, name) if in_one_loop(source, b.line, line)]
        return later[-1] if later else None

    def last_of(self, found, source, name, site, line):
        """The Binding that counts: the last, unless it stands in a branch and another fits."""
        now = branch(source, line)
        last = found[-1]
        surely = [b for b in found if set(branch(source, b.line)) <= set(now)]
        if last in surely or len(found) == 1 and name not in parameters(source):
            return last
        options = [b for b in found if not surely or b.line >= surely[-1].line]
        if not surely and name in parameters(source):
            options.insert(0, Binding("argument", source, starts_line(source)))
        known = [(b, self.dtype_at(b.node, site, b.line) if b.kind == "value" else None)
                 for b in options]
        fitting = [b for b, dtype in known if dtype == self.dtype]
        if fitting and (len(fitting) == 1 or is_handed_on(fitting[-1], name)):
            return fitting[-1]
        possible = [b for b, dtype in known if dtype is None]
        possible = fitting or [b for b in possible if not is_handed_on(b, name)] or possible
        if len(possible) != 1:
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
        for part in ast.walk(node):
            if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)):
                name = text(part)
                source = frames.scope(site)
                # A frame knows what its names came to be; a function that is over, its arguments.
                first, last = (0, line) if isinstance(site, Function) else (line, site.line)
                if source is not None and any(
                        first <= b.line < last for b in bindings(source, name)):
                    return MISSING
        return frames.look_up(node, site)

    def dtype_at(self, node, site, line, depth=0):
        """Return the dtype of a tensor that a node stood for at `line`, or None if not known."""
        if depth > DEPTH:
            return None
        value = self.value_at(node, site, line)
        if frames.is_tensor(value):
            with torch._C.DisableTorchFunction():
                return value.dtype
        deeper = depth + 1
        if isinstance(node, ast.Name):
            bound = self.quiet_binding(node.id, site, line)
            if bound and bound.kind in ("value", "same"):
                inner = node if bound.kind == "same" else bound.node
                return self.dtype_at(inner, site, bound.line, deeper)
            if bound and bound.kind == "argument":
                return self.argument_dtype(node.id, site, deeper)
            return None
        if isinstance(node, (ast.Subscript, ast.UnaryOp, ast.NamedExpr, ast.Starred)):
            inner = node.operand if isinstance(node, ast.UnaryOp) else node.value
            return self.dtype_at(inner, site, line, deeper)
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "data"):
            return self.dtype_at(node.value, site, line, deeper)
        if isinstance(node, ast.BinOp):
            return self.promoted((node.left, node.right), site, line, deeper)
        if isinstance(node, ast.IfExp):
            both = {self.dtype_at(part, site, line, deeper) for part in (node.body, node.orelse)}
            return both.pop() if len(both) == 1 else None
        if isinstance(node, ast.Compare):
            return torch.bool
        if isinstance(node, ast.Call):
            return self.dtype_of_call(node, site, line, deeper)
        return None

    def promoted(self, nodes, site, line, depth):
        """The dtype of a result of these operands; None if one of them is not known."""
        result = None
        for node in nodes:
            if self.is_number(node, site, line):
                continue
            dtype = self.dtype_at(node, site, line, depth)
            if dtype is None:
                return None
            result = dtype if result is None else torch.promote_types(result, dtype)
        return result

    def argument_dtype(self, name, site, depth):
        """dtype of what a function was given under a plain name, where it has bound it anew."""
        source = frames.scope(site)
        caller, call, line = self.call_of(site)
        if call is None or name not in positional(source):
            return None
        place = positional(source).index(name) - self.is_bound(source, site)
        if 0 <= place < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
            return self.dtype_at(call.args[place], caller, line, depth)
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.dtype_at(keyword.value, caller, line, depth)
        return None

    def dtype_of_call(self, node, site, line, depth):
        target = cast_of(node, site)
        if target is not None:
            return None if target is MISSING else target
        called = where.operation(node)
        receiver = receiver_of(node, site)
        callee = frames.look_up(node.func, site)
        if frames.is_module(callee):
            dtypes = where.parameters_of(callee)
            region = autocast_around(site, line)
            if region and region["enabled"] and dtypes and \
                    type(callee).__name__.lower() in LOWERED:
                return region["dtype"]
            if is_torch(type(callee)) and len(dtypes) == 1:
                return next(iter(dtypes))
            if not dtypes and is_torch(type(callee)) and node.args:
                return self.dtype_at(node.args[0], site, line, depth)
            function = frames.attribute(callee, "forward")
            if not is_torch(type(callee)) and is_a(function, types.MethodType):
                return self.dtype_of_ends(function.__func__, callee, node, site, line, depth)
            return None
        function, owner = self.function_of(node, site, line)
        if function is not None:
            return self.dtype_of_ends(function, owner, node, site, line, depth)
        if called in LIKE:
            like = receiver if called.startswith("new_") else (node.args or [None])[0]
            return self.dtype_at(like, site, line, depth) if like is not None else None
        if called in CREATES and (is_torch(callee) or callee is MISSING):
            return self.dtype_of_new(node, called, site, line)
        if called in KEEPS and receiver is not None:
            return self.dtype_at(receiver, site, line, depth)
        if is_torch(callee) or called in KEEPS:
            region = autocast_around(site, line)
            if region and region["enabled"] and called in LOWERED:
                return region["dtype"]
            parts = node.args
            if called in JOINS and parts and isinstance(parts[0], (ast.List, ast.Tuple)):
                parts = parts[0].elts
            return self.promoted(parts, site, line, depth)
        return None

    def dtype_of_ends(self, function, owner, node, site, line, depth):
        if self.depth(site) > DEPTH:
            return None
        inside, ends = self.enter(function, owner, node, site, line)
        found = {self.dtype_at(end, inside, at, depth) for end, at in ends}
        return found.pop() if len(found) == 1 else None

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

    # --- notes ----------------------------------------------------------------------------

    def add(self, site, line, node, name, how="", inside=False):
        """Note a station; a second one of the same line only adds how."""
        if where.is_machinery(site):
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

    def doubt(self, sentence):
        if sentence not in self.trail.doubts:
            self.trail.doubts.append(sentence)


# What autocast runs in its low dtype, of the functions and modules that people call.
LOWERED = set("linear conv1d conv2d conv3d convtranspose1d convtranspose2d matmul mm bmm addmm "
              "baddbmm einsum multiheadattention scaled_dot_product_attention lstm gru rnn "
              "bilinear".split())


def parametrized(module, name, dtype):
    """The parameter of that dtype behind a weight which is computed when it is read, or None."""
    made = frames.held(module, "_modules").get("parametrizations")
    made = frames.item(made, name) if frames.is_module(made) else MISSING
    if not frames.is_module(made):
        return None
    return next((tensor for _, part in frames.walk(made) for _, tensor in frames.own_tensors(part)
                 if tensor.dtype == dtype), None)


# --- questions about source -----------------------------------------------------------------


def text(node):
    try:
        return ast.unparse(node)
    except Exception:
        return ""


def names_in(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def entry_name(node):
    """The name that a road's first station is known by: what a cast is called on, or the call."""
    if isinstance(node, (ast.FunctionDef, ast.Module, ast.AsyncFunctionDef)):
        return getattr(node, "name", "")
    if isinstance(node, ast.Call):
        return text(node.func)
    return text(node).replace("self.", "", 1)


def is_fraction(*nodes):
    """True if NumPy code makes float64: a division, a fraction, a function of real numbers."""
    return any(
        isinstance(part, ast.Div) or isinstance(part, ast.Constant) and type(part.value) is float
        or isinstance(part, ast.Attribute) and part.attr in REAL or text(part) == "float"
        for node in nodes if isinstance(node, ast.AST) for part in ast.walk(node))


def name_of(dtype):
    return str(dtype).replace("torch.", "")


def own_nodes(source):
    """Yield the nodes of a function that run in it, not in functions defined inside."""
    waiting = list(ast.iter_child_nodes(source))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)


def cached(function):
    """Remember an answer about an ast node on the node, which goes when the sources go."""

    def ask(source, *rest):
        memory = source.__dict__.setdefault("_asked", {})
        key = (function.__name__, *rest)
        if key not in memory:
            memory[key] = function(source, *rest)
        return memory[key]

    return ask


@dataclass(frozen=True)
class Binding:
    """One place where a function binds a name: to `node`, or to an entry of it that `pick` tells.

    kind: "value", "for" (an entry of what is gone over), "same" (x += y), "with" or "argument".
    inner: in a comprehension, whose lines do not run from top to bottom.
    """

    kind: str
    node: ast.AST
    line: int
    inner: bool = False
    pick: tuple = ()


@cached
def all_bindings(source):
    """Return {name: [Binding, ...]} of what a function binds, by line."""
    found = {}

    def bind(target, kind, node, line, inner=False, pick=()):
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) and len(
                node.elts) == len(target.elts) and kind == "value" and not pick else None
            for place, part in enumerate(target.elts):
                if parts is not None:
                    bind(part, kind, parts[place], line, inner)
                else:
                    bind(part, kind, node, line, inner, (*pick, place))
        elif isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            found.setdefault(text(target), []).append(Binding(kind, node, line, inner, pick))

    for node in own_nodes(source):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(target, "value", node.value, node.lineno)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            bind(node.target, "value", node.value, node.lineno)
        elif isinstance(node, ast.NamedExpr):
            bind(node.target, "value", node.value, node.lineno)
        elif isinstance(node, ast.AugAssign):
            bind(node.target, "same", node.value, node.lineno)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            bind(node.target, "for", node.iter, node.lineno)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if item.optional_vars is not None:
                    bind(item.optional_vars, "with", item.context_expr, node.lineno)
        elif isinstance(node, ast.comprehension):
            bind(node.target, "for", node.iter, node.target.lineno, True)
    for places in found.values():
        places.sort(key=lambda binding: binding.line)
    return found


def bindings(source, name):
    return all_bindings(source).get(name, [])


def is_handed_on(binding, name):
    """True for `x = f(x)`: whether it was run or not, the road goes on with x."""
    return binding.kind == "same" or binding.kind == "value" and any(
        isinstance(part, ast.Name) and part.id == name for part in ast.walk(binding.node))


def is_rebound(source, name):
    return source is not None and bool(bindings(source, name))


@cached
def branches(source):
    """Return [(first line, last line, node, side)] of the blocks of a function."""
    found = []
    for node in own_nodes(source):
        for side in ("body", "orelse", "handlers", "finalbody"):
            inner = getattr(node, side, None)
            if isinstance(node, (ast.If, ast.For, ast.While, ast.Try)) and inner:
                found.append((inner[0].lineno, inner[-1].end_lineno, node, side))
    return found


def branch(source, line):
    """The blocks that a line stands in, as a list of (node, side)."""
    return [(node, side) for first, last, node, side in branches(source) if first <= line <= last]


def excluded(one, other):
    """True if two lines stand in blocks of which only one is run."""
    sides = {id(node): side for node, side in one if isinstance(node, ast.If)}
    return any(sides.get(id(node), side) != side for node, side in other)


def in_one_loop(source, one, other):
    return any(isinstance(node, (ast.For, ast.While)) and side == "body"
               and first <= one <= last and first <= other <= last
               for first, last, node, side in branches(source))


@cached
def statements(source):
    """[(first line, last line)] of a function's simple statements and of the heads of others."""
    found = []
    for node in own_nodes(source):
        if isinstance(node, ast.stmt):
            inner = getattr(node, "body", None)
            last = inner[0].lineno - 1 if isinstance(inner, list) and inner else node.end_lineno
            found.append((node.lineno, max(last, node.lineno)))
    return found


def statement_line(site, line):
    """First line of the statement that a line belongs to."""
    source = frames.scope(site)
    if source is None or line == float("inf"):
        return line
    around = [first for first, last in statements(source) if first <= line <= last]
    return max(around, default=line)


def starts(source):
    return frames.starts(source) if source is not None else None


def starts_line(source):
    return getattr(source, "lineno", 1)


def parameters(source):
    """Names of a function's parameters; none of a module or a comprehension."""
    arguments = getattr(source, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    more = [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return positional(source) + [a.arg for a in arguments.kwonlyargs] + more


def positional(source):
    arguments = getattr(source, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    return [a.arg for a in arguments.posonlyargs + arguments.args]


def is_bound(source):
    """1 for a method, whose first parameter the call does not write down."""
    return int(bool(positional(source)) and positional(source)[0] in ("self", "cls", "ctx"))


def left_over(site):
    """How many arguments the *args of a function whose frame is gone took; None if not known."""
    call = site.call[0] if isinstance(site, Function) and site.call else None
    if call is None or any(isinstance(part, ast.Starred) for part in call.args):
        return None
    return max(len(call.args) + site.bound - len(positional(frames.scope(site))), 0)


def is_kwarg(source, node):
    arguments = getattr(source, "args", None)
    return isinstance(arguments, ast.arguments) and arguments.kwarg is not None and \
        isinstance(node, ast.Name) and node.id == arguments.kwarg.arg


def default_of(source, name):
    """The node of a parameter's default value, or None."""
    arguments = source.args
    plain = arguments.posonlyargs + arguments.args
    found = dict(zip([a.arg for a in plain[len(plain) - len(arguments.defaults):]],
                     arguments.defaults, strict=True))
    found.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults,
                                           strict=True) if d is not None})
    return found.get(name)


def entry_of(node):
    """The node of some entry of what a node stands for."""
    return ast.copy_location(ast.Subscript(node, ast.Constant(ANY), ast.Load()), node)


@cached
def all_entries(source):
    """Return {name: [(node, line, key)]} of what is put into lists and dicts of a function."""
    found = {}
    for node in own_nodes(source):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    key = target.slice.value if isinstance(target.slice, ast.Constant) else ANY
                    if isinstance(target.slice, ast.UnaryOp):
                        key = ANY
                    found.setdefault(text(target.value), []).append((node.value, node.lineno, key))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
                node.func.attr in ("append", "extend", "insert", "add") and node.args:
            found.setdefault(text(node.func.value), []).append((node.args[-1], node.lineno, ANY))
    return found


def entries(source, name):
    return all_entries(source).get(name, [])


def receiver_of(node, site):
    """The node that a method is called on; None for a plain function, as torch.exp is."""
    if not isinstance(node.func, ast.Attribute):
        return None
    owner = frames.look_up(node.func.value, site)
    return None if is_a(owner, (types.ModuleType, type)) else node.func.value


def keyword_of(node, name):
    return next((k.value for k in node.keywords if k.arg == name), None)


def cast_of(node, site):
    """The dtype that a call casts to; MISSING if it casts to one not known; None if it is no cast."""
    called = where.operation(node)
    dtype = keyword_of(node, "dtype")
    if isinstance(node.func, ast.Attribute):
        if called in CASTS and not node.args and not node.keywords:
            return CASTS[called]
        if called == "type_as":
            return dtype_value(node.args[0], site) if node.args else None
        if called in ("to", "type"):
            for part in [*node.args, *([dtype] if dtype is not None else [])]:
                found = dtype_value(part, site)
                if found is not None:
                    return found
            if called == "to" and all(is_place(part, site) for part in node.args):
                return None
            return MISSING
    if dtype is not None and called not in CREATES and called not in LIKE and \
            not is_numpy(frames.look_up(node.func, site)):
        found = dtype_value(dtype, site)
        return found if found is not None else None
    return None


def dtype_value(node, site):
    """The dtype that a node names: torch.float16, x.dtype, a variable, or a tensor's; else None."""
    value = frames.look_up(node, site)
    if is_a(value, torch.dtype):
        return value
    if frames.is_tensor(value):
        with torch._C.DisableTorchFunction():
            return value.dtype
    if isinstance(node, ast.Attribute) and node.attr == "dtype":
        return MISSING
    return None


def is_place(node, site):
    """True for what names a device, or says nothing of a dtype."""
    value = frames.look_up(node, site)
    if isinstance(node, ast.Call):
        return text(node.func).endswith("device")
    return is_a(value, (str, int, torch.device)) or isinstance(
        node, ast.Attribute) and node.attr == "device"


# --- autocast -------------------------------------------------------------------------------


def autocast_around(site, line):
    """Return the innermost autocast block around a line or its callers, or None.

    {"device", "dtype", "enabled", "site", "line"}; a value that cannot be read is None.
    """
    while site is not None:
        if site.name == "decorate_autocast" and "autocast_instance" in site.locals:
            return {**of_instance(site.locals["autocast_instance"]), "site": site, "line": line}
        source = frames.scope(site)
        for node in own_nodes(source) if source is not None else ():
            if isinstance(node, ast.With) and node.lineno < line <= node.end_lineno or \
                    isinstance(node, ast.With) and node.body[0].lineno == line:
                for item in reversed(node.items):
                    found = region(item.context_expr, site)
                    if found is not None:
                        return {**found, "site": site, "line": node.lineno}
        if isinstance(site, Function):
            site, line = site.parent, site.call[1] if site.call else 0
        else:
            site = site.parent
            line = site.line if site is not None else 0
    return None


def region(node, site):
    """What an autocast written in a `with` does, or None if it is none."""
    value = frames.look_up(node, site)
    if issubclass(type(value), torch.autocast):
        return of_instance(value)
    if not isinstance(node, ast.Call):
        return None
    kind = frames.look_up(node.func, site)
    if is_a(kind, types.FunctionType) and not is_torch(kind):  # a helper that returns one
        inside = Function(kind, MISSING, site, (node, node.lineno))
        return region(inside.ends()[-1][0], inside) if inside.ends() else None
    if not (is_a(kind, type) and torch.autocast in mro(kind)):
        return None
    fixed = {"torch.cuda.amp.autocast_mode": "cuda", "torch.cpu.amp.autocast_mode": "cpu"}
    device = fixed.get(module_name(kind))
    order = ["enabled", "dtype"] if device else ["device_type", "dtype", "enabled"]
    given = dict(zip(order, node.args, strict=False))
    given.update({k.arg: k.value for k in node.keywords})
    values = {name: frames.look_up(part, site) for name, part in given.items()}
    if None in given:  # **options: what is in them is not read
        values.update({name: MISSING for name in order if name not in given})
        given.update(values)
    device = device or values.get("device_type", MISSING)
    dtype = values.get("dtype", MISSING if "dtype" in given else None)
    if dtype is None:
        dtype = torch.bfloat16 if device == "cpu" else torch.float16
    enabled = values.get("enabled", MISSING if "enabled" in given else True)
    return {"device": device if is_a(device, str) else None,
            "dtype": dtype if is_a(dtype, torch.dtype) else None,
            "enabled": enabled if is_a(enabled, bool) else None}


def of_instance(value):
    own = frames.stored(value)
    return {"device": own.get("device"), "dtype": own.get("fast_dtype"),
            "enabled": own.get("_enabled")}
