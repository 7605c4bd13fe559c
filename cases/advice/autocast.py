"""What the articles say of autocast and of training with it, tried."""

import contextlib
import copy
import itertools
import os
import warnings

import torch
from torch import nn
from torch.nn import functional as F

from cases.halftruths.dtypes import dtype_name
from cases.lab.advice import advice, attempt, difference, fact, harmless, not_shown
from cases.lab.numerics import allowed_error, relative_error, show

LISTS = ("https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference; "
         "aten/src/ATen/autocast_mode.h, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE")


def dtypes_under_autocast(name, function, device):
    """What `function` returns under autocast: of a float32 tensor, and of a product's result."""
    x = torch.ones(2, 2, device=device)

    def of_float32(dtype):
        with torch.autocast(device, dtype):
            return function(x).dtype

    def of_a_product(dtype):
        with torch.autocast(device, dtype):
            return function(x @ x).dtype

    for of, dtype in itertools.product((of_float32, of_a_product),
                                       (torch.float16, torch.bfloat16)):
        scene = f"{name} {of.__name__.replace('_', ' ')}, {device} autocast in {dtype_name(dtype)}"
        tried = attempt(of, dtype)
        if tried.error:
            yield not_shown(scene, tried.said)
        else:
            yield fact(scene, tried.value == torch.float32, tried.said)
    if device == "cpu":
        yield not_shown(f"{name} of a product, cuda autocast", "needs a GPU; its list is another")


@advice(
    "B9",
    article="c10half",
    claim="Autocast keeps softmax in float32.",
    why="CUDA's autocast has softmax on its list for float32; the CPU's has not, so there it runs "
        "in whatever dtype comes in.",
    instead="Where it matters ask for it: F.softmax(scores, -1, dtype=torch.float32).",
    source=LISTS,
    notebook="05",
)
def take_softmax_under_autocast(device):
    yield from dtypes_under_autocast("softmax", lambda scores: F.softmax(scores, -1), device)


@advice(
    "B10",
    article="c10half",
    claim="Autocast keeps log and exp in float32.",
    why="CUDA's autocast has log and exp on its list for float32; the CPU's has neither, so there "
        "they run in whatever dtype comes in.",
    instead="Write x.float().log() and x.float().exp(): that is float32 on every device.",
    source=LISTS,
    notebook="05",
)
def take_log_and_exp_under_autocast(device):
    yield from dtypes_under_autocast("log", lambda x: x.log(), device)
    yield from dtypes_under_autocast("exp", lambda x: x.exp(), device)


@contextlib.contextmanager
def quiet():
    """Without what the profiler's C++ writes to standard error."""
    error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(error, 2)
        os.close(error)
        os.close(nowhere)


def peak_bytes(model, x, mode, lowered):
    """The most bytes that one forward pass holds at once, beside weights and input."""
    device = x.device.type
    with quiet(), mode(), torch.autocast(device, torch.bfloat16, enabled=lowered):
        with torch.autograd.profiler.profile(profile_memory=True, use_kineto=False) as watched:
            output = model(x)
    steps = [event.nbytes() for event in watched.kineto_results.events()
             if event.name() == "[memory]" and event.device_type().name.lower() == device]
    del output
    return max(itertools.accumulate(steps))


@advice(
    "B12",
    article="c10half",
    claim="inference_mode with autocast lowers memory further.",
    why="inference_mode keeps nothing for backward, nor does no_grad; but autocast adds low copies "
        "of the float32 weights and holds them to its end, in inference_mode up to 2.9.",
    instead="To answer in less memory load the weights in half: autocast keeps the float32 ones.",
    source="pytorch/pytorch#165068; aten/src/ATen/autocast_mode.cpp, cached_cast",
    notebook="05",
)
def count_bytes_of_a_forward_pass(device):
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).to(device)
    many, one = torch.randn(256, 64).to(device), torch.randn(1, 64).to(device)
    grad, no_grad, inference = torch.enable_grad, torch.no_grad, torch.inference_mode
    pairs = {
        "inference_mode, where a graph was kept": ((many, grad, True), (many, inference, True)),
        "inference_mode, where no_grad was": ((many, no_grad, True), (many, inference, True)),
        "autocast added to inference_mode, 256 rows":
            ((many, inference, False), (many, inference, True)),
        "autocast added to inference_mode, 1 row":
            ((one, inference, False), (one, inference, True)),
    }
    for scene, (before, after) in pairs.items():
        before, after = peak_bytes(model, *before), peak_bytes(model, *after)
        shown = f"{before} bytes become {after}" if before != after else f"{after} bytes both ways"
        # oneDNN takes bfloat16 products with AVX512, and memory for them.
        hangs = scene.startswith("autocast added")
        if after > before:
            yield harmless(scene, True, shown, processor=hangs)
        else:
            yield difference(scene, before, after, shown, processor=hangs)


