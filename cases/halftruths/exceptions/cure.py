"""The cure of a dtype failure: the one place to change, the line as it should read, the price."""

import ast
import linecache

import torch

from ..dtypes import dtype_name
from . import failures, frames, values
from .bindings import bindings, own_nodes, text
from .calls import CREATES, LIKE, SEVERAL, keyword_of
from .functions import Function

LONGEST = 4_000  # characters of a statement that is shown changed
REDUCES = ("softmax", "log_softmax", "sum", "mean", "cumsum", "prod")
DIGITS = {torch.float16: "about 3 digits, nothing above 65504",
          torch.bfloat16: "about 2 digits", torch.float32: "about 7 digits"}


def change(site, edits, before=""):
    """Return {"at", "code"}: the lines of a Site with nodes replaced, and a line put before them.

    edits: [(node, new text)], on one statement. None where the source is not to be had.
    """
    if not all(hasattr(node, "lineno") for node, _ in edits):
        return None
    first = min(node.lineno for node, _ in edits)
    last = max(node.end_lineno for node, _ in edits)
    lines = [linecache.getline(site.filename, number) for number in range(first, last + 1)]
    if not all(lines) or len("".join(lines)) > LONGEST:
        return None
    code = spliced(site, (first, 0), (last, None), edits).rstrip("\n")
    if before:
        code = code[:len(code) - len(code.lstrip())] + before + "\n" + code
    span = f"{first}" if first == last else f"{first}-{last}"
    return {"at": f"{frames.show_file(site.filename)}:{span}", "code": code}


def spliced(site, start, end, edits):
    """The source from (line, byte) to (line, byte), with nodes in it replaced by other text."""
    lines = [linecache.getline(site.filename, number).encode()
             for number in range(start[0], end[0] + 1)]
    before = [sum(map(len, lines[:place])) for place in range(len(lines))]

    def offset(line, column):
        return before[line - start[0]] + column

    source = b"".join(lines)
    stop = len(source) if end[1] is None else offset(*end)
    for node, new in sorted(edits, key=lambda edit: -offset(edit[0].lineno, edit[0].col_offset)):
        first = offset(node.lineno, node.col_offset)
        last = offset(node.end_lineno, node.end_col_offset)
        source = source[:first] + new.encode() + source[last:]
        stop += len(new.encode()) - (last - first)
    return source[offset(*start):stop].decode()


def source_of(site, node, edits=()):
    """The text of a node as it stands in its file, in brackets if a method cannot follow it."""
    if not hasattr(node, "lineno"):
        return text(node)
    found = spliced(site, (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset),
                    edits)
    plain = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return found if plain else f"({found})"


def torch_name(site):
    """What this file calls torch."""
    return next((name for name, value in site.globals.items() if value is torch), "torch")


def dtype_text(site, dtype):
    return f"{torch_name(site)}.{dtype_name(dtype)}"


def cast(site, node, dtype, quantised=False):
    """The text of a node, cast; a creation is given the dtype instead."""
    written = dtype_text(site, dtype)
    found = source_of(site, node)
    if quantised:
        return f"{found}.dequantize()" + ("" if dtype == torch.float32 else f".to({written})")
    if isinstance(node, ast.Call):
        called = failures.operation(node)
        given = keyword_of(node, "dtype")
        if called in (CREATES | LIKE) - {"from_numpy"} and given is not None:
            shorter = source_of(site, given)
            return found.replace(f"dtype={shorter}", f"dtype={written}")
        unknown = any(keyword.arg is None for keyword in node.keywords)  # **options
        if called in (CREATES | LIKE) - {"from_numpy", "as_tensor"} and not unknown:
            inside = found.rstrip()[:-1].rstrip().rstrip(",")
            return f"{inside}, dtype={written})"
    return f"{found}.to({written})"


def recast(site, node, dtype):
    """The text of a cast, to another dtype."""
    written = dtype_text(site, dtype)
    if isinstance(node.func, ast.Attribute) and failures.operation(node) != "type_as":
        inner = source_of(site, node.func.value)
        if failures.operation(node) in ("to", "type"):
            for part in [*node.args, *(k.value for k in node.keywords)]:
                value = values.look_up(part, site)
                if isinstance(value, torch.dtype) or text(part).endswith(".dtype"):
                    return source_of(site, node).replace(source_of(site, part), written)
        return f"{inner}.to({written})"
    return cast(site, node, dtype)


