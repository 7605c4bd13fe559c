"""What the articles say of dtypes and numbers, tried: names, promotion, range, rounding."""

import functools
import itertools
import time

import numpy
import torch
from torch.nn import functional as F

from cases.halftruths.dtypes import dtype_name
from cases.lab.advice import Seen, advice, attempt, claim, difference, fact, not_shown, remedy
from cases.lab.numerics import allowed_error, cost, relative_error, show

LOW = (torch.float16, torch.bfloat16)


@advice(
    "B1",
    article="c10half",
    claim="c10::Half in a message is torch.float16.",
    why="C++ calls the dtype c10::Half, Python torch.float16; bfloat16 is c10::BFloat16 there.",
    instead="Read c10::Half, or Half, as torch.float16, and look for the tensor that has it.",
    source="c10/util/Half.h, struct Half; c10/core/ScalarType.h",
    notebook="04",
)
def ask_two_operations_with_each_dtype(device):
    wide = torch.ones(2, 2, device=device)
    operations = {"linear": F.linear, "multi_dot": lambda *both: torch.linalg.multi_dot(both)}
    for name, operation in operations.items():
        said = {dtype: attempt(operation, wide.to(dtype), wide).said
                for dtype in (torch.float16, torch.bfloat16, torch.float64)}
        named = [dtype for dtype, words in said.items() if "c10::Half" in words]
        if named:
            yield fact(name, named == [torch.float16], said[named[0]])
        else:
            yield Seen(name, "idle", f"not in this message: {said[torch.float16]}")


PRODUCTS = {
    "matmul": torch.matmul,
    "mm": torch.mm,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "linear": F.linear,
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b),
    "conv2d": lambda a, b: F.conv2d(a[None, None], b[None, None]),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], b[None]),
    "baddbmm into float32": lambda a, b: torch.baddbmm(b[None], a[None], a[None]),
}


@advice(
    "B2",
    article="c10half",
    claim="A matrix product demands one dtype; it does not promote.",
    why="A product's kernel is built for one dtype; promotion is for work element by element. Only "
        "baddbmm on the CPU let a float32 summand pass, up to 2.0, and rounded it.",
    instead="Cast one operand to the other's dtype before a product, or run it under autocast.",
    source="aten/src/ATen/native/LinearAlgebra.cpp, addmm: self and mat2 must have the same dtype",
    notebook="04",
)
def multiply_bfloat16_by_float32(device):
    wide = torch.ones(4, 4, device=device)
    low = wide.to(torch.bfloat16)  # every torch has its products on the CPU, float16's not
    for name, product in PRODUCTS.items():
        alone, mixed = attempt(product, low, low), attempt(product, low, wide)
        if alone.error:
            yield not_shown(name, alone.said)
            continue
        # oneDNN refuses in words of its own where it has a kernel for bfloat16: with AVX512.
        yield fact(name, mixed.error is not None, mixed.said, processor=name == "conv2d")


def rotary(angles):
    """The tables of a rotary encoding: cos and sin of its angles, position by position."""
    return torch.cat([angles.cos(), angles.sin()], -1)


def rotary_table(last, inner, dtype, device):
    """The tables of the 64 positions before `last`, computed in `inner` and rounded to dtype."""
    rates = 10000 ** (torch.arange(0, 64, 2, dtype=torch.float64) / -64)
    positions = torch.arange(last - 64, last)
    angles = positions.to(device, inner)[:, None] * rates.to(device, inner)
    return rotary(angles).to(dtype)


def table_of_a_product(last, lowered, dtype, device):
    """The same of a float32 matrix product, as models write it, with autocast on or off."""
    rates = 10000 ** (torch.arange(0, 64, 2, device=device) / -64)
    positions = torch.arange(last - 64, last, device=device).float()
    with torch.autocast(device, torch.bfloat16, enabled=lowered):
        return rotary(positions[:, None] @ rates[None]).to(dtype)


