"""What one expression does to the dtype of its result: the only place that knows calls.

`effect_of` asks the RULES in their order, and the first that answers counts. Past reads the answer
for a dtype, the Tracker of a road for the place where to go on.
"""

import ast
import types
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import torch

from . import failures, frames, values
from .autocast import LOWERED, autocast_around
from .bindings import ANY, as_call, entry_name, entry_of, leaves, text
from .calls import (
    CREATES,
    JOINS,
    KEEPS,
    LIKE,
    LOADS,
    cast_of,
    keyword_of,
    receiver_of,
)
from .functions import Function
from .values import MISSING, is_a, is_numpy, is_torch, mro, space_of

MAX_RECURSION = 12  # functions within functions, and questions within questions


class How(Enum):
    """How a dtype came in; then, of an expression on the way, what it does with its parts."""

    CAST = "cast"
    MADE = "made"
    NUMPY = "numpy"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    ATTRIBUTE = "attribute"
    LOADER = "loader"
    ARGUMENT = "argument"
    UNKNOWN = "unknown"
    CAT = "cat"  # a station where it met others, and won
    # None of these is told to the reader.
    KEEPS = "keeps"  # its dtype is that of its one part
    LIKE = "like"  # so is its dtype, and it is a new tensor
    JOINS = "joins"  # its dtype is that of one of its parts, or of all
    CHOICE = "choice"  # it is one of its parts
    ENTERS = "enters"  # it is what a function returns: one of its parts


class Place(NamedTuple):
    """An expression as it was evaluated at a line of a Site.

    pick: the entries to take from what it stands for: keys, places, attributes, or ANY.
    """

    node: ast.AST
    site: frames.Site
    line: float
    pick: tuple = ()

    def at(self, node, pick=()):
        """Another expression of the same line."""
        return Place(node, self.site, self.line, pick)


class Effect(NamedTuple):
    """What one expression does to the dtype of its result.

    dtype: that of the result, where the expression alone tells. parts: Places that it comes from.
    name: of the station that is told of it, if any; inside: that name is of what held the tensor.
    module: (nn.Module, node) whose parameters decide. quiet: an end that leaves no doubt.
    otherwise: its Effect were there no autocast.
    """

    how: How
    dtype: torch.dtype | None = None
    parts: tuple = ()
    name: str = ""
    inside: bool = False
    module: tuple | None = None
    quiet: bool = False
    otherwise: "Effect | None" = None


UNKNOWN = Effect(How.UNKNOWN)


class Call:
    """A call at a Place, with all that the rules ask about it. past: the Past that is asked."""

    def __init__(self, past, place, depth):
        self.past, self.place, self.depth = past, place, depth
        self.node, self.site, self.line, self.pick = place
        self.name = failures.operation(self.node)
        self.args = self.node.args
        self.any_entry = self.pick[:1] == (ANY,)

    @cached_property
    def cast(self):
        """The dtype that it casts to; MISSING if that is not known; None if it is no cast."""
        return cast_of(self.node, self.site)

    @cached_property
    def receiver(self):
        return receiver_of(self.node, self.site)

    @cached_property
    def callee(self):
        found = values.look_up(self.node.func, self.site)
        return found if found is not MISSING else self.past.loop_member(
            self.node.func, self.site, self.line)

    @cached_property
    def function(self):
        """(function, owner) of the reader's own; (None, MISSING) if it is another's."""
        return self.past.function_of(self.node, self.site, self.line)

    @cached_property
    def model(self):
        """The Place of y in x.to(y.dtype), or d = y.dtype and x.to(d); or None."""
        for node in [*self.args, *(keyword.value for keyword in self.node.keywords)]:
            at = self.line
            if isinstance(node, ast.Name) and (
                    bound := self.past.quiet_binding(node.id, self.site, at)):
                node, at = bound.node, bound.line
            if isinstance(node, ast.Attribute) and node.attr == "dtype":
                return Place(node.value, self.site, at)
        return None

    @property
    def operands(self):
        """What it may work on: the receiver if that is a tensor, and all that is no constant."""
        own = [self.receiver] if self.receiver is not None and (
            self.name in KEEPS or self.dtype_of(self.receiver) is not None) else []
        return [part for part in [*own, *self.args, *(k.value for k in self.node.keywords)]
                if not isinstance(part, ast.Constant)]

    def dtype_of(self, node):
        return self.past.dtype_at(node, self.site, self.line, self.depth)

    def promoted(self, nodes):
        return self.past.promoted(nodes, self.site, self.line, self.depth)

    def lowered(self, name):
        """The dtype that an autocast block around the line gives this op; None without one."""
        if name.lower() not in LOWERED:
            return None
        region = autocast_around(self.site, self.line)
        return region["dtype"] if region and region["enabled"] else None

    def keeps(self, node, pick=()):
        return Effect(How.KEEPS, parts=(self.place.at(node, pick),))

    def joins(self, nodes):
        return Effect(How.JOINS, self.promoted(nodes), tuple(map(self.place.at, nodes)))

    def enters(self, function, owner, dtype=None):
        """What a function of the reader's own returns."""
        if self.past.depth(self.site) > MAX_RECURSION:
            return UNKNOWN
        inside, ends = self.past.enter(function, owner, self.node, self.site, self.line)
        generator = function.__code__.co_flags & 0x20 and self.any_entry
        pick = self.pick[1:] if generator else self.pick  # what a generator yields is an entry
        parts = tuple(Place(end, inside, at, pick) for end, at in ends)
        return Effect(How.ENTERS, dtype, parts, text(self.node.func),
                      bool(self.pick)) if parts else UNKNOWN

    def enters_forward(self, module, dtype=None):
        function = values.attribute(module, "forward")
        if is_a(function, types.MethodType) and is_a(function.__func__, types.FunctionType):
            return self.enters(function.__func__, module, dtype)
        return UNKNOWN


