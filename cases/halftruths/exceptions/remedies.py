"""Cures that stand beside the road: a part of the model converted, an op run in float32, a line
put before another, a number that fits."""

import ast
import linecache

import torch

from ..dtypes import dtype_name
from . import cure, failures, frames, values
from .bindings import branch, own_nodes, statement_line


def convert_module(scene, dtype, home):
    """Before the reader's line that calls the model: the part left behind, converted."""
    failure = scene.failure
    for site in scene.sites:
        named = next((name for name, value in site.locals.items()
                      if value is failure.root and name.isidentifier()), None)
        if not site.mine or named is None:
            continue
        if site.name == "forward":  # each pass would convert
            return None
        left = [(path, tensor) for path, module in values.walk(failure.root)
                for _, tensor in values.own_tensors(module) if tensor.dtype == dtype]
        part = common(path for path, _ in left)
        made = scene.house.made(own_tensor(failure.module, dtype), dtype)
        statement = statement_at(site, outermost_loop(site, made[1].lineno if made else 0))
        found = statement and cure.change(
            site, [statement], f"{python_path(named, part)}.to({cure.dtype_text(site, home)})")
        count = sum(failures.size_of(tensor) for _, tensor in left)
        return found and found.at_the_price_of(
            f"{count:,} weights become {dtype_name(home)} for good, and are trained in it; an "
            "optimizer made before keeps its state in the old dtype")
    return None


def own_tensor(module, dtype):
    """A module's own tensor of a dtype."""
    return next((tensor for _, tensor in values.own_tensors(module)
                 if tensor.dtype == dtype), None)


def weights_left_float32(site, call):
    """A model that was converted, left as it was made: autocast casts."""
    found = cure.change(site, [(call, cure.source_of(site, call.func.value))])
    return found and found.at_the_price_of(
        "the weights take twice the memory, and keep small updates; autocast still computes in "
        "low precision")


def without_fast_path(scene):
    """The encoder's fused road, switched off before the reader's line that takes it."""
    site = scene.users_site
    statement = statement_at(site, site.line) if site is not None and hasattr(
        torch.backends, "mha") else None
    if not statement:
        return None
    name = cure.torch_name(site)
    found = cure.change(site, [statement], f"{name}.backends.mha.set_fastpath_enabled(False)")
    return found and found.at_the_price_of(
        "the fused road is off for the whole process; where padding was packed away it is "
        "computed too")


def number_in_range(failure, dtype):
    """The number that is too large for a dtype, replaced by the dtype's own largest or smallest."""
    site = failure.site
    number = next((part for _, part in reversed(failures.arguments_of(failure.node))
                   if is_number(part, site)), None)
    if number is None or dtype is None or not site.mine:
        return None
    value = values.look_up(number, site)
    low = isinstance(number, ast.UnaryOp) or values.is_a(value, (int, float)) and value < 0
    end = "min" if low else "max"
    new = f"{cure.torch_name(site)}.finfo({cure.dtype_text(site, dtype)}).{end}"
    found = cure.change(site, [(number, new)])
    return found and found.at_the_price_of(
        "none: softmax makes zero of it all the same. Two such numbers added do overflow")


def is_number(node, site):
    """True for a node that may be the number that does not fit: a fraction, or a large integer."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand, site)
    value = values.look_up(node, site)
    if isinstance(node, ast.Call):
        return cure.text(node.func) == "float"
    if isinstance(node, ast.Constant):
        return type(value) is float or type(value) is int and abs(value) > 1e4
    return values.one_of(type(value), (int, float))


def in_float32(scene, dtype):
    """The failing line with its op in float32: the operands cast, and the result cast back."""
    site, node = scene.failure.site, scene.failure.node
    if not site.mine:
        site = scene.users_site
        node = frames.working(site) if site is not None else None
    if not isinstance(node, (ast.Call, ast.BinOp)):
        return None
    module = values.look_up(node.func, site) if isinstance(node, ast.Call) else None
    module = module if values.is_module(module) else None
    if module is not None and not values.is_torch(type(module)):
        return None
    parts = list(cure.all_parts(node)) if isinstance(node, ast.Call) else [node.left, node.right]
    edits = [(part, f"{cure.source_of(site, part)}.float()") for part in parts
             if is_of(part, site, dtype, guess=module is not None)]
    if not edits:
        return None
    costs = "two casts, and twice the memory while it runs; its result is rounded again"
    if module is not None and failures.parameters_of(module):
        edits.append((node.func, f"{cure.source_of(site, node.func)}.float()"))
        costs = "the layer's weights become float32 for good, at twice the memory, and " + costs
    if makes_complex(node):
        back, costs = "", "a copy in float32, and complex numbers of that precision"
    elif dtype.is_floating_point:
        back = f".to({cure.dtype_text(site, dtype)})"
    else:
        back, costs = "", "a copy in float32"
    found = cure.change(site, [(node, cure.source_of(site, node, edits) + back)])
    return found and found.at_the_price_of(costs)


def makes_complex(node):
    """True for a call whose result is complex: cast back, it would lose its imaginary part."""
    called = failures.operation(node)
    if called in ("view_as_complex", "complex", "polar", "stft"):
        return True
    return "fft" in called and not called.startswith(("irfft", "hfft", "fftshift", "ifftshift"))


def is_of(part, site, dtype, guess):
    """True for a node that stands for a tensor of a dtype; an expression is one by `guess`."""
    value = values.look_up(failures.base_name(part) or part, site)
    if values.is_tensor(value):
        return value.dtype == dtype
    return guess and isinstance(part, (ast.Call, ast.BinOp))


def on_device(failure, operand, device):
    """The operand copied to a device, on the line that failed."""
    site, part = failure.site, operand.node
    if not site.mine:
        return None
    found = cure.change(site, [(part, f"{cure.source_of(site, part)}.to({device!r})")])
    return found and found.at_the_price_of(
        "a copy to the other device at each call; make it there once, if it does not change")


def statement_at(site, line):
    """(node, its own text) of the statement at a line: something to put a line before; or None."""
    source = frames.scope(site)
    start = statement_line(site, line)
    for node in own_nodes(source) if source is not None else ():
        if isinstance(node, ast.stmt) and node.lineno == start:
            return whole_line(site, start)
    return None


def whole_line(site, line):
    kept = linecache.getline(site.filename, line).rstrip("\n")
    node = ast.Pass(lineno=line, end_lineno=line, col_offset=0,
                    end_col_offset=len(kept.encode()))
    return node, kept


def outermost_loop(site, after):
    """Line of the outermost loop that a Site stands in and that begins after a line; or its own."""
    source = frames.scope(site)
    loops = [node.lineno for node, _ in branch(source, site.line)
             if isinstance(node, (ast.For, ast.While))] if source is not None else []
    return min([line for line in loops if line > after], default=site.line)


def common(paths):
    """The path of the part that holds all of these."""
    parts = [path.split(".") if path else [] for path in paths]
    found = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        found.append(level[0])
    return ".".join(found)


def python_path(root, path):
    """'1.inner' of model as Python: model[1].inner."""
    found = root
    for part in path.split(".") if path else ():
        found += f"[{part}]" if part.isdigit() else f".{part}"
    return found
