"""The catalogue, every case by name; and the autopsy's ways in, for code and for notebooks."""

import importlib

NAMES = ("encoder_bf16", "llama_vision", "chatglm_prefix", "cpu_half")


def load(name):
    """Return the Case in folder `name`; KeyError, naming what is allowed, if there is none."""
    if name not in NAMES:
        raise KeyError(f"unknown case {name!r}; allowed: {', '.join(NAMES)}")
    return importlib.import_module(f"cases.{name}.case").CASE


def autopsy(error):
    """Return what an exception tells about dtypes; see cases.lab.autopsy. Never raises."""
    from cases.lab.autopsy import autopsy  # torch, which `explain` does without

    return autopsy(error)
