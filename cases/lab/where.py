"""Where it happened, from the exception alone: no hook, no second run, nothing disturbed.

The traceback's frames still hold their local variables. The innermost frame of the program
knows the expression that failed; its names lead to tensors, and those to dtypes.
"""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from cases.lab import frames
from cases.lab.case import dtype_name

OPERATORS = {ast.MatMult: "matmul", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
VIEWS = ("transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "flatten", "contiguous",
         "t", "expand")
# Frames that hand a call on: their operands are those of the frame before.
MACHINERY = ("torch/nn/modules/module.py", "torch/nn/modules/container.py",
             "torch/utils/checkpoint.py", "torch/nn/parallel/", "torch/utils/_contextlib.py",
             "torch/autograd/grad_mode.py", "torch/amp/autocast_mode.py", "torch/_tensor.py",
             "torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/overrides.py",
             "torch/autograd/function.py", "torch/_dynamo/", "torch/_functorch/",
             "torch/fx/", "torch/_compile.py")


@dataclass
class Failure:
    """A Site whose expression `node` failed, with its operands [(name, tensor, node)].

    module: the nn.Module at work and its path from the root model; both None in plain functions.
    """

    site: frames.Site
    node: ast.AST
    operands: list
    module: torch.nn.Module | None
    path: str | None
    root: torch.nn.Module | None

    @property
    def op(self):
        return operation(self.node)


def locate(error, program=None):
    """Return where `error` was raised, or None if its traceback shows no torch operation.

    program: folder of the program's own code; the origin is looked for there.
    Returns {"module": path from the root model ("" is the model itself) or None,
    "op": name, "operands": [{"name", "dtype", "shape", "device"}], "origin": {"file",
    "line", "code", "name", "dtype"} or None}. A ragged dimension of a nested tensor has
    length -1. The origin is the outermost call in the program that is handed the odd dtype.
    """
    sites = frames.sites(error)
    failure = failing(sites)
    frames.forget()
    return None if failure is None else to_json(failure, origin(sites, failure, program))


def to_json(failure, origin=None):
    return {
        "module": failure.path,
        "op": failure.op,
        "operands": [describe(name, tensor) for name, tensor, _ in failure.operands],
        "origin": origin,
    }


def failing(sites):
    """Return the Failure: the innermost expression of the Sites that has tensors in it, or None."""
    for depth in range(len(sites) - 1, -1, -1):
        site = sites[depth]
        if is_machinery(site):
            continue
        node = frames.working(site)
        operands = list(operands_of(node, site)) if node is not None else []
        if operands:
            return Failure(site, node, operands, *module_of(sites[:depth + 1]))
    return None


def is_machinery(site):
    return any(part in site.filename.replace("\\", "/") for part in MACHINERY)


def operation(node):
    """Name of the operation: linear, baddbmm, matmul, index_put, …"""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        return OPERATORS.get(type(node.op), type(node.op).__name__.lower())
    if isinstance(node, ast.Assign):
        return "index_put"
    if isinstance(node, ast.Subscript):
        return "index"
    if isinstance(node, (ast.UnaryOp, ast.Compare)):
        return type(node.op if isinstance(node, ast.UnaryOp) else node.ops[0]).__name__.lower()
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def arguments_of(node):
    """Return [(keyword or None, node)] of what an expression works on, the receiver first."""
    if isinstance(node, ast.BinOp):
        return [(None, node.left), (None, node.right)]
    if isinstance(node, ast.AugAssign):
        return [(None, node.target), (None, node.value)]
    if isinstance(node, ast.Assign):
        target = next(t for t in node.targets if isinstance(t, ast.Subscript))
        return [(None, target.value), (None, node.value), (None, target.slice)]
    if isinstance(node, ast.Subscript):
        return [(None, node.value), (None, node.slice)]
    if isinstance(node, ast.UnaryOp):
        return [(None, node.operand)]
    if isinstance(node, ast.Compare):
        return [(None, node.left), *((None, part) for part in node.comparators)]
    receiver = [(None, node.func.value)] if isinstance(node.func, ast.Attribute) else []
    return (receiver + [(None, part) for part in node.args]
            + [(keyword.arg, keyword.value) for keyword in node.keywords])


def operands_of(node, site):
    """Yield (name, tensor, node) of the operands of `node` that names in `site` stand for."""
    seen = set()
    for keyword, argument in arguments_of(node):
        parts = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument]
        for part in parts:
            base = base_name(part)
            if base is None:
                continue
            name = keyword or ast.unparse(base).replace("self.", "")
            for label, tensor in frames.tensors_in(frames.look_up(base, site), name):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield label, tensor, part