@advice(
    "B16",
    article="c10half",
    claim="Helpers such as position encodings may need a precision of their own.",
    why="An angle of thousands of radians is rounded in half by as much as one radian or more, and "
        "bfloat16 counts positions one by one to 256 only, float16 to 2048.",
    instead="Compute angles, cos and sin in float32 with autocast off, and round only the tables.",
    source="EleutherAI/gpt-neox#1003; huggingface/transformers#29285",
    notebook="02",
)
def compute_rotary_tables_in_float32(device):
    for last, dtype in itertools.product((64, 4096, 32768), LOW):
        exact = rotary_table(last, torch.float64, torch.float64, device)
        costs = functools.partial(error_cost, exact, dtype)
        yield remedy(f"{dtype_name(dtype)}, to position {last}", *(
            attempt(rotary_table, last, inner, dtype, device, costs=costs)
            for inner in (dtype, torch.float32)))
    exact = rotary_table(4096, torch.float64, torch.float64, device)
    yield remedy("a product under autocast, bfloat16, to position 4096", *(
        attempt(table_of_a_product, 4096, lowered, torch.bfloat16, device,
                costs=functools.partial(error_cost, exact, torch.bfloat16))
        for lowered in (True, False)))


def error_cost(exact, dtype, table):
    """Cost of a table that is further from the exact one than its dtype explains."""
    error = relative_error(table, exact)
    if error is None or error > allowed_error(dtype):
        yield cost("error", f"relative error {show(error)}")


def in_half(scores):
    return F.softmax(scores, -1)


def in_float32_and_back(scores):
    return F.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)


def by_hand(scores):
    return (scores.exp() / scores.exp().sum(-1, keepdim=True)).half()


def not_finite(result):
    if not bool(torch.isfinite(result).all()):
        yield cost("not_finite", "not finite")


@advice(
    "B18",
    article="c10half",
    claim="Softmax of half scores should be taken in float32 and cast back.",
    why="Over the last dimension torch's softmax of half scores computes in float32 inside and "
        "rounds once; what overflows is what came before it.",
    instead="Leave F.softmax as it is, and compute the scores in float32 or scale q before the "
            "product. Cast for a softmax written by hand, or for float16 on the CPU before 2.2.",
    source="aten/src/ATen/native/cpu/SoftMaxKernel.cpp, vec_softmax_lastdim; "
           "aten/src/ATen/native/cuda/SoftMax.cu, acc_type",
    notebook="07",
)
def cast_scores_for_softmax(device):
    scores = 3 * torch.randn(64, 128).to(device)
    for dtype in LOW:
        exact = F.softmax(scores.to(dtype).double(), -1)
        plain, cast = (attempt(softmax, scores.to(dtype)) for softmax in
                       (in_half, in_float32_and_back))
        if plain.error:
            yield remedy(f"{dtype_name(dtype)} scores", plain, cast)
            continue
        errors = [show(relative_error(tried.value, exact)) for tried in (plain, cast)]
        yield difference(f"{dtype_name(dtype)} scores", *errors,
                         shown=f"relative error {errors[0]} in half, {errors[1]} with the cast")
    past = 300 * torch.tensor([[300.0, 1.0]], device=device).half()  # 90000: inf in float16
    yield remedy("float16 scores past 65504", *(
        attempt(softmax, past, costs=not_finite) for softmax in (in_half, in_float32_and_back)))
    scores = torch.tensor([[12.0, 11.0]], device=device)  # exp(12) is past 65504
    yield remedy("softmax written by hand, float16", *(
        attempt(by_hand, scores.to(dtype), costs=not_finite)
        for dtype in (torch.float16, torch.float32)))


@advice(
    "C2",
    article="chatglm",
    claim="float16 with float32 promotes to float32, with float64 to float64.",
    why="Among floating dtypes a tensor with dimensions outranks 0-dim tensors and numbers, a "
        "result in place keeps its dtype, and some operations refuse a mix.",
    instead="Count on promotion only between tensors with dimensions, in a new result; else cast.",
    source="https://docs.pytorch.org/docs/stable/tensor_attributes.html, torch.dtype",
    notebook="04",
)
def mix_float16_with_wider(device):
    half = torch.ones(3, dtype=torch.float16, device=device)
    for dtype, number in ((torch.float32, numpy.float32(1.5)),
                          (torch.float64, numpy.float64(1.5))):
        wide = torch.ones(3, dtype=dtype, device=device)
        mixes = {
            "with a tensor": (torch.mul, half, wide),
            "with a 0-dim tensor": (torch.mul, half, wide[0]),
            "with a NumPy number": (torch.mul, half, number),
            "with a tensor, in place": (torch.Tensor.mul_, half.clone(), wide),
            "with a tensor, in lerp": (torch.lerp, half, wide, 0.5),
        }
        for name, mix in mixes.items():
            tried = attempt(*mix)
            scene = f"{dtype_name(dtype)}: {name}"
            if tried.error:
                yield fact(scene, False, tried.said)
            else:
                yield claim(scene, said=dtype, measured=tried.value.dtype)


