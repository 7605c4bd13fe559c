"""Case cpu_half: a model in half, on the CPU. Which op raises depends on the torch."""

import copy

import torch

from cases.cpu_half import fixes as fix
from cases.cpu_half.model import Model, forward, loss, train_forward
from cases.lab.case import Case, Factor, Headline, Run, fixes

# The shape of the input of each op. Small enough that torch takes the paths whose names the
# reports quote: a larger bmm raises "addmm_impl_cpu_", a larger cdist is a matmul.
SHAPES = {
    "linear": (32, 16),
    "conv2d": (4, 16, 8, 16),
    "layer_norm": (32, 16),
    "softmax": (32, 16),
    "bmm": (8, 4, 16),
    "cumsum": (32, 16),
    "topk": (32, 16),
    "erfinv": (32, 16),
    "fft": (32, 16),
    "inverse": (8, 16, 16),
    "cdist": (8, 6, 16),
    "quantile": (32, 16),
}
# Learning rates: large steps where the loss is flat, small ones where it is steep.
RATES = {"softmax": 30.0, "bmm": 0.03, "inverse": 3.0}
RATE = 0.3


def data(op):
    """The input of `op` in float32, within the function's domain and range of half."""
    x = torch.randn(SHAPES[op])
    if op == "erfinv":
        return torch.tanh(x) * 0.95
    if op == "inverse":
        return torch.eye(16) + 0.1 * x
    return x


def prepare(setting, device, dtype):
    op = setting["op"]
    model, x = Model(op), data(op)
    teacher = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.mul_(0.8)
        target = teacher(x)
    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=model.to(device, dtype),
        batch={"x": x.to(device, dtype), "target": target.to(device)},
        step=train_forward if setting["phase"] == "train" else forward,
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATES.get(op, RATE)),
    )


CASE = Case(
    name="cpu_half",
    title="A model in half on the CPU",
    notebook="04_cpu_half.ipynb",
    headline=Headline(
        "RuntimeError", "\"addmm_impl_cpu_\" not implemented for 'Half'",
        ("torch-1.13", "torch-2.0", "torch-2.1"),
    ),
    factors=(
        Factor("op", tuple(SHAPES), "the model's one layer"),
        Factor("dtype", ("float16", "bfloat16"), "what the model was saved in"),
        Factor("phase", ("forward", "train"), "eval mode and no_grad, or a training step"),
    ),
    fixes=fixes(
        article=(
            fix.move_to_gpu,
            fix.float_the_input,
            fix.autocast_float16,
            fix.empty_cache,
        ),
        ours=(
            fix.float_the_layer,
            fix.bfloat16_weights,
            fix.whole_model_float32,
            fix.newer_torch,
        ),
    ),
    prepare=prepare,
    # Where the program runs as it is, its own output dtype is right; elsewhere, what it asks for.
    controls=lambda setting: [setting],
    surveys=(("ops", "cases.cpu_half.ops:survey"),),
)
