"""What torch's messages say, for the reader of exceptions: which kind of failure their words name.

The message reader's rules.toml knows many more kinds; tests/halftruths/test_kinds.py holds that
the two do not contradict each other. Here only text is looked at, and no file is read.
"""

import re

import torch

from ..dtypes import CASTS

ABOUT_DTYPES = re.compile(
    r"\b(?:d?types?|scalar types?|data ?types?|float\d*|half|b?float16|double|long|int\d*|"
    r"precision|overflow|fp16|integral|tensors used as indices)\b|BFloat|Half|Double|ComplexFloat",
    re.IGNORECASE)
NOT_DTYPES = re.compile(r"modified by an inplace operation|graph a second time|"
                        r"does not require grad|shapes? .*cannot be multiplied|size mismatch|"
                        r"must match the size|"
                        r"index out of range|out of bounds|is invalid for input of size|"
                        r"Expected all tensors to be on the same device", re.IGNORECASE)
NO_KERNEL = re.compile(r"not implemented for '(\w+)'|[Ll]ow precision dtypes not supported\. Got "
                       r"(\w+)|Unsupported dtype (\w+)|must be either (float or double) dtype")
# A list of what is allowed names dtypes that no operand has; what was met follows "got".
ALLOWED = re.compile(r"only support|supported for|must be (?:either|one)|one of the|to be bool or|"
                     r"is not supported|could not infer output dtype|floating[- ]point d?type",
                     re.IGNORECASE)
MET = (re.compile(r"attn_mask\.dtype: (?:c10::)?(\w+)"), re.compile(
    r"(?:got:?|found|with an?|dtype is:) (?:a tensor (?:with dtype|of scalar type:) )?"
    r"(?:c10::|torch\.)?(\w+)",
    re.IGNORECASE))
HOOK = re.compile(r"hook '?(\w+)'? has changed the (?:type|dtype)|hook .* returned", re.IGNORECASE)
OVERFLOW = re.compile(r"cannot be converted to type (?:at::|c10::)?(\w+) without overflow")
RESULT = re.compile(r"can't be cast to the desired output type (\w+)|"
                    r"expected condition to be a boolean tensor")
INTEGRAL = re.compile(r"(\w+) must be integral")
INDICES = re.compile(r"scalar types: Long, Int|must be integral|tensors used as indices must be|"
                     r"expected scalar type Long but found|"
                     r"Expected (?:dtype )?int(?:32|64).*for index|index.*must be.*(?:int|long)|"
                     # The kernel is named for the scores; only one that ends so for the places.
                     r"\"\w*nll_loss\w*\" not implemented for '(?:Int|Float|Double)'|"
                     r"\"\w*nll_loss\w*index\" not implemented for '(?:B?Float16|Half)'|"
                     r"expected target.* Long", re.IGNORECASE)
SCALER = {
    "Attempting to unscale FP16 gradients":
        "GradScaler wants float32 weights: it unscales float32 gradients only.",
    "No inf checks were recorded":
        "scaler.step found no gradient: no backward reached the parameters of this optimizer.",
    "unscale_() has already been called":
        "scaler.unscale_ was called twice for one optimizer between two calls of scaler.update().",
    "unscale_() is being called after step()":
        "scaler.unscale_ comes before scaler.step, once.",
    "scale_() has already been called": "the loss was scaled twice.",
}
DTYPES = {word: getattr(torch, name) for word, name in CASTS.items()}


def about_dtypes(message):
    """True if a message may be about dtypes."""
    return bool(ABOUT_DTYPES.search(message)) and not NOT_DTYPES.search(message)


def scaler(message):
    """What a message of GradScaler's means, in a sentence; None for any other message."""
    return next((meaning for words, meaning in SCALER.items() if words in message), None)


def refused(message):
    """Name of the dtype that an op would not take, as the message has it; or None."""
    if found := NO_KERNEL.search(message):
        return next(filter(None, found.groups()))
    names = [found[1] for met in MET if (found := met.search(message))]
    names = [name for name in names if name.lower() in DTYPES]
    if not names or not ALLOWED.search(message):
        return None
    # That two dtypes must match is no list of what is allowed.
    alike = re.search(r"match|same", message)
    return None if alike and DTYPES[names[0].lower()].is_floating_point else names[0]


def kind_of(message):
    """The kind of failure that the words alone name; None where they name none.

    "scaler", "overflow", "result", "indices", "refused", "hook" or "mismatch", in the order in
    which the reader of exceptions asks.
    """
    asked = (("scaler", scaler), ("overflow", OVERFLOW.search), ("result", RESULT.search),
             ("indices", INDICES.search), ("refused", refused), ("hook", HOOK.search),
             ("mismatch", about_dtypes))
    return next((kind for kind, says in asked if says(message)), None)