LOSSES = {
    "mse_loss": F.mse_loss,
    "huber_loss": F.huber_loss,
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "cross_entropy, probabilities": F.cross_entropy,
    "cross_entropy, class weights": lambda a, b: F.cross_entropy(
        a, torch.arange(4, device=a.device), weight=b[0]),
}


@advice(
    "C3",
    article="chatglm",
    claim="Such promotion happens in the loss.",
    why="Each loss decides for itself: some are composed of arithmetic, which promotes; others are "
        "kernels that refuse a mix, keep the prediction's dtype, or fail only in backward.",
    instead="Cast both sides yourself: loss(prediction.float(), target.float()).",
    source="pytorch/pytorch#94086 and pytorch/pytorch#175741 for mse_loss, pytorch/pytorch#76646 "
           "for huber_loss",
    notebook="03",
)
def mix_dtypes_in_a_loss(device):
    target = torch.full((4, 5), 0.4, device=device)
    for name, loss in LOSSES.items():
        prediction = torch.full((4, 5), 0.5, device=device).bfloat16().requires_grad_()
        tried = attempt(loss, prediction, target)
        if tried.error:
            yield fact(name, False, tried.said)
            continue
        yield claim(name, said=torch.float32, measured=tried.value.dtype)
        back = attempt(tried.value.backward)
        yield fact(f"{name}, backward", not back.error, back.said)


def seconds(work, values, device, lowered=False):
    """The shortest of some times of work(values, values), with autocast on or off."""
    found = []
    for _ in range(15):
        begin = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=lowered):
            work(values, values)
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return min(found)


def largest(function, values):
    return function(values).max().item()


@advice(
    "C22",
    article="chatglm",
    claim="All-half is the fastest and may overflow.",
    why="float16 ends at 65504, which scores, sums and squares pass; it halves the bytes to move, "
        "but computes fast only where the processor has instructions for it.",
    instead="Time it on your machine first; where values may pass 65504 take bfloat16, or keep "
            "scores, sums and squares in float32.",
    source="https://docs.pytorch.org/docs/stable/type_info.html, torch.finfo: max",
    notebook="04",
)
def time_all_half_and_pass_65504(device):
    for name, work, shape in (("a product of matrices", torch.matmul, (128, 128)),
                              ("a sum of large tensors", torch.add, (2048, 2048))):
        values = torch.rand(shape).to(device)
        half = values.half()
        tried = attempt(work, half, half)
        if tried.error:
            yield fact(f"fastest: {name}", False, tried.said, processor=True)
            continue
        took, wide = seconds(work, half, device), seconds(work, values, device)
        auto = seconds(work, values, device, lowered=True)
        yield fact(f"fastest: {name}", took < 0.9 * min(wide, auto),
                   f"{show(took / wide)} times float32's time, {show(took / auto)} autocast's",
                   processor=True)
    ways = {
        "overflow: scores": (lambda x: x @ x.T, torch.full((4, 64), 60.0)),
        "overflow: a sum": (torch.sum, torch.ones(70000)),
        "overflow: squares": (torch.square, torch.full((4,), 300.0)),
    }
    for scene, (function, values) in ways.items():
        wide = attempt(largest, function, values.to(device))
        tried = attempt(largest, function, values.to(device).half())
        if tried.error:
            yield not_shown(scene, tried.said)
        else:
            yield fact(scene, wide.value < tried.value == float("inf"),
                       f"{wide.value:g} in float32, {tried.value:g} in float16")