@advice(
    "B13",
    article="c10half",
    claim="torch.cuda.amp.autocast(dtype=…) is the call to use.",
    why="It is deprecated since torch 2.4, and it acts on CUDA tensors alone.",
    instead="Write torch.autocast(device_type, dtype=…): it names the device, on every torch.",
    source="torch/cuda/amp/autocast_mode.py, autocast; "
           "https://docs.pytorch.org/docs/stable/amp.html, torch.cuda.amp.autocast",
    notebook="05",
)
def multiply_under_cuda_amp_autocast(device):
    x = torch.ones(2, 2, device=device)

    def product(dtype):
        with torch.cuda.amp.autocast(dtype=dtype):
            return (x @ x).dtype

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tried = {dtype: attempt(product, dtype) for dtype in (torch.float16, torch.bfloat16)}
    old = [str(one.message) for one in caught if issubclass(one.category, FutureWarning)]
    yield fact("is not deprecated", not old, (old + ["no FutureWarning"])[0])
    for dtype, one in tried.items():
        yield fact(f"lowers a product on {device} to {dtype_name(dtype)}", one.value == dtype,
                   one.said)
    if device == "cpu":
        yield not_shown("lowers a product on cuda", "needs a GPU")


MIXED = {
    "linear": F.linear,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "conv2d": lambda a, b: F.conv2d(a[None, None], b[None, None]),
    "cat": lambda a, b: torch.cat([a, b]),
    "mse_loss": F.mse_loss,
    "mv": lambda a, b: torch.mv(a, b[0]),
    "dot": lambda a, b: torch.dot(a[0], b[0]),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "scatter": lambda a, b: a.scatter(0, torch.zeros(1, 4, dtype=torch.int64, device=a.device), b),
    "index_add": lambda a, b: a.index_add(0, torch.zeros(4, dtype=torch.int64, device=a.device), b),
    "masked_scatter": lambda a, b: a.masked_scatter(a > 0, b),
}


@advice(
    "C4",
    article="chatglm",
    claim="AMP checks dtypes more strictly since 1.12.",
    why="No torch before 1.13 is here to compare; from 1.13 on autocast casts the operands of what "
        "is on its lists, and what is on none checks dtypes as it does without autocast.",
    instead="Do not look for the version: see whether the operation is on autocast's lists.",
    source=LISTS,
    notebook="05",
)
def mix_dtypes_under_autocast(device):
    wide = torch.ones(4, 4, device=device)
    low = wide.to(torch.bfloat16)
    refused = []
    with torch.autocast(device, torch.bfloat16):
        for name, operation in MIXED.items():
            if attempt(operation, low, wide).error:
                refused.append(name)
    yield not_shown("1.12 beside 1.11", "the oldest torch at hand is 1.13")
    yield not_shown("this torch", f"{len(refused)} of {len(MIXED)} mixes are refused under "
                                  f"autocast: {', '.join(refused)}; nothing older to hold against")


class Reader(nn.Module):
    """Reads words one by one and says how likely each is to come next."""

    def __init__(self, words=256, size=16):
        super().__init__()
        self.table, self.mix = nn.Embedding(words, size), nn.Linear(size, size)
        self.score = nn.Linear(size, words)

    def forward(self, state, word):
        state = torch.tanh(self.mix(state) + self.table(word))
        return state, self.score(state)

    def continued(self, prompts, count):
        """Read the prompts; return the `count` words that the model then says, greedily."""
        state, said = torch.zeros_like(self.table(prompts[:, 0])), []
        with torch.no_grad():
            for word in prompts.T:
                state, scores = self(state, word)
            for _ in range(count):
                said.append(scores.argmax(-1))
                state, scores = self(state, said[-1])
        return torch.stack(said, 1)


