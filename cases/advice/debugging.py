"""What the articles say on finding the culprit, tried: hooks, prints, anomaly detection, traces."""

import dis
import importlib.util
import os
import re
import subprocess
import sys
import traceback
import warnings
from contextlib import nullcontext
from unittest import mock

import torch
from torch import nn
from torch.autograd import set_detect_anomaly
from torch.nn import functional as F

from cases.halftruths.messages.words import dtypes_in
from cases.lab.advice import advice, attempt, claim, difference, fact, not_shown, text_of, words

AUTOPSY = "read the exception's own traceback: python -m cases autopsy SCRIPT"
ANOMALY = "https://docs.pytorch.org/docs/stable/autograd.html, Anomaly detection"


# ------------------------------------------------------------------ anomaly detection


def told(program):
    """What a program that fails tells: its error, the functions of the traceback, the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            program()
            error, frames = "no error", []
        except Exception as raised:
            error = words({"type": type(raised).__name__, "message": str(raised)})
            frames = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    return error, frames, [str(warning.message) for warning in caught]


@advice(
    "B21",
    article="c10half",
    claim="Anomaly detection finds a dtype error of the forward pass.",
    why="It speaks up in the backward pass alone, and an error of the forward pass comes before.",
    instead=f"An error of the forward pass names its own line: {AUTOPSY}.",
    source=ANOMALY,
    notebook="05",
)
def anomaly_detection_in_forward(device):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4).bfloat16()).to(device)
    x = torch.ones(2, 4, device=device)
    y = x.bfloat16()
    for scene, program in (("in a model", lambda: model(x)),
                           ("in an operation", lambda: torch.linalg.solve(x @ x.T, y))):
        without = told(program)
        with set_detect_anomaly(True):
            with_it = told(program)
        shown = f"words, frames and warnings the same: {with_it[0]}"
        yield difference(scene, without, with_it, shown if without == with_it else None)


class Product(torch.autograd.Function):
    """x @ w, with a backward that forgets to cast what its forward cast."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x @ w.float()

    @staticmethod
    def backward(ctx, grad):
        (w,) = ctx.saved_tensors
        return grad @ w.t(), None


@advice(
    "C11",
    article="chatglm",
    claim="Anomaly detection shows the op whose backward went wrong.",
    why="It asks what each backward function returns for NaN and no more: an overflow or an "
        "underflow passes, and what later turns an infinity into NaN gets the blame.",
    instead="Use it for NaN and for errors that a backward raises; ask gradients for infinities "
            "and zeros yourself.",
    source=f"{ANOMALY}; torch/csrc/autograd/engine.cpp, evaluate_function",
    notebook="08",
)
def anomaly_detection_in_backward(device):
    zero = torch.zeros(3, device=device)
    low = torch.ones(3, 3, device=device, dtype=torch.bfloat16)
    for scene, culprit, start, program in (
        ("NaN", "SqrtBackward", zero, lambda x: x.sqrt() * 0),
        ("dtype error", "ProductBackward", zero, lambda x: Product.apply(x.view(1, 3), low)),
        ("infinity", "SqrtBackward", zero, lambda x: x.sqrt()),
        ("float16 underflow", "MulBackward", zero.half(), lambda x: x * 1e-4 * 1e-4),
        ("float16 overflow that ends in NaN", "MulBackward", zero.half(),
         lambda x: x.pow(2) * 3e4 * 3e4),
    ):
        x = start.clone().requires_grad_()
        with set_detect_anomaly(True):
            y = program(x).sum()
            error, _, notes = told(y.backward)
        named = re.findall(r"\w+Backward", " ".join([error] + notes))
        gradient = "" if x.grad is None else f", gradient {x.grad[0].item():g}"
        yield fact(scene, culprit in named,
                   f"{error}{gradient}; named: {named[0] if named else 'none'}; it was {culprit}")


# ------------------------------------------------------------------ hooks and prints


def dtypes_printed(model, inputs):
    """Run a model under such hooks; return {name: dtype printed}, and what happened."""
    printed = {}

    def hook(name):
        def note(module, args, output):
            printed[name] = output.dtype
        return note

    for name, module in model.named_modules():
        module.register_forward_hook(hook(name))
    with torch.no_grad():
        return printed, attempt(model, *inputs)


def build_and_run(make, device, inputs):
    return make().to(device)(*inputs)


def tiny_llama():
    """A transformers model of one layer with random weights, in eval mode."""
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2)).eval()


