"""Remedies for the vision failure. Each changes a prepared run before its forward pass."""

from unittest import mock

import torch
from torch import nn


def image_device_only(run):
    """Move the image to the model's device once more: what the program does already."""
    see = run.model.vision_tower.forward

    def moved(pixels):
        pixels = pixels.to(run.model.device)
        return see(pixels)

    run.model.vision_tower.forward = moved


def image_to_model_dtype(run):
    """Move the image to the model's device and to its dtype."""
    see = run.model.vision_tower.forward

    def cast(pixels):
        pixels = pixels.to(run.model.device, dtype=run.model.dtype)
        return see(pixels)

    run.model.vision_tower.forward = cast


def autocast_generate(run):
    """Wrap the whole call in autocast, with the low dtype named."""
    step = run.step

    def under_autocast(model, batch):
        with torch.autocast(run.device, dtype=run.dtype):
            return step(model, batch)

    run.step = under_autocast


def safe_forward(run):
    """Cast what enters the language model to the low dtype, and run it with autocast disabled."""
    forward = run.model.model.forward

    def safe(*args, inputs_embeds=None, **options):
        if inputs_embeds is not None:
            inputs_embeds = inputs_embeds.to(run.dtype)
        with torch.autocast(run.device, enabled=False):
            return forward(*args, inputs_embeds=inputs_embeds, **options)

    run.model.model.forward = safe


def upcast_softmax(run):
    """Take every softmax in float32, and cast the result back."""
    step, softmax = run.step, nn.functional.softmax

    def upcast(scores, dim=None, **options):
        return softmax(scores.float(), dim=dim).to(options.get("dtype") or scores.dtype)

    def with_upcast(model, batch):
        with mock.patch.object(nn.functional, "softmax", upcast):
            return step(model, batch)

    run.step = with_upcast


def empty_cache(run):
    """Empty the GPU's cache of unused memory, then run again."""
    torch.cuda.empty_cache()


def whole_model_float32(run):
    """Convert the whole model to float32."""
    run.model.float()


def keep_layernorm_float32(run):
    """Turn the whole model to the low dtype, then every nn.LayerNorm back to float32."""
    run.model.to(run.dtype)
    for module in run.model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()


def vision_tower_half(run):
    """Convert the vision tower and its projector to the low dtype."""
    run.model.vision_tower.to(run.dtype)
    run.model.projector.to(run.dtype)


def cast_image_features(run):
    """Cast the image features to the model's dtype, before they meet the text."""
    project = run.model.projector.forward

    def cast(patches):
        return project(patches).to(run.model.dtype)

    run.model.projector.forward = cast
