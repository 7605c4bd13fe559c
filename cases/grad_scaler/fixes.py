"""Remedies for a loop with a GradScaler. Each changes a prepared run before it trains."""

import torch

from cases.grad_scaler.model import LEARNING_RATE, grad_scaler


def unscale_before_clip(run):
    """Call scaler.unscale_(optimizer) between backward and the clipping."""
    clip = run.batch["clip"]

    def unscaled(model, optimizer, scaler):
        scaler.unscale_(optimizer)
        return clip(model, optimizer, scaler)

    run.batch["clip"] = unscaled


def scaler_off(run):
    """Train without a scaler: GradScaler(enabled=False)."""
    run.batch["scaler"] = grad_scaler(run.device, enabled=False)


def smaller_init_scale(run):
    """Begin with a scale of 1024 instead of 65536."""
    run.batch["scaler"] = grad_scaler(run.device, init_scale=1024.0)


def larger_learning_rate(run):
    """Learn a thousand times faster, for the steps look too small."""
    for group in run.batch["optimizer"].param_groups:
        group["lr"] *= 1000


def bfloat16_autocast(run):
    """Give autocast bfloat16 instead of float16."""
    run.dtype = run.batch["dtype"] = torch.bfloat16


def float32_parameters(run):
    """Convert the model to float32, and leave the low precision to autocast."""
    run.model.float()


def allow_half_gradients(run):
    """Make the scaler unscale float16 gradients: its own method, told allow_fp16=True."""
    unscale = run.batch["scaler"]._unscale_grads_
    run.batch["scaler"]._unscale_grads_ = (
        lambda optimizer, inv_scale, found_inf, allow_fp16: unscale(
            optimizer, inv_scale, found_inf, True))


def step_only_with_gradients(run):
    """Leave scaler.step out where no parameter of the optimizer has a gradient."""
    step = run.batch["scaler"].step

    def careful(optimizer):
        if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
            step(optimizer)

    run.batch["scaler"].step = careful


def scaler_on(run):
    """Train with a scaler, as it comes."""
    run.batch["scaler"] = grad_scaler(run.device)


def optimizer_of_this_model(run):
    """Build the optimizer again, from the parameters of the model that is trained."""
    run.batch["optimizer"] = torch.optim.SGD(run.model.parameters(), lr=LEARNING_RATE)


def input_of_unit_size(run):
    """Divide the input by its standard deviation."""
    run.batch["x"] = run.batch["x"] / run.batch["x"].std()


def nan_to_zero(run):
    """Put 0 for every gradient that is not finite, so that no step is skipped."""
    clip = run.batch["clip"]

    def cleaned(model, optimizer, scaler):
        for parameter in model.parameters():
            torch.nan_to_num(parameter.grad, 0.0, 0.0, 0.0, out=parameter.grad)
        return clip(model, optimizer, scaler)

    run.batch["clip"] = cleaned
