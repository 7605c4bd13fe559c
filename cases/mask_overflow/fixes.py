"""Remedies for a mask that overflows. Each changes a prepared run before its forward pass."""

import math

import torch
import torch.nn.functional as F


def smaller_constant(run):
    """Mask with -1e4, which float16 can hold."""
    run.model.constant = -1e4


def finfo_min(run):
    """Mask with the smallest number of the dtype in use: torch.finfo(dtype).min."""
    run.model.constant = torch.finfo(run.model.embedding.weight.dtype).min


def minus_inf(run):
    """Mask with -inf, which every dtype has."""
    run.model.constant = float("-inf")


def clamp_scores(run):
    """Clamp the masked scores to the range of their dtype."""
    weights = run.model.weights

    def clamped(scores, mask):
        range_of = torch.finfo(scores.dtype)
        return weights((scores + mask).clamp(range_of.min, range_of.max), torch.zeros_like(mask))

    run.model.weights = clamped


def softmax_float32(run):
    """Add the mask and take the softmax in float32; cast the weights back."""
    weights = run.model.weights
    run.model.weights = lambda scores, mask: (
        weights(scores.float(), mask.float()).to(scores.dtype))


def nan_to_num(run):
    """Replace NaN by 0 after the softmax."""
    weights = run.model.weights
    run.model.weights = lambda scores, mask: torch.nan_to_num(weights(scores, mask))


def zero_after_softmax(run):
    """Set the weights of what is masked to 0 after the softmax, with torch.where."""
    weights = run.model.weights
    run.model.weights = lambda scores, mask: torch.where(mask < 0, 0.0, weights(scores, mask))


def scale_query_first(run):
    """Scale the query before its product with the keys, not the product after."""
    run.model.scores = lambda q, k: (q / math.sqrt(q.shape[-1])) @ k.transpose(1, 2)


def sdpa_bool_mask(run):
    """Use F.scaled_dot_product_attention with a boolean mask, True where a position may look."""
    run.model.attend = lambda q, k, v, mask: F.scaled_dot_product_attention(
        q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), attn_mask=(mask == 0).unsqueeze(1)
    ).squeeze(1)


def use_bfloat16(run):
    """Load the model in bfloat16."""
    run.model.bfloat16()


def see_itself(run):
    """Let every position see itself, padding too: then no row is masked whole."""
    mask = run.model.mask

    def opened(keep):
        itself = torch.eye(keep.shape[1], dtype=torch.bool, device=keep.device)
        return mask(keep).masked_fill(itself, 0.0)

    run.model.mask = opened
