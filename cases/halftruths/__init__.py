"""Half Truths, the tools: what an exception, or a message, tells about dtypes.

    import halftruths                      # in a checkout: from cases import halftruths
    print(halftruths.autopsy(error))       # an exception that was caught
    print(halftruths.explain("expected scalar type Half but found Float"))

Torch and the standard library are all that it needs; `explain` needs no torch. It knows no case.
"""


def autopsy(error):
    """Return what an exception tells about dtypes; see exceptions.answer. Never raises."""
    from .exceptions.answer import autopsy  # torch, which `explain` does without

    return autopsy(error)


def explain(text):
    """Return what a pasted message, traceback or log means; see messages.reader. No torch.

    Raises BadInput, a ValueError of one line, for what is empty, no text, or too long.
    """
    from .messages.reader import explain

    return explain(text)


def excepthook(kind, error, tb):
    """For `sys.excepthook`: Python's traceback, then the autopsy if it found something."""
    from .script import excepthook

    excepthook(kind, error, tb)


def load_ipython_extension(ip):
    """`%load_ext halftruths` brings `%autopsy`."""
    from .magic import load

    load(ip)
