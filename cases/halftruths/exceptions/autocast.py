"""Which autocast block stood around a line, read from the source of the frames."""

import ast
import types

import torch

from . import frames, values
from .bindings import own_nodes
from .functions import Function
from .values import MISSING, is_a, is_torch, module_name

# What autocast runs in its low dtype, of the functions and modules that people call.
LOWERED = set("linear conv1d conv2d conv3d convtranspose1d convtranspose2d matmul mm bmm addmm "
              "baddbmm einsum multiheadattention scaled_dot_product_attention lstm gru rnn "
              "bilinear".split())


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
    value = values.look_up(node, site)
    if issubclass(type(value), torch.autocast):
        return of_instance(value)
    if not isinstance(node, ast.Call):
        return None
    kind = values.look_up(node.func, site)
    if is_a(kind, types.FunctionType) and not is_torch(kind):  # a helper that returns one
        kind = values.stored(kind).get("__wrapped__", kind)  # a context manager made of a generator
        if not is_a(kind, types.FunctionType):
            return None
        inside = Function(kind, MISSING, site, (node, node.lineno))
        if kind.__code__.co_flags & 0x20:
            return next((found for part in own_nodes(frames.scope(inside) or ast.Pass())
                         if isinstance(part, ast.With) for item in part.items
                         if (found := region(item.context_expr, inside))), None)
        return region(inside.ends()[-1][0], inside) if inside.ends() else None
    if not (is_a(kind, type) and issubclass(kind, torch.autocast)):
        return None
    fixed = {"torch.cuda.amp.autocast_mode": "cuda", "torch.cpu.amp.autocast_mode": "cpu"}
    device = fixed.get(module_name(kind))
    order = ["enabled", "dtype"] if device else ["device_type", "dtype", "enabled"]
    given = dict(zip(order, node.args, strict=False))
    given.update({k.arg: k.value for k in node.keywords})
    read = {name: values.look_up(part, site) for name, part in given.items()}
    if None in given:  # **options: what is in them is not read
        read.update({name: MISSING for name in order if name not in given})
        given.update(read)
    device = device or plain_text(read.get("device_type"))
    dtype = read.get("dtype", MISSING if "dtype" in given else None)
    if dtype is None:
        dtype = torch.bfloat16 if device == "cpu" else torch.float16
    enabled = read.get("enabled", MISSING if "enabled" in given else True)
    return {"device": device,
            "dtype": dtype if is_a(dtype, torch.dtype) else None,
            "enabled": enabled if is_a(enabled, bool) else None}


def of_instance(value):
    own = values.stored(value)
    dtype, enabled = own.get("fast_dtype"), own.get("_enabled")
    return {"device": plain_text(own.get("device")),
            "dtype": dtype if is_a(dtype, torch.dtype) else None,
            "enabled": enabled if type(enabled) is bool else None}


def plain_text(value):
    """A text that compares by no code of the user's; None for anything else."""
    return value if type(value) is str else None
