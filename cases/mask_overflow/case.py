"""Case mask_overflow: an additive attention mask in half. Nothing is raised, the output is NaN."""

import torch

from cases.lab.case import Case, Factor, Run, Silent, fixes
from cases.lab.numerics import cost, gradient_costs, relative_error, show
from cases.mask_overflow import fixes as fix
from cases.mask_overflow.model import PAD, Decoder, padded, step

CONSTANTS = {"-1e9": -1e9, "min": torch.finfo(torch.float32).min}
PROMPTS = ([23, 7, 16, 3, 13], [14, 15, 9, 21, 4, 25, 27, 8])
OTHER = 30  # a token that no prompt has


def set_scores(model, size):
    """Give the scores of the untrained model the size that a trained one's can have."""
    width = model.embedding.embedding_dim
    scale = {"large": 160.0}.get(size, 1.7)
    for qkv in model.qkv:
        qkv.weight[: 2 * width] *= scale
        # With values of half the size, bfloat16's own error stays below what float16 explains.
        qkv.weight[2 * width :] *= 0.5
    if size == "low":
        # A key's bias adds the same to all scores of a query: softmax does not see it. For the
        # padding's query it is about -35, and float16 ends 16 below its smallest number.
        first = model.qkv[0]
        key_bias = first.bias[width : 2 * width].normal_(std=2)
        model.embedding.weight[PAD] = -first.weight[:width].T @ key_bias


def prepare(setting, device, dtype):
    model = Decoder(CONSTANTS[setting["constant"]])
    with torch.no_grad():
        set_scores(model, setting["scores"])
    tokens, keep = padded(PROMPTS, setting["padding"])
    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=model.to(device, dtype),
        batch={"tokens": tokens.to(device), "keep": keep.to(device)},
        step=step,
        keep=keep,
    )


def with_other_masked(run):
    """The output, each position with other tokens in place of all that it may not see."""
    tokens, columns = run.batch["tokens"], []
    padding = ~run.keep.to(tokens.device)
    for last in range(tokens.shape[1]):
        masked = padding.clone()
        masked[:, last + 1 :] = True
        batch = {**run.batch, "tokens": tokens.masked_fill(masked, OTHER)}
        columns.append(run.step(run.model, batch)[:, last])
    return torch.stack(columns, dim=1)


def costs(run, output):
    """Gradients of what is kept, and whether what is masked leaks into it."""
    kept = output[run.keep]
    if not torch.isfinite(kept).all():
        return []  # the lab says so; nothing else can then be measured
    if kept.requires_grad:
        kept.float().square().mean().backward()
    found = gradient_costs(run.model)
    with torch.no_grad():
        other = with_other_masked(run)
    if not torch.equal(other[run.keep], kept):
        moved = show(relative_error(other, output, run.keep))
        found.append(cost("leak", f"what is masked leaks: other tokens there move it by {moved}"))
    return found


CASE = Case(
    name="mask_overflow",
    title="An attention mask that overflows in half",
    notebook="07_mask_overflow.ipynb",
    headline=Silent(
        "NaN in float16 with padded prompts; float32 is fine",
        ("not_finite", "gradients", "leak"),
        ("torch-2.2", "torch-2.3", "torch-2.4", "torch-2.6", "torch-2.9", "torch-2.13",
         "torch-2.14"),
    ),
    factors=(
        Factor("constant", tuple(CONSTANTS), "what is added where a position may not look; min is "
                                             "float32's smallest number"),
        Factor("padding", ("left", "right"), "the side on which short prompts are filled up"),
        Factor("scores", ("low", "near 0", "large"), "low: below -16 for the padding's queries; "
                                                     "large: q @ k past 65504"),
        Factor("dtype", ("float16", "bfloat16"), "the dtype of the model, and so of the mask"),
    ),
    fixes=fixes(
        article=(
            fix.smaller_constant,
            fix.finfo_min,
            fix.minus_inf,
            fix.clamp_scores,
            fix.softmax_float32,
            fix.nan_to_num,
            fix.zero_after_softmax,
            fix.scale_query_first,
            fix.sdpa_bool_mask,
            fix.use_bfloat16,
        ),
        ours=(fix.see_itself,),
    ),
    prepare=prepare,
    # Padded on the right, with scores near 0, nothing overflows.
    controls=lambda setting: [{**setting, "padding": "right", "scores": "near 0"}],
    costs=costs,
)
