"""The cure of a dtype failure: the one place to change, the line as it should read, the price."""

import ast
import linecache
import types
from typing import NamedTuple

import torch

from ..dtypes import dtype_name
from . import failures, frames, values
from .bindings import text
from .calls import CREATES, LIKE, keyword_of

MAX_STATEMENT = 4_000  # characters of a statement that is shown changed
DIGITS = {torch.float16: "about 3 digits, nothing above 65504",
          torch.bfloat16: "about 2 digits", torch.float32: "about 7 digits"}


class Cure(NamedTuple):
    """Lines as they should read. at: file and lines. costs: in words."""

    at: str
    code: str
    costs: str = ""

    def at_the_price_of(self, costs):
        return self._replace(costs=costs)


def change(site, edits, before=""):
    """Return the Cure: the lines of a Site with nodes replaced, and a line put before them.

    edits: [(node, new text)], on one statement. None where the source is not to be had.
    """
    if not all(hasattr(node, "lineno") for node, _ in edits):
        return None
    first = min(node.lineno for node, _ in edits)
    last = max(node.end_lineno for node, _ in edits)
    lines = [linecache.getline(site.filename, number) for number in range(first, last + 1)]
    if not all(lines) or len("".join(lines)) > MAX_STATEMENT:
        return None
    code = spliced(site, (first, 0), (last, None), edits).rstrip("\n")
    if before:
        code = code[:len(code) - len(code.lstrip())] + before + "\n" + code
    span = f"{first}" if first == last else f"{first}-{last}"
    return Cure(f"{frames.show_file(site.filename)}:{span}", code)


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
    if quantised:
        plain = f"{source_of(site, node)}.dequantize()"
        return plain if dtype == torch.float32 else f"{plain}.to({written})"
    return created(site, node, dtype) or f"{source_of(site, node)}.to({written})"


def created(site, node, dtype):
    """The text of a creation that is given a dtype; None for what is none or takes no dtype."""
    if not isinstance(node, ast.Call):
        return None
    called, written = failures.operation(node), dtype_text(site, dtype)
    found = source_of(site, node)
    given = keyword_of(node, "dtype")
    if called in (CREATES | LIKE) - {"from_numpy"} and given is not None:
        return found.replace(f"dtype={source_of(site, given)}", f"dtype={written}")
    unknown = any(keyword.arg is None for keyword in node.keywords)  # **options
    if called in (CREATES | LIKE) - {"from_numpy", "as_tensor"} and not unknown:
        inside = found.rstrip()[:-1].rstrip().rstrip(",")
        return f"{inside}, dtype={written})"
    return None


def recast(site, node, dtype):
    """The text of a cast, to another dtype."""
    written = dtype_text(site, dtype)
    if not isinstance(node.func, ast.Attribute) or failures.operation(node) == "type_as":
        return cast(site, node, dtype)
    for part in [*node.args, *(k.value for k in node.keywords)]:
        value = values.look_up(part, site)
        if values.is_a(value, torch.dtype) or text(part).endswith(".dtype"):
            return source_of(site, node, [(part, written)])
    if values.is_a(values.look_up(node.func.value, site), (types.ModuleType, type)):
        return cast(site, node, dtype)  # torch.Tensor.half(x): what is before the dot is no tensor
    return f"{source_of(site, node.func.value)}.to({written})"


def is_quantised(dtype):
    return str(dtype).startswith(("torch.q", "torch.quint"))


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
    dtype = torch.float32 if is_quantised(dtype) else dtype  # which dequantize gives
    if dtype.is_complex and not home.is_complex and not made:
        return "a copy; the imaginary part is dropped"
    if made and home.is_floating_point:
        return f"its numbers have {DIGITS.get(home, 'other digits')}"
    if not failures.is_floating(home):
        return "a copy; a fraction is cut off, so check that there are none"
    if failures.is_floating(dtype) and (torch.finfo(dtype).bits > torch.finfo(home).bits
                                    or (dtype, home) == (torch.float16, torch.bfloat16)):
        digits = f" ({DIGITS[home]})" if home in DIGITS else ""
        return f"a copy, and one rounding to {dtype_name(home)}{digits}"
    return f"a copy in {dtype_name(home)}; nothing is rounded"