def learned(start, target, x, lr, dtype):
    """Train a copy in `dtype` with steps of size lr; return it, and by how much its loss fell."""
    model, losses = copy.deepcopy(start).to(dtype), []
    weights = list(model.parameters())
    for _ in range(100):
        losses.append(F.mse_loss(model(x.to(dtype)).float(), target))
        for weight, slope in zip(weights, torch.autograd.grad(losses[-1], weights), strict=True):
            weight.data -= lr * slope.sign()
    return model, (losses[0] - losses[-1]).item()


@advice(
    "B29",
    article="c10half",
    claim="Generation is more sensitive to precision than classification; pre-training more than "
          "fine-tuning.",
    why="A generated text fails with the first of its many choices that turns; but half weights "
        "lose steps that are small beside them, and fine-tuning takes the smaller steps.",
    instead="Judge by what the program does: choices that build on each other, sums, step against "
            "weight; and measure against float32.",
    source="https://docs.pytorch.org/docs/stable/type_info.html, torch.finfo: eps",
    notebook="06",
)
def compare_tasks_on_small_models(device):
    model, prompts = Reader().to(device), torch.randint(256, (64, 8)).to(device)
    half = copy.deepcopy(model).to(torch.bfloat16)
    turned = [(model.continued(prompts, count) != half.continued(prompts, count)).any(1).float()
              .mean().item() for count in (1, 32)]
    yield fact("generation against classification, bfloat16", turned[1] > turned[0],
               f"1 word: {turned[0]:.0%} of the answers change, 32 words: {turned[1]:.0%}")
    x = torch.randn(128, 16).to(device)
    start, teacher = (nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
                      for _ in range(2))
    target = teacher(x).detach()
    trained, _ = learned(start, target, x, 1e-3, torch.float32)
    moved = target + 0.3 * torch.sin(x[:, :1])
    kept = [learned(*task, torch.bfloat16)[1] / learned(*task, torch.float32)[1] for task in
            ((start, target, x, 1e-3), (trained, moved, x, 1e-4))]
    yield fact("pre-training against fine-tuning, weights in bfloat16", kept[0] < kept[1],
               f"of float32's progress pre-training keeps {kept[0]:.0%}, fine-tuning {kept[1]:.0%}")
    yield not_shown("models of real size", "needs GPUs and weeks; small models settle nothing")


def gradients(output, weights, target, scale, size):
    """Gradients of a loss of this size, scaled for the backward pass and unscaled after it.

    That is what GradScaler does, whose first scale is 65536. Plain, so that every torch has it.
    """
    loss = size * F.mse_loss(output.float(), target)
    return torch.cat([g.flatten() / scale for g in torch.autograd.grad(loss * scale, weights)])


@advice(
    "C23",
    article="chatglm",
    claim="AMP needs gradient scaling.",
    why="float16 turns gradients below 3e-8 to 0, and scaling lifts them above that; bfloat16 has "
        "the range of float32, so that there is nothing to lift.",
    instead="Use GradScaler with float16 autocast, and none with bfloat16.",
    source="https://docs.pytorch.org/docs/stable/amp.html, Gradient Scaling",
    notebook="08",
)
def scale_the_loss(device):
    model, x, target = nn.Linear(16, 16).to(device), torch.randn(64, 16), torch.randn(64, 16)
    x, target = x.to(device), target.to(device)

    def autocast(dtype):
        if dtype == torch.float32:
            return model(x)
        with torch.autocast(device, dtype):
            return model(x)

    def casts_by_hand(dtype):
        return model.weight[0].to(dtype) * x.to(dtype) + model.bias.to(dtype)

    ways = itertools.product((autocast, casts_by_hand), (torch.float16, torch.bfloat16),
                             (("small", 1e-6), ("ordinary", 1.0)))
    for way, dtype, (word, size) in ways:
        scene = f"{way.__name__.replace('_', ' ')} in {dtype_name(dtype)}, {word} gradients"
        tried = attempt(way, dtype)
        if tried.error:
            yield not_shown(scene, tried.said)
            continue
        weights = list(model.parameters())
        exact = gradients(way(torch.float32), weights, target, 1, size)
        plain, scaled = (relative_error(gradients(way(dtype), weights, target, scale, size), exact)
                         for scale in (1, 65536))
        yield fact(scene, plain > allowed_error(dtype) >= scaled,
                   f"relative error {show(plain)} without, {show(scaled)} with scaling")
