"""Where it happened, from the exception alone: no hook, no second run, nothing disturbed.

The traceback's frames still hold their local variables. The innermost frame of the program
knows the expression that failed; its names lead to tensors, and those to dtypes.
"""

import ast
import linecache
import textwrap
import traceback
from collections import Counter
from pathlib import Path

import torch

from cases.lab.case import dtype_name

OPERATORS = {
    ast.MatMult: "matmul", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
}


def locate(error, program=None):
    """Return where `error` was raised, or None if its traceback shows no torch operation.

    program: folder of the program's own code; the origin is looked for there.
    Returns {"module": path from the root model ("" is the model itself) or None,
    "op": name, "operands": [{"name", "dtype", "shape", "device"}], "origin": {"file",
    "line", "code", "name", "dtype"} or None}. A ragged dimension of a nested tensor has
    length -1. The origin is the outermost call in the program that is handed the odd dtype.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    summaries = traceback.extract_tb(error.__traceback__)
    for depth in range(len(frames) - 1, -1, -1):
        call = failing_expression(summaries[depth])
        operands = list(tensors_of(call, frames[depth])) if call is not None else []
        if operands:
            break
    else:
        return None
    inner, path = module_of(frames[: depth + 1])
    return {
        "module": path,
        "op": operation(call),
        "operands": [describe(name, tensor) for name, tensor in operands],
        "origin": origin(
            frames[: depth + 1], summaries, odd_dtype(operands, inner, frames), program
        ),
    }


def failing_expression(summary):
    """Return the ast node of the call or operator that the frame was busy with, or None."""
    line = summary.line or ""
    text = line
    if getattr(summary, "colno", None) is not None and summary.end_lineno is not None:
        lines = [linecache.getline(summary.filename, number)
                 for number in range(summary.lineno, summary.end_lineno + 1)]
        if lines and all(lines):
            # Columns count bytes of UTF-8.
            lines[-1] = lines[-1].encode()[: summary.end_colno].decode()
            lines[0] = lines[0].encode()[summary.colno :].decode()
            text = "".join(lines)
    return expression(text) or expression(textwrap.dedent(line).removeprefix("return "))


def expression(text):
    """Return the outermost call or operator in a line of code, or None.

    The first line of a call that goes on is enough: the open brackets are closed.
    """
    text = text.strip()
    for candidate in (text, text + ")", text + "))", text + "0)"):
        try:
            tree = ast.parse(f"({candidate}\n)", mode="eval").body
        except SyntaxError:
            continue
        return next((n for n in ast.walk(tree) if isinstance(n, (ast.Call, ast.BinOp))), None)
    return None


def operation(node):
    """Name of the operation: linear, baddbmm, matmul, …"""
    if isinstance(node, ast.BinOp):
        return OPERATORS.get(type(node.op), type(node.op).__name__.lower())
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def tensors_of(node, frame):
    """Yield (name, tensor) of the operands of `node` that are plain names in `frame`."""
    if isinstance(node, ast.BinOp):
        arguments = [(None, node.left), (None, node.right)]
    else:
        arguments = [(None, argument) for argument in node.args]
        arguments += [(keyword.arg, keyword.value) for keyword in node.keywords]
        if isinstance(node.func, ast.Attribute):
            arguments.insert(0, (None, node.func.value))
    seen = set()
    for keyword, argument in arguments:
        items = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument]
        for item in items:
            base = base_name(item)
            value = look_up(base, frame) if base is not None else None
            if isinstance(value, torch.Tensor) and id(value) not in seen:
                seen.add(id(value))
                yield keyword or ast.unparse(base).replace("self.", ""), value


def base_name(node):
    """Strip views from an expression: `q.transpose(0, 1)[:2]` is about `q`."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ("transpose", "permute", "view", "reshape", "unsqueeze",
                                      "squeeze", "flatten", "contiguous", "t", "expand"):
                return None
            node = node.func.value
        elif isinstance(node, (ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            node = node.value
        else:
            break
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def look_up(node, frame):
    """Value of a name or an attribute of one, read without running anyone's code."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if not isinstance(node, ast.Attribute):
        return None
    owner = look_up(node.value, frame)
    if isinstance(owner, torch.nn.Module):
        for store in (owner._parameters, owner._buffers, owner._modules):
            if node.attr in store:
                return store[node.attr]
    return getattr(owner, "__dict__", {}).get(node.attr)


def module_of(frames):
    """Return the innermost module at work and its path from the outermost that holds it."""
    inner = None
    for frame in reversed(frames):
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            inner = owner
            break
    if inner is None:
        return None, None
    for frame in frames:
        for value in list(frame.f_locals.values()):
            if isinstance(value, torch.nn.Module):
                for path, module in value.named_modules():
                    if module is inner:
                        return inner, path
    return inner, None


def describe(name, tensor):
    return {
        "name": name,
        "dtype": dtype_name(tensor.dtype),
        "shape": shape_of(tensor),
        "device": str(tensor.device),
    }


def shape_of(tensor):
    shape = []
    for dimension in range(tensor.dim()):
        try:
            shape.append(tensor.size(dimension))
        except RuntimeError:  # a nested tensor's rows have no common length
            shape.append(-1)
    return shape


def odd_dtype(operands, inner, frames):
    """The floating dtype that does not belong, or None where the operands agree.

    What belongs is the dtype of the failing module's own parameters among the operands;
    without such, the most common dtype of the parameters of the models in sight.
    """
    floats = [tensor for _, tensor in operands if tensor.is_floating_point()]
    dtypes = {tensor.dtype for tensor in floats}
    if len(dtypes) < 2:
        return None
    own = {id(p) for p in inner.parameters()} if inner is not None else set()
    at_home = Counter(t.dtype for t in floats if id(t) in own)
    if not at_home:
        for frame in frames:
            for value in list(frame.f_locals.values()):
                if isinstance(value, torch.nn.Module):
                    at_home.update({p.dtype: p.numel() for p in value.parameters()})
    if not at_home:
        return None
    home = at_home.most_common(1)[0][0]
    return next((dtype for dtype in (t.dtype for t in floats) if dtype != home), None)


def origin(frames, summaries, odd, program):
    """The outermost call in the program's own files that is handed a tensor of dtype `odd`."""
    if odd is None or program is None:
        return None
    for frame, summary in zip(frames, summaries, strict=False):
        if Path(summary.filename).parent != Path(program):
            continue
        call = failing_expression(summary)
        for name, tensor in tensors_of(call, frame) if call is not None else ():
            if tensor.dtype == odd:
                return {
                    "file": Path(summary.filename).name,
                    "line": summary.lineno,
                    "code": summary.line,
                    "name": name,
                    "dtype": dtype_name(odd),
                }
    return None
