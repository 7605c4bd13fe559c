"""Case llama_vision: float32 image features before half text embeddings, in transformers' Llama."""

from pathlib import Path

import torch

from cases.lab.case import Case, Factor, Headline, Run, fixes
from cases.llama_vision import fixes as fix

PICTURE = Path(__file__).with_name("picture.png")
TOKENS = (1, 17, 42, 99, 7, 200, 128, 64)


def prepare(setting, device, dtype):
    # Here and not above: the catalogue must load where transformers is not installed.
    from transformers.utils import logging

    from cases.llama_vision.model import answer, load_model

    logging.set_verbosity_error()  # some versions announce what later versions will do

    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=load_model(dtype, setting["attention"]).to(device),
        batch={
            "file": None if setting.get("image") == "none" else PICTURE,
            "tokens": torch.tensor([TOKENS], device=device),
            "generate": setting["phase"] == "generate",
        },
        step=lambda model, batch: answer(model, **batch),
    )


def controls(setting):
    """Text alone does not fail; in bfloat16 where half has no CPU kernels, as on torch 1.13."""
    half = torch.ones(1, 1, dtype=torch.float16)
    try:
        half @ half
    except RuntimeError:
        setting = {**setting, "dtype": "bfloat16"}
    return [{**setting, "image": "none"}]


CASE = Case(
    name="llama_vision",
    title="A picture given to a Llama in half",
    notebook="02_llama_vision.ipynb",
    headline=Headline(
        "RuntimeError",
        "expected m1 and m2 to have the same dtype, but got: float != c10::Half",
        ("torch-2.1", "torch-2.2", "torch-2.3", "torch-2.4", "torch-2.6", "torch-2.9",
         "torch-2.13", "torch-2.14"),
    ),
    factors=(
        Factor("dtype", ("float16", "bfloat16"), "the dtype the language model is loaded in"),
        Factor("phase", ("generate", "forward"), "generate text, or one forward pass"),
        Factor("attention", ("eager", "sdpa"), "transformers' implementation of attention"),
    ),
    fixes=fixes(
        article=(
            fix.image_device_only,
            fix.image_to_model_dtype,
            fix.autocast_generate,
            fix.safe_forward,
            fix.upcast_softmax,
            fix.empty_cache,
            fix.whole_model_float32,
            fix.keep_layernorm_float32,
        ),
        ours=(fix.vision_tower_half, fix.cast_image_features),
    ),
    prepare=prepare,
    controls=controls,
    needs=("transformers", "PIL"),
    watch=("models/llama/modeling_llama.py",),
)
