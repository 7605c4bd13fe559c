"""Questions about a function's source: what it binds, and where; which line is which statement.

Only the ast is looked at here, and answers are kept on its nodes.
"""

import ast
from dataclasses import dataclass

from . import frames

ANY = "*"  # a pick: some entry of what is gone over, which one is not known


def text(node):
    """The source of a node in one form, remembered on it; "" where it is too deep to be written."""
    if "_text" not in node.__dict__:
        try:
            node._text = ast.unparse(node)
        except Exception:
            node._text = ""
    return node._text


def leaves(node):
    """The operands of operators within operators, and the members of tuples and lists."""
    waiting, found = [node], []
    while waiting:
        part = waiting.pop()
        if isinstance(part, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List)):
            waiting += reversed([child for child in ast.iter_child_nodes(part)
                                 if isinstance(child, ast.expr)])
        else:
            found.append(part)
    return found


def bound_in(source, node):
    """Names in a node that its function binds, and `self.x` and `x[0]` where it binds those."""
    bound = all_bindings(source)
    compound = any(not name.isidentifier() for name in bound)
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in bound:
            yield part.id
        elif compound and isinstance(part, (ast.Attribute, ast.Subscript)) and text(part) in bound:
            yield text(part)


def names_in(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def entry_name(node):
    """The name that a road's first station is known by: what a cast is called on, or the call."""
    if isinstance(node, (ast.FunctionDef, ast.Module, ast.AsyncFunctionDef)):
        return getattr(node, "name", "")
    if isinstance(node, ast.Call):
        return text(node.func)
    return text(node).replace("self.", "", 1)


def cached(function):
    """Remember an answer about an ast node on the node, which goes when the sources go."""

    def ask(source, *rest):
        memory = source.__dict__.setdefault("_asked", {})
        key = (function.__name__, *rest)
        if key not in memory:
            memory[key] = function(source, *rest)
        return memory[key]

    return ask


@cached
def own_nodes(source):
    """Return the nodes of a function that run in it, not in functions defined inside."""
    found = list(ast.iter_child_nodes(source))
    for node in found:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            found += ast.iter_child_nodes(node)
    return found


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


def line_of_definition(source):
    """The line of a `def`, or 1 of a module's own code."""
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


def implicit_arguments(source):
    """How many parameters a call does not write down: 1 for a method, 0 for another function."""
    return int(bool(positional(source)) and positional(source)[0] in ("self", "cls", "ctx"))


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


def as_call(node):
    """A property as the call that it is, in the place where it is read."""
    return ast.copy_location(ast.Call(node, [], []), node)


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
