"""Case grad_scaler: a scaler that is used wrongly, most often without a word."""

import copy

import torch

from cases.grad_scaler import fixes as fix
from cases.grad_scaler.model import LEARNING_RATE, STEPS, Net, clip, grad_scaler, train
from cases.lab.case import Case, Factor, Run, Silent, fixes
from cases.lab.numerics import cost, show

ROWS = 256
# In pascals the air's pressure is 101325, and float16 ends at 65504. In float32 the unit makes no
# difference, for the model has a norm.
PASCALS = 1e5


def unscale_and_clip(model, optimizer, scaler):
    """The right order, for the programs that do wrong elsewhere."""
    scaler.unscale_(optimizer)
    return clip(model, optimizer, scaler)


def prepare(setting, device, dtype):
    """The reference is the right loop in float32, which has no scaler to be wrong about."""
    mistake, low = setting["mistake"], dtype is not torch.float32
    teacher, model, x = Net(), Net(), torch.randn(ROWS, 8)
    with torch.no_grad():
        y = teacher(x)
    if mistake == "overflow":
        x = x * PASCALS
    if mistake == "half_parameters":
        model.to(dtype)
    model.to(device)
    owner = copy.deepcopy(model) if mistake == "no_gradients" and low else model
    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=model,
        batch={
            "x": x.to(device),
            "y": y.to(device),
            "device": device,
            "dtype": dtype if low else None,
            "optimizer": torch.optim.SGD(owner.parameters(), lr=LEARNING_RATE),
            "scaler": grad_scaler(device, enabled=low and mistake != "no_scaler"),
            "clip": clip if mistake == "clip_first" else unscale_and_clip,
            "log": [],
        },
        step=train,
    )


def costs(run, output):
    """What the program's own log says: steps that were skipped, a loss that does not fall.

    A scale that falls is the scaler's only sign that it skipped a step.
    """
    losses, _, scales = zip(*run.batch["log"], strict=True)
    scales += (run.batch["scaler"].get_scale(),)
    skipped = sum(after < before for before, after in zip(scales, scales[1:], strict=False))
    found = []
    if skipped:
        found.append(cost("skipped", f"{skipped} of {STEPS} steps skipped, scale {scales[-1]:g}"))
    if losses[-1] > losses[0] / 2:
        first, last = show(losses[0]), show(losses[-1])
        found.append(cost("no_learning", f"loss {first} at first, {last} last"))
    return found


CASE = Case(
    name="grad_scaler",
    title="A GradScaler in the wrong place",
    notebook="08_grad_scaler.ipynb",
    headline=Silent(
        "with float16 and a GradScaler the loss hardly falls; in float32 the same loop learns",
        ("error", "not_finite"),
        ("torch-2.2", "torch-2.3", "torch-2.4", "torch-2.6", "torch-2.9", "torch-2.13",
         "torch-2.14"),
    ),
    factors=(
        Factor(
            "mistake",
            ("clip_first", "no_scaler", "overflow", "half_parameters", "no_gradients"),
            "what is wrong: the order, the range, the input, the model, or the optimizer",
        ),
        Factor("dtype", ("float16", "bfloat16"), "the autocast dtype"),
    ),
    fixes=fixes(
        article=(
            fix.unscale_before_clip,
            fix.scaler_off,
            fix.smaller_init_scale,
            fix.larger_learning_rate,
            fix.bfloat16_autocast,
            fix.float32_parameters,
            fix.allow_half_gradients,
            fix.step_only_with_gradients,
        ),
        ours=(fix.scaler_on, fix.optimizer_of_this_model, fix.input_of_unit_size),
        trap=(fix.nan_to_zero,),
    ),
    prepare=prepare,
    # The right loop; in bfloat16 too, for old torches have no float16 autocast on the CPU.
    controls=lambda setting: [
        {**setting, "mistake": "none", "dtype": dtype} for dtype in (setting["dtype"], "bfloat16")
    ],
    costs=costs,
)