def base_name(node):
    """Strip views from an expression: `q.transpose(0, 1)[:2]` is about `q`."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in VIEWS:
                return None
            node = node.func.value
        elif isinstance(node, ast.Subscript):
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                return node  # an entry of a dict
            node = node.value
        elif isinstance(node, ast.Starred):
            node = node.value
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            node = node.value
        else:
            break
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def module_of(sites):
    """Return the innermost module at work, its path from the outermost that holds it, and that."""
    inner = next((site.module for site in reversed(sites) if site.module is not None), None)
    return (inner, *path_of(sites, inner)) if inner is not None else (None, None, None)


def path_of(sites, inner):
    """Return a module's path from the outermost model in sight that holds it, and that model."""
    looked = set()
    for site in sites:
        for value in site.locals.values():
            if not frames.is_module(value) or id(value) in looked:
                continue
            for path, module in frames.walk(value):
                if module is inner:
                    return path, value
                looked.add(id(module))  # whatever is below it was looked at too
    return None, None


def describe(name, tensor):
    with torch._C.DisableTorchFunction():
        return {"name": name, "dtype": dtype_name(tensor.dtype), "shape": shape_of(tensor),
                "device": str(tensor.device)}


def shape_of(tensor):
    """Lengths of a tensor's dimensions; -1 where a nested tensor's rows have no common length."""
    shape = []
    try:
        dimensions = tensor.dim()
    except (RuntimeError, ValueError):  # a parameter of a lazy module has none yet
        return shape
    for dimension in range(dimensions):
        try:
            shape.append(int(tensor.size(dimension)))
        except (RuntimeError, TypeError, ValueError):
            shape.append(-1)
    return shape


def is_floating(tensor):
    with torch._C.DisableTorchFunction():
        return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def odd_dtype(failure, sites):
    """The floating dtype that does not belong, or None where the operands agree.

    What belongs is the dtype of the failing module's own parameters among the operands;
    without such, the most common dtype of the parameters of the models in sight.
    """
    floats = [tensor for _, tensor, _ in failure.operands if is_floating(tensor)]
    if len({tensor.dtype for tensor in floats}) < 2:
        return None
    own = set()
    if failure.module is not None:
        own = {id(parameter) for _, module in frames.walk(failure.module)
               for _, parameter in frames.own_tensors(module, ("_parameters",))}
    at_home = Counter(t.dtype for t in floats if id(t) in own)
    if not at_home:
        for site in sites:
            for value in site.locals.values():
                if frames.is_module(value):
                    at_home.update(parameters_of(value))
    if not at_home:
        return None
    home = at_home.most_common(1)[0][0]
    return next((dtype for dtype in (t.dtype for t in floats) if dtype != home), None)


def parameters_of(root):
    """Return a Counter of how many elements a model's floating parameters have, by dtype."""
    counted = Counter()
    with torch._C.DisableTorchFunction():
        for _, module in frames.walk(root):
            for _, parameter in frames.own_tensors(module, ("_parameters",)):
                if parameter.dtype.is_floating_point:
                    counted[parameter.dtype] += size_of(parameter)
    return counted


def size_of(tensor):
    try:
        return tensor.numel()
    except (RuntimeError, ValueError):
        return 0


def origin(sites, failure, program):
    """The outermost call in the program's own files that is handed a tensor of the odd dtype."""
    odd = odd_dtype(failure, sites)
    if odd is None or program is None:
        return None
    for site in sites:
        if Path(site.filename).parent != Path(program):
            continue
        node = frames.working(site)
        for name, tensor, _ in operands_of(node, site) if node is not None else ():
            if tensor.dtype == odd:
                return {
                    "file": Path(site.filename).name,
                    "line": site.line,
                    "code": site.text.strip(),
                    "name": name,
                    "dtype": dtype_name(odd),
                }
        if site is failure.site:
            return None
    return None
