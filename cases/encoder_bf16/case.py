"""Case encoder_bf16: a padded nn.TransformerEncoder under autocast, in validation."""

import torch
from torch import nn

from cases.encoder_bf16 import fixes as fix
from cases.encoder_bf16.model import SpectraModel, tokens_of, train_forward, validate
from cases.lab.case import Case, Factor, Headline, Run, fixes

SAMPLES, BITS = 10_000, 80
# Two rows in training: a CPU without bf16 units takes twenty times as long for a bf16 product
# as for a float32 one, and training costs are measured over a few dozen steps.
ROWS = {"validate": 8, "train": 2}


def spectra(rows, samples, generator):
    """Signals with a few Gaussian peaks on a noisy baseline, float32 (rows, samples)."""
    at = torch.linspace(0, 1, samples)
    peaks = torch.rand(rows, 6, 3, generator=generator)
    place, width, height = peaks[..., :1], 0.004 + 0.02 * peaks[..., 1:2], peaks[..., 2:]
    signal = (height * torch.exp(-(((at - place) / width) ** 2))).sum(1)
    return signal + 0.02 * torch.randn(rows, samples, generator=generator)


def prepare(setting, device, dtype):
    generator = torch.Generator().manual_seed(0)
    model = SpectraModel(batch_first=setting["batch_first"] == "on").to(device)
    batch, rows = {"device": device}, ROWS[setting["phase"]]
    if setting["source"] == "tokens":
        density = torch.linspace(0.2, 0.6, rows).unsqueeze(1)
        batch["bits"] = (torch.rand(rows, BITS, generator=generator) < density).long().to(device)
        batch["tokens"] = tokens_of(batch["bits"])
        mask = batch["tokens"] == 0
    else:
        batch["signal"] = spectra(rows, SAMPLES, generator).to(device)
        with torch.no_grad():
            positions = model.cnn(batch["signal"].unsqueeze(1)).shape[2]
        lengths = torch.linspace(positions // 2, positions - 10, rows).long().unsqueeze(1)
        mask = (torch.arange(positions) >= lengths).to(device)
    if setting["mask"] == "on":
        batch["mask"] = mask
    target = torch.randn(rows, 32, generator=generator).to(device)
    low = None if dtype is torch.float32 else dtype
    forward = train_forward if setting["phase"] == "train" else validate

    def loss(output, batch):
        """Pool over the rows that are not padding, and fit a fixed target."""
        keep = (~mask[:, : output.shape[1]]).unsqueeze(2).to(output.dtype)
        return nn.functional.mse_loss(((output * keep).sum(1) / keep.sum(1)).float(), target)

    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=model,
        batch=batch,
        step=lambda model, batch: forward(model, batch, low),
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        keep=~mask,
    )


CASE = Case(
    name="encoder_bf16",
    title="A padded nn.TransformerEncoder under bf16 autocast, in validation",
    notebook="01_encoder_bf16.ipynb",
    headline=Headline(
        "RuntimeError", "expected scalar type Float but found BFloat16",
        ("torch-2.2", "torch-2.3", "torch-2.4", "torch-2.6", "torch-2.9", "torch-2.13",
         "torch-2.14"),
    ),
    factors=(
        Factor("phase", ("validate", "train"), "eval mode and no_grad, or a training step"),
        Factor("source", ("tokens", "spectrum"), "which of the two ways into the encoder"),
        Factor("mask", ("on", "off"), "give the encoder a key padding mask"),
        Factor("dtype", ("bfloat16", "float16"), "the autocast dtype"),
        Factor("batch_first", ("on", "off"), "(batch, sequence, features), or sequence first"),
    ),
    fixes=fixes(
        article=(
            fix.cast_embedding_output,
            fix.embedding_weights_bf16,
            fix.mask_to_device,
            fix.encoder_weights_bf16,
            fix.autocast_everything,
        ),
        ours=(fix.disable_nested_tensor, fix.disable_mha_fastpath, fix.autocast_off_for_encoder),
        trap=(fix.debug_hooks,),
    ),
    prepare=prepare,
    # Without the mask, or in training, the program does not fail.
    controls=lambda setting: [{**setting, "mask": "off"}, {**setting, "phase": "train"}],
    watch=("nn/modules/transformer.py",),
)
