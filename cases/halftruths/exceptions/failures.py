"""Where it happened, from the exception alone: no hook, no second run, nothing disturbed.

The traceback's frames still hold their local variables. The innermost frame of the program
knows the expression that failed; its names lead to tensors, and those to dtypes.
"""

import ast
import types
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch

from ..dtypes import dtype_name
from . import frames, values

OPERATORS = {ast.MatMult: "matmul", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
             ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
             ast.Invert: "bitwise_not", ast.USub: "neg"}
VIEWS = ("abs", "neg", "detach", "clone", "cuda", "cpu", "transpose", "permute", "view", "reshape",
         "unsqueeze", "squeeze", "flatten", "contiguous", "t", "expand")
# Frames that hand a call on: their operands are those of the frame before.
MACHINERY = ("torch/nn/modules/module.py", "torch/nn/modules/container.py",
             "torch/utils/checkpoint.py", "torch/nn/parallel/", "torch/utils/_contextlib.py",
             "torch/autograd/grad_mode.py", "torch/amp/autocast_mode.py", "torch/_tensor.py",
             "torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/overrides.py",
             "torch/autograd/function.py", "torch/_dynamo/", "torch/_functorch/",
             "torch/fx/", "torch/_compile.py", "torch/_prims", "torch/_refs", "torch/_meta_",
             "torch/_decomp", "torch/_ops.py", "torch/_library", "torch/_subclasses",
             "torch/nested/", "torch/_jit_internal.py", "<eval_with_key>")


CALLABLES = (types.FunctionType, types.BuiltinFunctionType)  # their names are plain texts


class Operand(NamedTuple):
    """What an expression works on: its name, the tensor, and the node that stands for it.

    tensor: None where no name holds it; then the dtype is what the message says.
    """

    name: str
    tensor: torch.Tensor | None
    node: ast.AST
    dtype: torch.dtype


@dataclass
class Failure:
    """A Site whose expression `node` failed, with its Operands.

    module: the nn.Module at work, its path from the root model, and that; None in plain functions.
    raised_by: what torch calls the op, where its Python code refused the operands by itself.
    """

    site: frames.Site
    node: ast.AST
    operands: list
    module: torch.nn.Module | None
    path: str | None
    root: torch.nn.Module | None
    raised_by: str | None = None

    @property
    def op(self):
        name = operation(self.node)
        called = values.look_up(self.node.func, self.site) if isinstance(self.node, ast.Call) \
            else None
        if type(called) is partial:
            inner = called.func
            return inner.__name__ if values.is_a(inner, CALLABLES) else name
        if self.raised_by is not None:
            return self.raised_by
        # torch's function of Python is known, not the C++ one that it calls: cross_entropy_loss
        return self.site.name if name.startswith(self.site.name) else name


def to_json(failure):
    """Where a Failure is, as in an outcome: {"module": path from the root model ("" is the model
    itself) or None, "op": name, "operands": [{"name", "dtype", "shape", "device"}], "origin": None,
    for its road was not read}. A ragged dimension of a nested tensor has length -1.
    """
    return {
        "module": failure.path,
        "op": failure.op,
        "operands": [describe(o) for o in failure.operands],
        "origin": None,
    }


def failing(sites):
    """Return the Failure: the innermost expression of the Sites that has tensors in it, or None."""
    if (layer := refused(sites)) is not None:
        return Failure(layer, ast.Pass(), list(given_to(layer)),
                       *module_of(sites[:sites.index(layer) + 1]),
                       values.class_name(layer.module).lower())
    for depth in range(len(sites) - 1, -1, -1):
        site = sites[depth]
        if is_machinery(site):
            continue
        node = at_work(site)
        operands = list(operands_of(node, site)) if node is not None else []
        if operands and not (site.filename.endswith("functional.py") and all(
                operand.name.startswith(f"{ast.unparse(operand.node)}[") for operand in operands)):
            # einsum's own frame knows its operands as one list; the call before names them
            return Failure(site, node, operands, *module_of(sites[:depth + 1]))
    return None


def at_work(site):
    """The expression that a Site was busy with. Where Python does not tell which of several, it is
    likely one whose operands are of two dtypes."""
    node = frames.working(site)
    if len(site.candidates) < 2:
        return node
    mixed = next((part for part in site.candidates if len(
        {o.dtype for o in operands_of(part, site) if is_floating(o.dtype)}) > 1), node)
    return frames.choose(site, mixed)


def refused(sites):
    """The Site of a layer of torch's own whose Python code raised; None where C++ did."""
    if not sites or not sites[-1].text.strip().startswith("raise ") or sites[-1].mine:
        return None
    return next((site for site in reversed(sites) if site.name == "forward" and not site.mine
                 and site.module is not None
                 and values.module_name(site.module).startswith("torch.nn")), None)


