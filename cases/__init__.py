"""The catalogue, every case by name; and the autopsy's ways in, for code and for notebooks."""

import importlib

NAMES = ("encoder_bf16", "llama_vision", "chatglm_prefix", "cpu_half", "lost_updates",
         "mask_overflow", "grad_scaler")


def load(name):
    """Return the Case in folder `name`; KeyError, naming what is allowed, if there is none."""
    if name not in NAMES:
        raise KeyError(f"unknown case {name!r}; allowed: {', '.join(NAMES)}")
    return importlib.import_module(f"cases.{name}.case").CASE


def autopsy(error):
    """Return what an exception tells about dtypes; see cases.lab.autopsy. Never raises."""
    from cases.lab.autopsy import autopsy  # torch, which `explain` does without

    return autopsy(error)


def excepthook(kind, error, tb):
    """For `sys.excepthook`: Python's traceback, then the autopsy if it found something."""
    from cases.lab.script import excepthook

    excepthook(kind, error, tb)


def load_ipython_extension(ip):
    """`%load_ext cases` brings `%autopsy`."""
    from cases.lab.magic import load

    load(ip)