# --- rules: each returns the Effect of a Call, or None if it is not about that call ---------


def quantised(call):
    if call.name.startswith("quantize_per"):
        parts = [*call.args, *(keyword.value for keyword in call.node.keywords)]
        told = [values.look_up(part, call.site) for part in parts]
        return Effect(How.CAST, next((d for d in told if is_a(d, torch.dtype)), None))
    return None


def cast_to_dtype_of_another(call):
    """x.to(y.dtype), where y is not in sight any more."""
    if call.cast is MISSING and call.model is not None:
        return Effect(How.KEEPS, parts=(call.model._replace(pick=call.pick),))
    return None


def cast(call):
    if call.cast is not None:
        return Effect(How.CAST, call.cast if call.cast is not MISSING else None)
    return None


def next_entry(call):
    """next(entries) is some entry of them."""
    if call.name == "next" and call.args:
        return call.keeps(call.args[0], (ANY, *call.pick))
    return None


def iterated(call):
    """Some entry of what a call goes over: zip, enumerate, d.items(), …"""
    if not call.any_entry:
        return None
    args, name, rest = call.args, call.name, call.pick[1:]
    if name in ("iter", "reversed", "tqdm", "list", "tuple", "sorted") and args:
        return call.keeps(args[0], call.pick)
    if name == "enumerate" and rest and args:
        return call.keeps(args[0], (ANY, *rest[1:]))
    if name == "zip" and len(args) == 1 and isinstance(args[0], ast.Starred):
        return call.keeps(args[0].value, (ANY, ANY, *rest[1:]))
    if name == "zip" and rest and isinstance(rest[0], int) and rest[0] < len(args):
        return call.keeps(args[rest[0]], (ANY, *rest[1:]))
    if name in ("values", "items") and isinstance(call.node.func, ast.Attribute):
        return call.keeps(call.node.func.value, (ANY, *rest[name == "items":]))
    return None


def mapped(call):
    """Some entry of map(f, xs): what f returns, with entries of xs for its arguments."""
    if not call.any_entry or call.name != "map" or len(call.args) < 2:
        return None
    function, rest = call.args[0], call.pick[1:]
    inner = ast.copy_location(
        ast.Call(function, [entry_of(part) for part in call.args[1:]], []), call.node)
    code = lambda_code(function, call.site) if isinstance(function, ast.Lambda) else None
    if code is None:
        call.past.kept.append(inner)
        return call.keeps(inner, rest)
    made = types.FunctionType(code, call.site.globals, closure=tuple(
        types.CellType() for _ in code.co_freevars))
    inside = Function(made, MISSING, call.site, (inner, call.line))
    call.past.kept.append(inside)
    return Effect(How.KEEPS, parts=(Place(function.body, inside, function.body.lineno, rest),))


def lambda_code(node, site):
    """The code object of a lambda, among the constants of the function that it stands in."""
    return next((code for code in getattr(site.code, "co_consts", ())
                 if isinstance(code, types.CodeType) and code.co_name == "<lambda>"
                 and code.co_firstlineno == node.lineno), None)


