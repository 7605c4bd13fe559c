"""Case chatglm_prefix: a float32 part trained beside a half ChatGLM."""

import torch
from torch.nn import functional as F

from cases.chatglm_prefix import fixes as fix
from cases.chatglm_prefix.model import ChatGLM, generate, set_precision, train_forward, validate
from cases.lab.case import Case, Factor, Headline, Run, fixes

ROWS, LENGTH, VOCAB = 4, 5, 64
PARTS = {"prefix": "prefix", "norm": "norm", "lm_head": "lm_head", "input": "embedding"}
STEPS = {"train": train_forward, "validate": validate, "generate": generate}
# P-tuning's own learning rate.
LEARNING_RATE = 2e-2


def prepare(setting, device, dtype):
    generator = torch.Generator().manual_seed(0)
    model = ChatGLM(setting["attention"], vocab=VOCAB)
    part = PARTS.get(setting["float32_part"])  # "none", for the control: all in `dtype`
    set_precision(model, dtype, float32_part=part, trained=part or "prefix")
    # The task: say after every token whether it is odd, by token 0 or 1.
    tokens = torch.randint(VOCAB, (ROWS, LENGTH), generator=generator).to(device)
    forward = STEPS[setting["phase"]]
    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=model.to(device),
        batch={"tokens": tokens, "answers": tokens % 2},
        step=lambda model, batch: forward(model, batch["tokens"]),
        loss=lambda logits, batch: F.cross_entropy(
            logits.flatten(0, 1).float(), batch["answers"].flatten()
        ),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=LEARNING_RATE),
    )


CASE = Case(
    name="chatglm_prefix",
    title="A half ChatGLM whose float32 prefix becomes past keys and values",
    notebook="03_chatglm_prefix.ipynb",
    headline=Headline(
        "RuntimeError", "expected scalar type Half but found Float",
        ("torch-2.2", "torch-2.3", "torch-2.4", "torch-2.6", "torch-2.9", "torch-2.13",
         "torch-2.14"),
    ),
    factors=(
        Factor("phase", ("train", "validate", "generate"), "a training step, or one of two uses"),
        Factor("dtype", ("float16", "bfloat16"), "the dtype of the base"),
        Factor(
            "float32_part",
            ("prefix", "norm", "lm_head", "input"),
            "the part that is trained, and stays float32; input is the token embedding",
        ),
        Factor("attention", ("baddbmm", "matmul", "sdpa"), "how the scores are computed"),
    ),
    fixes=fixes(
        article=(
            fix.whole_model_float32,
            fix.parameters_half,
            fix.autocast_float16,
            fix.gradients_half,
            fix.checkpoint_half,
            fix.validate_float_then_half,
        ),
        ours=(fix.cast_prefix_output, fix.base_bfloat16),
    ),
    prepare=prepare,
    # With nothing left in float32 the program does not fail.
    controls=lambda setting: [{**setting, "float32_part": "none"}],
)
