"""Advice on torch.compile and torch.jit, tried."""

import logging
import re
from contextlib import contextmanager

import torch
from torch import nn

from cases.halftruths.messages.words import dtypes_in
from cases.lab.advice import advice, attempt, claim, difference, fact, not_shown, remedy, words

BF16 = torch.bfloat16
FAKE = re.compile(r"FakeTensor\(\.\.\., (size=\([^()]*\)(?:, dtype=[\w.]*)?)")


@contextmanager
def compiler():
    """Why torch.compile can't be had, or None; without the compiler's log, and nothing kept."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    tried = attempt(lambda: torch.compile(nn.Identity(), backend="eager"))
    try:
        yield tried.error and words(tried.error)
    finally:
        logging.disable(disabled)
        if not tried.error:
            torch._dynamo.reset()


def compiled(function, x, fullgraph=True):
    """What the function does compiled: traced by Dynamo, then run as it is."""
    torch._dynamo.reset()
    return attempt(torch.compile(function, backend="eager", fullgraph=fullgraph), x)


def tells(tried):
    """What an error tells of the tensors: their shapes, as the compiler does, or dtypes alone."""
    if not tried.error:
        return tried.said
    message = tried.error["message"]
    named = dict.fromkeys(FAKE.findall(message) or dtypes_in(message))
    return f"{tried.error['type']}, which names {' and '.join(named)}"


@advice(
    "B24",
    article="c10half",
    claim="torch.compile(fullgraph=True) helps check dtypes in the graph.",
    why="The compiler traces with tensors that have no data, and of the operations only some "
        "compare dtypes there; fullgraph=True only refuses what it cannot trace in one piece.",
    instead="Run the model once, uncompiled, on a small batch: then each operation checks what it "
            "is given.",
    source="torch/_dynamo/utils.py, get_fake_value; "
           "https://docs.pytorch.org/docs/stable/generated/torch.compile.html, fullgraph",
    notebook="05",
)
def check_by_compiling(device):
    def attend(x):
        return nn.functional.scaled_dot_product_attention(x, x.half(), x)

    def add(x):
        return x.half() + x

    def branch(x):
        return x + 1 if x.sum() > 0 else x

    x = torch.ones(1, 2, 4, device=device)
    layer = nn.Linear(4, 3, device=device)
    with compiler() as missing:
        if missing:
            for scene in ("attention", "attention, fullgraph or not", "Linear", "float16 + float32",
                          "a branch on a value"):
                yield not_shown(scene, missing)
            return
        eager, full = attempt(attend, x), compiled(attend, x)
        yield difference("attention", eager.said, full.said, tells(eager) + " → " + tells(full))
        part = compiled(attend, x, fullgraph=False)
        yield difference("attention, fullgraph or not", tells(part), tells(full))
        yield difference("Linear", attempt(layer, x.half()).said, compiled(layer, x.half()).said)
        yield difference("float16 + float32", attempt(add, x).said, compiled(add, x).said)
        yield remedy("a branch on a value", attempt(branch, x), compiled(branch, x))


@advice(
    "C18",
    article="chatglm",
    claim="torch.compile(options={'dynamic_dtype': True}) chooses the best precision.",
    why="There is no such option: inductor, the default backend, refuses it by name.",
    instead="Choose the precision yourself, with autocast or .to(), and compile that.",
    source="torch/__init__.py, _TorchCompileInductorWrapper.apply_options",
    notebook="05",
)
def dynamic_dtype_option(device):
    asked = {"dynamic_dtype": True}
    layer, x = nn.Linear(4, 3, device=device), torch.ones(2, 4, device=device)
    with compiler() as missing:
        if not hasattr(torch, "compile"):
            yield not_shown("inductor", missing)
        else:
            tried = attempt(lambda: torch.compile(layer, options=asked))
            yield fact("inductor", not tried.error, tried.said.split(", known")[0])
        if missing:
            yield not_shown("backend eager", missing)
            return
        tried = attempt(torch.compile(layer, backend="eager", options=asked), x)
        if tried.error:
            yield fact("backend eager", False, tried.error["message"].splitlines()[1])
        else:
            yield difference("backend eager", layer(x).dtype, tried.value.dtype)


class Doubled(nn.Module):
    def forward(self, x):
        return (2 * x.float()).to(x.dtype)


def frozen(module, x):
    return torch.jit.freeze(torch.jit.trace(module.eval(), x))


def last_line(tried):
    """An error of TorchScript says what is wrong in its last line."""
    lines = (tried.error["message"] if tried.error else tried.said).splitlines()
    return lines[-1].replace("RuntimeError: ", "")


@advice(
    "C20",
    article="chatglm",
    claim="torch.jit.trace and freeze stop dtypes changing at run time.",
    why="A trace keeps the dtypes that the code named or read while it was traced, and freeze the "
        "weights'; every other operation goes by its inputs and by autocast, as it did.",
    instead="Cast the inputs in the code that is traced, and leave autocast before you run it; "
            "trace under autocast only with cache_enabled=False.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.jit.trace.html; "
           "pytorch/pytorch#50231",
    notebook="05",
)
def trace_and_freeze(device):
    x = torch.ones(2, 4, device=device)
    layer, softmax, doubled = nn.Linear(4, 3, device=device), nn.Softmax(-1), Doubled()

    def traced_in_autocast(cache):
        with torch.autocast(device, BF16, cache_enabled=cache):
            return frozen(layer, x)

    def dtype_of(model, x):
        return attempt(model, x).said

    yield claim("weights cast after the freeze", "float32",
                dtype_of(lambda x: frozen(layer, x).to(BF16)(x), x))
    yield claim("a dtype that the code reads", "float32",
                dtype_of(frozen(doubled, x), x.bfloat16()))
    yield claim("an input of another dtype", "float32", dtype_of(frozen(softmax, x), x.bfloat16()))
    eager, now = attempt(layer, x.bfloat16()), attempt(frozen(layer, x), x.bfloat16())
    yield difference("the same into a Linear", last_line(eager), last_line(now))
    model = frozen(layer, x)
    with torch.autocast(device, BF16):
        under_autocast = dtype_of(model, x)
    yield claim("run under autocast", "float32", under_autocast)
    yield remedy("traced under autocast", attempt(layer, x), attempt(traced_in_autocast, True))
    yield claim("traced under autocast, no cache", "bfloat16",
                dtype_of(lambda x: traced_in_autocast(False)(x), x))