def loader(call):
    """A DataLoader that is made on the spot."""
    if call.any_entry and is_a(call.callee, type) and is_torch(call.callee):
        return Effect(How.LOADER)
    return None


def copied_list(call):
    """list(xs)[0] is xs[0]."""
    if call.name in ("tuple", "list") and call.pick and call.args:
        return call.keeps(call.args[0], call.pick)
    return None


def through_module(call):
    """A module's result: of autocast's dtype, of its parameters', or what its forward returns."""
    module = call.callee
    if not values.is_module(module):
        return None
    if not is_torch(type(module)):
        return call.enters_forward(module)
    lowered = call.lowered(values.class_name(module)) if failures.parameters_of(module) else None
    plain = through_torch_module(call, module)
    return Effect(How.CAST, lowered, otherwise=plain) if lowered is not None else plain


def through_torch_module(call, module):
    dtypes = failures.parameters_of(module)
    dtype = next(iter(dtypes)) if len(dtypes) == 1 else None
    inner, label = last_with_parameters(module, call.node.func)
    if not is_torch(type(inner)):
        return call.enters_forward(inner, dtype)
    inputs = [*call.args, *(keyword.value for keyword in call.node.keywords)]
    if dtypes:
        return Effect(How.PARAMETER, dtype, tuple(map(call.place.at, inputs[:1])),
                      module=(inner, label))
    if len(inputs) == 1:
        return call.joins(inputs)
    return call.keeps(inputs[0]) if inputs else UNKNOWN


def last_with_parameters(module, label):
    """(module, node): of a Sequential its last part with parameters; what a wrapper wraps."""
    children = values.held(module, "_modules")
    if type(module) is torch.nn.Sequential:
        for name, child in reversed(children.items()):
            if failures.parameters_of(child):
                return child, ast.Attribute(label, name)
    if values.class_name(module) in ("DataParallel", "OptimizedModule"):
        inner = next((child for name, child in children.items()
                      if name in ("module", "_orig_mod") and values.is_module(child)), None)
        if inner is not None:
            return inner, label
    return module, label


def numpy_call(call):
    """A call into NumPy, or of a method of an array."""
    func = call.node.func
    if is_numpy(call.callee) or isinstance(func, ast.Attribute) and is_numpy(
            values.look_up(func.value, call.site)):
        return Effect(How.NUMPY)
    return None


def constructor(call):
    """Batch(images=x).images is x, and dict(images=x)["images"] too."""
    if not is_a(call.callee, type) or is_torch(call.callee):
        return None
    if values.one_of(torch.autograd.Function, mro(call.callee)) or not call.pick or not isinstance(
            call.pick[0], str):
        return UNKNOWN
    space = space_of(call.callee)
    order = list(space.get("__dataclass_fields__") or space.get("_fields", ()))
    handed = {**dict(zip(order, call.args, strict=False)),
              **{keyword.arg: keyword.value for keyword in call.node.keywords}}
    node = handed.get(call.pick[0])
    return call.keeps(node, call.pick[1:])._replace(name=text(node)) if node is not None \
        else UNKNOWN


def readers_function(call):
    function, owner = call.function
    return call.enters(function, owner) if function is not None else None


def like(call):
    """zeros_like(y) and y.new_zeros(2) are of y's dtype."""
    if call.name not in LIKE or keyword_of(call.node, "dtype") is not None:
        return None
    node = call.receiver if call.name.startswith("new_") else (call.args or [None])[0]
    return call.keeps(node)._replace(how=How.LIKE) if node is not None else None


def creation_in_dtype_of_another(call):
    """torch.zeros(2, dtype=y.dtype)."""
    if call.name in CREATES | LIKE and call.model is not None:
        return Effect(How.KEEPS, parts=(call.model,), name=entry_name(call.node))
    return None


def creation(call):
    if call.name in CREATES | LIKE:
        numpy = call.past.from_numpy(call.node, call.site, call.line)
        return Effect(How.NUMPY if numpy else How.MADE,
                      call.past.dtype_of_new(call.node, call.name, call.site, call.line))
    return None


def join(call):
    """cat, stack, where: of the dtype that wins among their parts."""
    if call.name not in JOINS or not call.args:
        return None
    first = call.args[0]
    if call.name == "where":  # the condition is of another dtype
        own = [call.receiver] if call.receiver is not None else []
        return call.joins([*own, *call.args[1:]])
    if isinstance(first, (ast.List, ast.Tuple)):
        return call.joins(first.elts)
    return call.keeps(first, (ANY,))._replace(name=text(first), inside=True)


