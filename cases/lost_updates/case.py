"""Case lost_updates: what low precision keeps is too coarse for what each step adds to it."""

import torch
from torch import nn

from cases.lab.case import Case, Factor, Run, Silent, fixes
from cases.lab.numerics import cost
from cases.lost_updates import fixes as fix
from cases.lost_updates.model import average, fit, log, squared_error

# Of 16 weights 12 are about 1 and four about 9, for what gets lost depends on their size.
WEIGHTS, BIG = 16, 4
LEARNING_RATE = {"small": 2e-3, "large": 5e-2}
# The average, and the sum, need many steps to show what one small step loses.
DECAY = {"small": (0.9999, 4000), "large": (0.5, 20)}
LOSSES = {"small": (4000, 500), "large": (24, 8)}  # how many there are, and how many a log


def linear(weights):
    """A linear layer without bias that has these weights."""
    layer = nn.Linear(len(weights), 1, bias=False)
    layer.weight.data = weights.clone().unsqueeze(0)
    return layer


def prepare(setting, device, dtype):
    kept, size = setting["kept"], setting["size"]
    generator = torch.Generator().manual_seed(0)
    weights = 1 + 0.25 * torch.rand(WEIGHTS, generator=generator)
    weights[-BIG:] *= 8
    run = Run(setting=setting, device=device, dtype=dtype, model=nn.Identity(), batch={}, step=None)
    if kept == "weights":
        away = 0.2 * torch.where(torch.rand(WEIGHTS, generator=generator) < 0.5, -1, 1)
        x = torch.randn(64, WEIGHTS, generator=generator)
        x[:, -BIG:] /= 2
        run.model = linear(weights).to(device, dtype)
        run.batch = {
            "x": x.to(device, dtype),
            "y": (x @ (weights + away)).unsqueeze(1).to(device, dtype),
            "optimizer": torch.optim.AdamW(run.model.parameters(), lr=LEARNING_RATE[size]),
            "criterion": squared_error,
            "steps": 100,
        }
        run.step = lambda model, batch: fit(model, **batch)
    elif kept == "average":
        start = linear(0.5 * torch.rand(WEIGHTS, generator=generator) - 0.25)
        run.model = nn.ModuleDict({"trained": linear(weights), "ema": start}).to(device, dtype)
        run.batch = dict(zip(("decay", "steps"), DECAY[size], strict=True))
        run.step = lambda model, batch: average(model, **batch)
    else:
        count, every = LOSSES[size]
        losses = 0.6 + 0.1 * torch.randn(count, generator=generator)
        run.batch = {
            "losses": losses.to(device, dtype),
            "total": torch.zeros((), device=device, dtype=dtype),
            "every": every,
        }
        run.step = lambda model, batch: log(**batch)
    return run


def costs(run, output):
    """Weights that never moved; and what the optimiser keeps, if it keeps more than it did."""
    if "optimizer" not in run.batch:
        return []
    found = []
    dtype = getattr(torch, run.setting["dtype"])
    start = prepare(run.setting, run.device, dtype).model.weight
    same = int((run.model.weight == start).sum())
    if same:
        found.append(cost("updates_lost", f"{same} of {start.numel()} weights never moved"))
    optimizer = run.batch["optimizer"]
    kept = sum(value.numel() * value.element_size() for state in optimizer.state.values()
               for name, value in state.items() if name != "step")
    now, before = kept // start.numel(), 2 * start.element_size()
    if now > before:
        found.append(cost("memory", f"the optimiser keeps {now} bytes a weight, not {before}"))
    return found


CASE = Case(
    name="lost_updates",
    title="Weights, averages and sums in low precision: each step is rounded away",
    notebook="06_lost_updates.ipynb",
    headline=Silent(
        "the loss does not fall in bfloat16; the EMA never changes; the logged loss drops to 0",
        ("error", "not_finite", "updates_lost"),
        ("torch-1.13", "torch-2.0", "torch-2.1", "torch-2.2", "torch-2.3", "torch-2.4",
         "torch-2.6", "torch-2.9", "torch-2.13", "torch-2.14"),
    ),
    factors=(
        Factor("kept", ("weights", "average", "sum"), "what is kept, and added to, at each step"),
        Factor("size", ("small", "large"), "how large one step is beside what it is added to"),
        Factor("dtype", ("bfloat16", "float16"), "the dtype it is kept in"),
    ),
    fixes=fixes(
        article=(
            fix.larger_learning_rate,
            fix.larger_eps,
            fix.loss_scaling,
            fix.float16_instead,
            fix.reset_the_sum,
            fix.step_in_float32,
        ),
        ours=(
            fix.stochastic_rounding,
            fix.compensated,
            fix.master_weights,
            fix.autocast_instead,
            fix.float32_average,
            fix.float32_sum,
        ),
    ),
    prepare=prepare,
    # The same program with large steps does not lose them.
    controls=lambda setting: [{**setting, "size": "large"}],
    costs=costs,
)
