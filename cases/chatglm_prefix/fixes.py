"""Remedies for the prefix failure. Each changes a prepared run before its forward pass."""

import itertools

import torch

from cases.chatglm_prefix.model import validate


def whole_model_float32(run):
    """Convert the whole model to float32."""
    run.model.float()


def parameters_half(run):
    """Loop over named_parameters and convert each to float16."""
    for _, parameter in run.model.named_parameters():
        parameter.data = parameter.data.half()


def autocast_float16(run):
    """Wrap the forward pass in torch.autocast(dtype=torch.float16)."""
    step = run.step

    def inside(model, batch):
        with torch.autocast(run.device, torch.float16):
            return step(model, batch)

    run.step = inside


def gradients_half(run):
    """Convert every gradient to float16 after each backward pass."""

    def convert(model):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.half()

    run.after_backward.append(convert)


def checkpoint_half(run):
    """Convert the checkpoint's tensors to float16 before loading it."""
    state = {name: tensor.half() for name, tensor in run.model.state_dict().items()}
    run.model.load_state_dict(state)


def validate_float_then_half(run):
    """Validate with model.float(), then go back with model.half()."""
    if run.setting["phase"] == "train":  # an epoch's validation, and training goes on
        validate(run.model.float(), run.batch["tokens"])
        run.model.half()
        return
    step = run.step

    def around(model, batch):
        output = step(model.float(), batch)
        model.half()
        return output

    run.step = around


def cast_prefix_output(run):
    """Keep the prefix encoder in float32, and cast what it returns to the base's dtype."""
    encode, base = run.model.prefix.forward, run.model.layers[0].query_key_value
    run.model.prefix.forward = lambda: encode().to(base.weight.dtype)


def base_bfloat16(run):
    """Hold in bfloat16 what the model holds in float16."""
    for tensor in itertools.chain(run.model.parameters(), run.model.buffers()):
        if tensor.dtype is torch.float16:
            tensor.data = tensor.data.bfloat16()
