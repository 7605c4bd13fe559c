"""What a run costs: thresholds, errors, dtypes of parameters. All thresholds are stated here."""

import math

import torch

from cases.halftruths.dtypes import dtype_name

# A result may be this many times the epsilon of its dtype away from float32's. Rounding
# errors of a few layers add up like a random walk, so a small factor covers them; a wrong
# computation is off by far more.
ERROR_FACTOR = 4
# Below this share of epsilon the result is float32's own: nothing was rounded to low precision.
UNUSED_SHARE = 1 / 64
# A run has learned if its loss fell by at least this share of what float32's loss fell by.
LEARNED_SHARE = 0.8
# Share of updates that may leave their weight unchanged, beyond float32's own share.
LOST_SHARE = 0.02
# Optimizer steps of the training that costs are measured on.
TRAINING_STEPS = 24


def one_digit(number):
    """Round to one significant digit, so that a figure is the same on every processor."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.0e}")


def show(number):
    """One significant digit as text: '4e-03' is written 0.004, tiny figures stay in powers."""
    if number is None:
        return "not finite"
    return f"{one_digit(number):g}"


def kept(output, reference, keep):
    """Return both tensors in float64 over the rows that count.

    A shorter sequence than the reference's is compared over what it has, and on the CPU, for
    the two need not be on one device.
    """
    output, reference = output.detach().cpu(), reference.detach().cpu()
    common = tuple(slice(0, min(a, b)) for a, b in zip(output.shape, reference.shape, strict=True))
    output, reference = output[common], reference[common]
    if keep is not None:
        keep = keep.cpu()[common[: keep.dim()]]
        output, reference = output[keep], reference[keep]
    return output.double(), reference.double()


def relative_error(output, reference, keep=None):
    """Return |output - reference| / |reference|, Euclidean norms over the rows that count.

    Returns None where the output is not a floating tensor or is not finite.
    """
    if not output.is_floating_point():
        return None
    if output.is_nested:
        output = output.to_padded_tensor(0.0)
    ours, theirs = kept(output, reference, keep)
    if not bool(torch.isfinite(ours).all()):
        return None
    return float((ours - theirs).norm() / theirs.norm().clamp_min(1e-300))


def allowed_error(dtype):
    """Return the largest relative error that `dtype` explains."""
    return ERROR_FACTOR * torch.finfo(dtype).eps


def parameters(model):
    """Return {name: (dtype, elements, bytes)} of the model's parameters."""
    return {
        name: (p.dtype, p.numel(), p.numel() * p.element_size())
        for name, p in model.named_parameters()
    }


def cost(kind, text):
    return {"kind": kind, "text": text}


def parameter_costs(before, after):
    """What the fixes did to the parameters, from two results of `parameters`."""
    found = []
    lost = [
        name
        for name, (dtype, _, _) in before.items()
        if dtype is torch.float32 and name in after and after[name][0] != dtype
    ]
    if lost:
        floats = sum(dtype is torch.float32 for dtype, _, _ in before.values())
        now = sorted({dtype_name(after[name][0]) for name in lost})
        found.append(
            cost(
                "master_weights",
                f"{len(lost)} of {floats} float32 parameters are now {' and '.join(now)}",
            )
        )
    old, new = (sum(size for _, _, size in side.values()) for side in (before, after))
    if new > old:
        found.append(cost("memory", f"parameters take {new / old:.1f} times the bytes"))
    return found


def output_costs(output, error, reference, dtype, expected):
    """What became of the output: its dtype, shape, and distance from float32's.

    expected: set of dtypes that the program returns where it does not fail.
    """
    found = []
    if expected and output.dtype not in expected:
        names = " or ".join(sorted(dtype_name(d) for d in expected))
        found.append(
            cost("output_dtype", f"output is {dtype_name(output.dtype)}, not {names}")
        )
    if output.shape != reference.shape:
        found.append(
            cost("output_shape", f"output is {tuple(output.shape)}, not {tuple(reference.shape)}")
        )
    if not output.is_floating_point():
        return found
    name = dtype_name(dtype)
    if error is None:
        found.append(cost("not_finite", "output holds values that are not finite"))
    elif error > allowed_error(dtype):
        found.append(
            cost(
                "error",
                f"relative error {show(error)}; {name} explains {show(allowed_error(dtype))}",
            )
        )
    elif error < UNUSED_SHARE * torch.finfo(dtype).eps:
        found.append(
            cost("low_precision_unused", f"the result is float32's own: nothing ran in {name}")
        )
    return found


def gradient_costs(model):
    """Gradients that are not finite, after backward."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    bad = sum(not bool(torch.isfinite(g).all()) for g in grads)
    if bad:
        return [cost("gradients", f"{bad} of {len(grads)} gradients are not finite")]
    return []


def training_costs(ours, reference):
    """Compare two trainings, each a dict with `losses` and `lost` (share of updates)."""
    found = []
    fell = reference["losses"][0] - reference["losses"][-1]
    ours_fell = ours["losses"][0] - ours["losses"][-1]
    if not math.isfinite(ours["losses"][-1]) or ours_fell < LEARNED_SHARE * fell:
        last = ours["losses"][-1]
        found.append(
            cost(
                "no_learning",
                f"loss after {TRAINING_STEPS} steps is "
                f"{f'{last:.2f}' if math.isfinite(last) else 'not finite'}; "
                f"float32's is {reference['losses'][-1]:.2f}",
            )
        )
    if ours["lost"] > reference["lost"] + LOST_SHARE:
        found.append(
            cost("updates_lost", f"{ours['lost']:.0%} of the updates left their weight unchanged")
        )
    return found
