"""`%autopsy` in a notebook, after a cell that raised: `%load_ext halftruths` brings it."""

import sys


def load(ip):
    """Register `%autopsy` with an IPython shell."""

    def autopsy(line):
        """Explain the last exception of a cell: which module, which operand, where it came in."""
        from .exceptions.answer import autopsy as explained

        # Every Python and IPython sets the first; Python 3.12 added the second, to replace it.
        error = getattr(sys, "last_value", None) or getattr(sys, "last_exc", None)
        # A UsageError would take the place of the last exception.
        if line.strip():
            print(f"%autopsy takes no arguments, not {line.strip()!r}; allowed: %autopsy alone, or "
                  "halftruths.autopsy(error) for an exception that was caught", file=sys.stderr)
        elif error is None:
            print("%autopsy has nothing to explain: no cell has raised an exception yet",
                  file=sys.stderr)
        else:
            return explained(error)

    ip.register_magic_function(autopsy, "line")