def along(trail, failure, odd, home, whole=False):
    """Return the change that gives the odd dtype's road the dtype `home`, at its seam, or None.

    A creation is given the right dtype, a cast the right target. What comes out of a module, a
    loader, a function that has its reasons, is cast where it is handed on. Only the reader's own
    files are changed. whole: change an explicit cast at once, for nothing of that dtype is wanted.
    """
    seams = [step for step in trail.steps if step.site.mine]
    if not seams:
        return None
    entry, node = seams[0], seams[0].node
    quantised = is_quantised(trail.dtype)
    if quantised and failure.site.mine:
        return change(failure.site, [(odd, cast(failure.site, odd, home, True))])
    first = entry is trail.steps[0]
    if first and trail.how in ("made", "numpy") and isinstance(node, ast.Call) and not chosen(node):
        return change(entry.site, [(node, cast(entry.site, node, home))])
    if whole and first and trail.how == "cast" and isinstance(node, ast.Call):
        return change(entry.site, [(node, recast(entry.site, node, home))])
    if first and trail.how == "made" and isinstance(node, ast.BinOp):
        return change(entry.site, [(node, cast(entry.site, node, home))])
    if first and trail.how == "parameter" and isinstance(node, ast.Call):
        return change(entry.site, [(node, cast(entry.site, node, home))])
    if trail.how == "parameter" and failure.site.mine and isinstance(odd, ast.Attribute):
        alike = [part for part in on_line(failure) if dtype_of(part, failure.site) == trail.dtype]
        return change(failure.site, [(part, cast(failure.site, part, home))
                                     for part in alike or [odd]])
    is_cast = first and trail.how == "cast" and isinstance(node, ast.Call) and not values.is_module(
        values.look_up(node.func, entry.site)) and failures.operation(node) not in REDUCES
    if is_cast and not isinstance(entry.site, Function):
        return change(entry.site, [(node, recast(entry.site, node, home))])
    wanted = first and trail.how == "made" and isinstance(node, ast.Call) and chosen(node)
    for step in sorted(seams, key=lambda step: isinstance(step.site, Function)):
        if isinstance(step.site, Function) and (step.how or step.site.module is not None) or \
                wanted and step is entry:
            continue
        piece = piece_of(step, step.node, step.name)
        if piece is not None:
            return change(step.site, [(piece, cast(step.site, piece, home))])
    for step in seams:
        piece = piece_of(step, *step.handed) if step.handed else None
        if piece is not None:
            return change(step.site, [(piece, cast(step.site, piece, home))])
    if wanted:
        return change(entry.site, [(node, cast(entry.site, node, home))])
    if hasattr(odd, "lineno") and failure.site.mine and odd not in (
            failure.node, getattr(failure.node, "func", None)):
        odd = bound_once(odd, failure) or odd
        return change(failure.site, [(odd, cast(failure.site, odd, home))])
    if is_cast:
        return change(entry.site, [(node, recast(entry.site, node, home))])
    return None


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


def is_quantised(dtype):
    return str(dtype).startswith(("torch.q", "torch.quint"))


def chosen(node):
    """True for a creation whose dtype is written down: someone wanted it, for positions say."""
    return failures.operation(node) not in ("from_numpy",) and keyword_of(node, "dtype") is not None


def piece_of(step, node, name):
    """The part of a step's expression that carries the odd dtype, to be cast there, or None."""
    inside = step.inside and node is step.node
    if inside or not hasattr(node, "lineno"):
        return None
    if isinstance(node, ast.Call):
        if failures.operation(node) in SEVERAL:
            return None
        parts = [part for part in all_parts(node) if text(part) == name]
        if any(values.look_up(part, step.site) is not values.MISSING and not values.is_tensor(
                values.look_up(part, step.site)) for part in parts):
            return None  # an object that held the tensor
        called = values.look_up(node.func, step.site)
        if is_at_work(node, step.site) and node is not step.node:
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


def all_parts(node):
    """The arguments of a call, and the members of a list among them."""
    for part in [*node.args, *(k.value for k in node.keywords if k.arg is not None)]:
        if isinstance(part, (ast.List, ast.Tuple)):
            yield from part.elts
        else:
            yield part
    if isinstance(node.func, ast.Attribute):
        yield node.func.value


def price(dtype, home, made=False):
    """What a cast costs, in words; or that a tensor is made in another dtype at once."""
    if made and home.is_floating_point:
        return f"its numbers have {DIGITS.get(home, 'other digits')}"
    if not failures.is_floating(home):
        return "a copy; a fraction is cut off, so check that there are none"
    if failures.is_floating(dtype) and (torch.finfo(dtype).bits > torch.finfo(home).bits
                                    or (dtype, home) == (torch.float16, torch.bfloat16)):
        digits = f" ({DIGITS[home]})" if home in DIGITS else ""
        return f"a copy, and one rounding to {dtype_name(home)}{digits}"
    return f"a copy in {dtype_name(home)}; nothing is rounded"