@advice(
    "B22",
    article="c10half",
    claim="A forward hook that prints output.dtype shows the dtypes of all layers.",
    why="A hook is given what forward returns, which is often a tuple or a dict of tensors, and a "
        "fused path calls no inner module.",
    instead="Let the hook walk tuples and dicts. To find an error's origin, " + AUTOPSY + ".",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html, "
           "register_forward_hook; torch/nn/modules/activation.py, MultiheadAttention.forward",
    notebook="01",
)
def hook_prints_output_dtype(device):
    x = torch.ones(2, 4, 16, device=device)
    layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    for scene, make, inputs in (
        ("Linear, LayerNorm, GELU",
         lambda: nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()), (x,)),
        ("MultiheadAttention", lambda: nn.MultiheadAttention(16, 2, batch_first=True), (x, x, x)),
        ("LSTM", lambda: nn.LSTM(16, 16), (x,)),
        ("TransformerEncoder, eval", lambda: nn.TransformerEncoder(layer, 1).eval(), (x,)),
        ("transformers, Llama", tiny_llama, (torch.ones(1, 4, dtype=torch.long, device=device),)),
    ):
        if make is tiny_llama and importlib.util.find_spec("transformers") is None:
            yield not_shown(scene, "transformers is not installed beside this torch")
            continue
        plain = attempt(build_and_run, make, device, inputs)
        if plain.error:
            yield not_shown(scene, f"without a hook too: {words(plain.error)}")
            continue
        model = make().to(device)
        printed, tried = dtypes_printed(model, inputs)
        modules = [name for name, _ in model.named_modules()]
        shown = f"{len(printed)} of {len(modules)} modules"
        yield fact(scene, set(printed) == set(modules) and not tried.error,
                   f"{shown}, {words(tried.error)}" if tried.error else shown)


def printed_precision(module):
    return next(module.parameters()).dtype


@advice(
    "C15",
    article="chatglm",
    claim="Printing next(module.parameters()).dtype for every module shows each layer's precision.",
    why="It is the dtype of one stored weight: a layer may have none, or several dtypes, and "
        "autocast computes in another.",
    instead="Print the set of dtypes of all named_parameters() and named_buffers(), and the "
            "outputs' dtypes beside it.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html, parameters; "
           "https://docs.pytorch.org/docs/stable/amp.html, Autocasting",
    notebook="03",
)
def print_first_parameter(device):
    same = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(device, torch.bfloat16)
    bare = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device)
    mixed = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4).bfloat16()).to(device)
    for scene, model in (("one dtype", same), ("a layer without parameters", bare),
                         ("a block of two dtypes", mixed)):
        said = [attempt(printed_precision, module) for module in model.modules()]
        held = [{p.dtype for p in module.parameters()} for module in model.modules()]
        failed = [tried.error["type"] for tried in said if tried.error]
        yield fact(scene, not failed and [{tried.value} for tried in said] == held,
                   failed[0] if failed else f"printed of the whole: {said[0].said}; it holds "
                                            f"{' and '.join(sorted(map(text_of, held[0])))}")
    with torch.autocast(device, torch.bfloat16):
        output = bare(torch.ones(2, 4, device=device))
    yield claim("computed under autocast", printed_precision(bare), output.dtype)


class CastBetween(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4).bfloat16()

    def forward(self, x):
        return self.second(self.first(x).bfloat16())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x):
        return self.act(x + self.linear(x))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(4), nn.MultiheadAttention(4, 2)

    def forward(self, x):
        y = self.norm(x)
        return self.mix(y, y, y, need_weights=False)[0]


def flow(model, x):
    """The dtypes that the layers really put out, in the order in which they run."""
    seen = []

    def note(layer, args, output):
        seen.append((output[0] if isinstance(output, tuple) else output).dtype)

    hooks = [layer.register_forward_hook(note) for layer in model.children()]
    model(x)
    for hook in hooks:
        hook.remove()
    return seen


def one_after_another(model, x):
    """What the advice prints."""
    printed = []
    for layer in model.children():
        x = layer(x)
        printed.append(x.dtype)
    return printed


@advice(
    "C16",
    article="chatglm",
    claim="Applying the layers one after another and printing x.dtype shows the flow.",
    why="The layers in their order of registration are not the forward pass: casts, sums and "
        "further arguments stand in the code of forward.",
    instead="Run the model itself, and note in hooks what its layers put out.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html, children",
    notebook="03",
)
def apply_layers_one_by_one(device):
    plain = nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=-1), nn.Linear(4, 4))
    x = torch.ones(3, 2, 4, device=device)
    for scene, model, context in (
        ("nn.Sequential", plain, nullcontext()),
        ("nn.Sequential under autocast", plain, torch.autocast(device, torch.bfloat16)),
        ("a cast in forward", CastBetween(), nullcontext()),
        ("a residual sum under autocast", Residual(), torch.autocast(device, torch.bfloat16)),
        ("several arguments", Attention(), nullcontext()),
    ):
        model = model.to(device)
        with context:
            printed, real = attempt(one_after_another, model, x), flow(model, x)
        yield fact(scene, printed.value == real,
                   f"prints {printed.said}; the model: {text_of(real)}")


