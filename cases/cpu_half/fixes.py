"""Remedies for a model in half on the CPU. Each changes a prepared run before its forward pass."""

import torch

from cases.lab import torches


def move_to_gpu(run):
    """Move the model and its input to the GPU; needs one."""
    run.device = "cuda"
    run.model.to("cuda")
    run.batch = {name: tensor.to("cuda") for name, tensor in run.batch.items()}


move_to_gpu.needs_gpu = True


def float_the_input(run):
    """Outside autocast, cast the input to float32 and the result back; the layer stays in half."""
    layer = run.model.layer.forward

    def forward(x):
        with torch.autocast(run.device, enabled=False):
            return layer(x.float()).to(run.dtype)

    run.model.layer.forward = forward


def autocast_float16(run):
    """Run the forward pass under float16 autocast."""
    step = run.step

    def under_autocast(model, batch):
        with torch.autocast(run.device, torch.float16):
            return step(model, batch)

    run.step = under_autocast


def empty_cache(run):
    """Free the GPU memory that torch keeps for reuse."""
    torch.cuda.empty_cache()


def float_the_layer(run):
    """Keep the layer itself in float32, feed it float32 and cast its result back."""
    layer = run.model.layer.float().forward
    run.model.layer.forward = lambda x: layer(x.float()).to(run.dtype)


def bfloat16_weights(run):
    """Load the model, and its input, in bfloat16."""
    run.model.bfloat16()
    run.batch["x"] = run.batch["x"].bfloat16()


def whole_model_float32(run):
    """Load the model, and its input, in float32."""
    run.model.float()
    run.batch["x"] = run.batch["x"].float()


def newer_torch(run):
    """Run the same program on the torch of the notebooks, where that is newer."""
    newest = torches.main_id()
    if torches.number(torches.current()) < torches.number(newest):
        run.torch_id = newest