def loaded(call):
    """torch.load(file): a file's contents are an end of the road that leaves no doubt."""
    if call.name in LOADS and is_torch(call.callee):
        return Effect(How.UNKNOWN, quiet=True)
    return None


def entry_of_dict(call):
    """table.get("low") is table["low"]."""
    if call.name in ("get", "pop", "setdefault") and call.receiver is not None and call.args and \
            isinstance(call.args[0], ast.Constant):
        return call.keeps(call.receiver, (call.args[0].value, *call.pick))
    return None


def lowered_by_autocast(call):
    dtype = call.lowered(call.name)
    return Effect(How.CAST, dtype, otherwise=torch_function(call) or UNKNOWN) \
        if dtype is not None else None


def kept_by_method(call):
    """x.t(), x.add_(y): what keeps its dtype, and all that works in place."""
    in_place = call.name.endswith("_") and not call.name.endswith("__")
    if call.receiver is not None and (in_place or call.name in KEEPS):
        return call.keeps(call.receiver)
    return None


def torch_function(call):
    """Any other function: of one of its operands' dtype, if it is torch's."""
    torchs = is_torch(call.callee)
    operands = call.operands
    tensors = [part for part in operands if call.dtype_of(part) is not None]
    if tensors:
        dtype = call.promoted(call.args) if torchs or call.name in KEEPS else None
        return Effect(How.JOINS, dtype, tuple(map(call.place.at, tensors)))
    one = torchs and len(operands) == 1 and not call.past.is_number(
        operands[0], call.site, call.line)
    if operands and (call.name in KEEPS or one):
        return call.keeps(operands[0])
    return Effect(How.MADE) if torchs else None


RULES = (
    quantised, cast_to_dtype_of_another, cast, next_entry, iterated, mapped, loader, copied_list,
    through_module, numpy_call, constructor, readers_function, like, creation_in_dtype_of_another,
    creation, join, loaded, entry_of_dict, lowered_by_autocast, kept_by_method, torch_function,
)


def effect_of(past, place, depth=0):
    """Return the Effect of an expression; None for a name, an entry or a literal.

    What those stand for is a matter of bindings: there the two readers go ways of their own.
    """
    if isinstance(place.node, ast.Call):
        call = Call(past, place, depth)
        return next((found for rule in RULES if (found := rule(call)) is not None), UNKNOWN)
    if isinstance(place.node, ast.Attribute):
        return effect_of_attribute(past, place, depth)
    return effect_of_operator(past, place, depth)


def effect_of_attribute(past, place, depth):
    """x.T and its like, or a property of the reader's own; None for what an object holds."""
    node, site, line, _ = place
    if node.attr in ("T", "mT", "data", "grad"):
        return Effect(How.KEEPS, parts=(place._replace(node=node.value),))
    owner = past.value_at(node.value, site, line)
    function = None if values.is_tensor(owner) else values.getter(owner, node.attr)
    if function is None:
        return None
    call = as_call(node)
    past.kept.append(call)  # what is known is known by its id
    return Call(past, place._replace(node=call), depth).enters(function, owner)


def effect_of_operator(past, place, depth):
    node, site, line, pick = place
    if isinstance(node, (ast.Await, ast.Starred, ast.NamedExpr, ast.YieldFrom)):
        return Effect(How.KEEPS, parts=(place.at(node.value, pick),))
    if isinstance(node, ast.UnaryOp):
        return Effect(How.KEEPS, parts=(place.at(node.operand, pick),))
    if isinstance(node, ast.BinOp):
        parts = leaves(node)
        return Effect(How.JOINS, past.promoted(parts, site, line, depth),
                      tuple(map(place.at, parts)))
    if isinstance(node, ast.IfExp):
        truth = past.truth(node.test, site, line)
        both = [node.body, node.orelse] if truth is None else [node.body if truth else node.orelse]
        return Effect(How.CHOICE, parts=tuple(place.at(part, pick) for part in both))
    if isinstance(node, ast.BoolOp):
        return Effect(How.CHOICE, parts=tuple(place.at(part, pick) for part in node.values))
    if isinstance(node, ast.Compare):
        return Effect(How.MADE, torch.bool)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return Effect(How.KEEPS, parts=(Place(node.elt, site, node.elt.lineno, pick[1:]),))
    return None
