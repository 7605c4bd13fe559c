"""What calls do to dtypes, told by name and arguments: casts, creations, what keeps a dtype."""

import ast
import types

import torch

from ..dtypes import CASTS
from . import failures, values
from .bindings import text
from .values import MISSING, is_a, is_numpy

KEEPS = set(failures.VIEWS) | set(
    "clone requires_grad_ pin_memory masked_fill "
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
# Several results: there is no casting them back in one go.
SEVERAL = ("eigh", "eig", "svd", "qr", "lu", "slogdet", "lstsq", "topk", "sort", "median", "mode",
           "kthvalue")
INTEGERS = {"randint", "tril_indices"}
REAL = set("linspace zeros ones full rand randn random normal uniform standard_normal exponential "
           "exp sin cos sqrt log mean std float64 hanning hamming".split())


def is_fraction(*nodes):
    """True if NumPy code makes float64: a division, a fraction, a function of real numbers."""
    return any(
        isinstance(part, ast.Div) or isinstance(part, ast.Constant) and type(part.value) is float
        or isinstance(part, ast.Attribute) and part.attr in REAL or text(part) == "float"
        for node in nodes if isinstance(node, ast.AST) for part in ast.walk(node))



def receiver_of(node, site):
    """The node that a method is called on; None for a plain function, as torch.exp is."""
    if not isinstance(node.func, ast.Attribute):
        return None
    owner = values.look_up(node.func.value, site)
    return None if is_a(owner, (types.ModuleType, type)) else node.func.value


def keyword_of(node, name):
    return next((k.value for k in node.keywords if k.arg == name), None)


def cast_of(node, site):
    """The dtype that a call casts to; MISSING if that is not known; None if it is no cast."""
    called = failures.operation(node)
    dtype = keyword_of(node, "dtype")
    if isinstance(node.func, ast.Attribute):
        if called in CASTS and not node.args and not node.keywords:
            return getattr(torch, CASTS[called])
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
            not is_numpy(values.look_up(node.func, site)):
        found = dtype_value(dtype, site)
        return found if found is not None else None
    return None


def dtype_value(node, site):
    """The dtype that a node names: torch.float16, x.dtype, a variable, or a tensor's; else None."""
    value = values.look_up(node, site)
    if is_a(value, torch.dtype):
        return value
    if values.is_tensor(value):
        with torch._C.DisableTorchFunction():
            return value.dtype
    if isinstance(node, ast.Attribute) and node.attr == "dtype":
        return MISSING
    return None


def is_place(node, site):
    """True for what names a device, or says nothing of a dtype."""
    value = values.look_up(node, site)
    if isinstance(node, ast.Call):
        return text(node.func).endswith("device")
    return is_a(value, (str, int, torch.device)) or isinstance(
        node, ast.Attribute) and node.attr == "device"
