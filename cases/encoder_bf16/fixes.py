"""Remedies for the encoder failure. Each changes a prepared run before its forward pass."""

import torch

from cases.encoder_bf16.model import tokens_of


def cast_embedding_output(run):
    """Cast what nn.Embedding returns to the autocast dtype."""
    embed = run.model.embedding.forward
    run.model.embedding.forward = lambda tokens: embed(tokens).to(run.dtype)


def embedding_weights_bf16(run):
    """Keep the embedding's weights in the autocast dtype."""
    run.model.embedding.to(run.dtype)


def mask_to_device(run):
    """Move the padding mask to the device of the input."""
    if "mask" in run.batch:
        run.batch["mask"] = run.batch["mask"].to(run.device)


def encoder_weights_bf16(run):
    """Convert all parameters of the encoder to the autocast dtype."""
    run.model.encoder.to(run.dtype)


def autocast_everything(run):
    """Build tokens and mask inside the autocast block too."""
    step = run.step

    def all_inside(model, batch):
        with torch.autocast(run.device, run.dtype):
            batch = dict(batch)
            if "bits" in batch:
                batch["tokens"] = tokens_of(batch["bits"])
            if "mask" in batch and "bits" in batch:
                batch["mask"] = batch["tokens"] == 0
            return step(model, batch)

    run.step = all_inside


def disable_nested_tensor(run):
    """Keep the encoder from packing the unpadded rows: enable_nested_tensor=False."""
    run.model.encoder.enable_nested_tensor = False
    run.model.encoder.use_nested_tensor = False


def disable_mha_fastpath(run):
    """Turn the fused inference path of attention off, for the whole process."""
    torch.backends.mha.set_fastpath_enabled(False)


def autocast_off_for_encoder(run):
    """Run the encoder alone in float32, outside autocast."""
    encode = run.model.encoder.forward

    def in_float32(src, **options):
        with torch.autocast(run.device, enabled=False):
            return encode(src.float(), **options)

    run.model.encoder.forward = in_float32


def debug_hooks(run):
    """A forward hook on every layer that notes dtypes: the usual way to look for the culprit."""
    seen = run.batch.setdefault("seen", [])
    for module in run.model.modules():
        module.register_forward_hook(lambda m, args, out: seen.append(getattr(out, "dtype", None)))
