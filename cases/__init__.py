"""The catalogue: every case by name. A case is a folder beside this file.

Around them stand `halftruths` (the tools, published alone), `lab` (runs a case and remembers),
`notebook` (what a cell shows) and `advice` (checks of claims that belong to no case).
"""

import importlib

RECORDED = ("encoder_bf16", "llama_vision", "chatglm_prefix", "cpu_half", "lost_updates",
            "mask_overflow", "grad_scaler")
# Not yet recorded on every torch: tested as the others are, and in no index.
DRAFTS = ()
NAMES = RECORDED + DRAFTS


def load(name):
    """Return the Case in folder `name`; KeyError, naming what is allowed, if there is none."""
    if name not in NAMES:
        raise KeyError(f"unknown case {name!r}; allowed: {', '.join(NAMES)}")
    return importlib.import_module(f"cases.{name}.case").CASE