# ------------------------------------------------------------------ looking into a loss


def cast_to_float(x, y):
    return (x.float() - y).pow(2).mean()


def cast_to_half(x, y):
    return (x.half() - y).pow(2).mean()


def no_cast(x, y):
    return (x.abs() - y).pow(2).mean()


def methods(function):
    """The names of attributes and methods in a function's code, which `dis` prints."""
    return [step.argval for step in dis.get_instructions(function)
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD")]


@advice(
    "C17",
    article="chatglm",
    claim="loss_fn.__code__.co_code reveals hard-coded casts.",
    why="co_code holds opcodes and numbers, no names; a module has no __code__, and what autocast "
        "or C++ casts stands in no Python code.",
    instead="Read the source, or dis.dis(loss_fn), or dis.dis(loss_fn.forward) for a module; print "
            "the loss's dtype.",
    source="https://docs.python.org/3/reference/datamodel.html, Code objects; "
           "https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference",
    notebook="05",
)
def look_into_code(device):
    for scene, other in (("a cast or another method", no_cast), ("which cast", cast_to_half)):
        same = cast_to_float.__code__.co_code == other.__code__.co_code
        yield fact(scene, not same, f"{'the same' if same else 'another'} co_code; dis names "
                                    f"{methods(cast_to_float)[0]} and {methods(other)[0]}")
    module = attempt(lambda: nn.MSELoss().__code__.co_code)
    yield fact("a loss that is a module", not module.error, module.said)
    x = torch.ones(4, device=device, dtype=torch.bfloat16)
    with torch.autocast(device, torch.bfloat16):
        loss = F.mse_loss(x, x)
    casts = {"float", "to", "type"} & set(methods(F.mse_loss))
    yield fact("a cast by autocast", bool(casts) == (loss.dtype != x.dtype),
               f"{text_of(x)} in, {text_of(loss)} out, {len(casts)} casts in the code")


# ------------------------------------------------------------------ C++ stack traces

PROGRAM = """
import torch
x = torch.ones(2, 4, device={device!r}).to(torch.bfloat16)
layer = torch.nn.Linear(4, 4, device={device!r})
try:
    layer(x)
except RuntimeError as error:
    print(error)
"""
SWITCH = "TORCH_SHOW_CPP_STACKTRACES"


def on_dtypes(message):
    """What a message tells of dtypes: those it names, and the casts, if any, before the failure."""
    return dtypes_in(message), re.findall(r"_to_copy|::to\b|to_dtype", message)


def with_switch(device):
    """What the same program prints in a Python that is started with the variable set."""
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(device=device)],
                         env={**os.environ, SWITCH: "1"}, capture_output=True, text=True,
                         timeout=100, check=True)
    return run.stdout.strip()


@advice(
    "C19",
    article="chatglm",
    claim="TORCH_SHOW_CPP_STACKTRACES=1 analyses how dtypes propagate.",
    why="It adds the C++ functions that were at work when the error was raised; the cast that let "
        "the dtype in was over by then.",
    instead=f"To find where a dtype came in, {AUTOPSY}.",
    source="https://docs.pytorch.org/docs/stable/debugging_environment_variables.html; "
           "torch/csrc/utils/cpp_stacktraces.cpp, get_cpp_stacktraces_enabled",
    notebook="05",
)
def cpp_stack_traces(device):
    layer = nn.Linear(4, 4, device=device)
    x = torch.ones(2, 4, device=device).to(torch.bfloat16)
    plain = attempt(layer, x).error["message"]
    traced = attempt(with_switch, device)
    if traced.error:
        yield not_shown("set before the start", f"a Python of its own: {traced.error['type']}")
    else:
        without, with_it = on_dtypes(plain), on_dtypes(traced.value)
        named = "no other dtype and no cast" if without == with_it else text_of(with_it)
        yield difference("set before the start", without, with_it,
                         f"{len(traced.value.splitlines()) - 1} lines more, which name {named}")
    with mock.patch.dict(os.environ, {SWITCH: "1"}):
        late = attempt(layer, x).error["message"]
    yield difference("set after an error", plain, late)