def given_to(site):
    """Yield the Operands of a layer as a whole: what its forward was given, and its weights."""
    for name in site.code.co_varnames[1:site.code.co_argcount]:
        for label, tensor in values.tensors_in(site.locals.get(name), name):
            yield Operand(label, tensor, ast.Name(name, ast.Load()), dtype_of(tensor))
    for name, tensor in values.own_tensors(site.module, ("_parameters",)):
        yield Operand(name, tensor, ast.Attribute(ast.Name("self"), name), dtype_of(tensor))


def is_machinery(site):
    return any(part in site.filename.replace("\\", "/") for part in MACHINERY)


def operation(node):
    """Name of the operation: linear, baddbmm, matmul, index_put, …"""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        name = OPERATORS.get(type(node.op), type(node.op).__name__.lower())
        return name + "_" if isinstance(node, ast.AugAssign) else name
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return "index_put" if isinstance(target, ast.Subscript) else target.attr
    if isinstance(node, ast.Subscript):
        return "index"
    if isinstance(node, ast.Pass):
        return ""
    if isinstance(node, (ast.UnaryOp, ast.Compare)):
        kind = type(node.op if isinstance(node, ast.UnaryOp) else node.ops[0])
        return OPERATORS.get(kind, kind.__name__.lower())
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def arguments_of(node):
    """Return [(keyword or None, node)] of what an expression works on, the receiver first."""
    if isinstance(node, ast.BinOp):
        return [(None, node.left), (None, node.right)]
    if isinstance(node, ast.AugAssign):
        return [(None, node.target), (None, node.value)]
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        index = [(None, target.slice)] if isinstance(target, ast.Subscript) else []
        return [(None, target.value), (None, node.value), *index]
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
    if isinstance(node, ast.Call) and type(values.look_up(node.func, site)) is partial:
        known = values.look_up(node.func, site)
        for name, tensor in [*enumerate(known.args), *known.keywords.items()]:
            if values.is_tensor(tensor):
                yield Operand(str(name), tensor, node.func, dtype_of(tensor))
    vararg = handed_on(frames.scope(site)) if not site.mine else ()
    for keyword, argument in arguments_of(node):
        if isinstance(argument, ast.Starred) or keyword is None and isinstance(
                argument, ast.Name) and argument.id in vararg:
            continue  # the call before this one names them
        parts = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument]
        for part in parts:
            base = base_name(part)
            if base is None:
                continue
            name = keyword or ast.unparse(base).replace("self.", "")
            for label, tensor in values.tensors_in(values.look_up(base, site), name):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield Operand(label, tensor, part, dtype_of(tensor))


def dtype_of(tensor):
    with torch._C.DisableTorchFunction():
        return tensor.dtype


def handed_on(source):
    """Names of the parameters that take what is left over: *args, **kwargs."""
    arguments = getattr(source, "args", None)
    if not isinstance(arguments, ast.arguments):
        return ()
    return [part.arg for part in (arguments.vararg, arguments.kwarg) if part is not None]


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
    """Return a module's path from the model that holds it deepest, and that model.

    Of several models in sight the root is the one with the longest path; the outermost of equals.
    """
    best, looked = (None, None), {}
    for site in sites:
        for value in site.locals.values():
            if not values.is_module(value) or id(value) in looked:
                continue
            for path, module in values.walk(value):
                if module is inner and (best[0] is None or path.count(".") > best[0].count(".")
                                        or path and not best[0]):
                    best = path, value
                looked[id(module)] = module  # whatever is below it was looked at too
    return best


def describe(operand):
    name, tensor, _, dtype = operand
    if tensor is None:
        return {"name": name, "dtype": dtype_name(dtype), "shape": None, "device": None}
    with torch._C.DisableTorchFunction():
        return {"name": name, "dtype": dtype_name(dtype), "shape": shape_of(tensor),
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
        except (RuntimeError, TypeError, ValueError, AttributeError):
            shape.append(-1)
    return shape


def is_floating(dtype):
    return dtype.is_floating_point or dtype.is_complex


def parameters_of(root):
    """Return a Counter of how many elements a model's floating parameters have, by dtype."""
    key = "parameters", id(root)
    if key in values.memory.known:
        return values.memory.known[key]
    counted, seen = Counter(), set()
    with torch._C.DisableTorchFunction():
        for _, module in values.walk(root):
            for _, parameter in values.own_tensors(module, ("_parameters",)):
                if parameter.dtype.is_floating_point and id(parameter) not in seen:
                    seen.add(id(parameter))
                    counted[parameter.dtype] += size_of(parameter)
    values.memory.known[key] = counted
    return counted


def size_of(tensor):
    try:
        return tensor.numel()
    except (RuntimeError, ValueError):
        return 0
