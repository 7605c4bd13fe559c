"""A function whose frame is gone: its source, and what is known of its arguments."""

import ast

from . import frames
from .bindings import own_nodes, positional
from .values import MISSING


class Function(frames.Site):
    """A function whose frame is gone, read from its source: what it returns, not what it held."""

    def __init__(self, function, owner, parent, call):
        code = function.__code__
        first = code.co_varnames[0] if code.co_argcount else None
        known = {first: owner} if owner is not MISSING and first else {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                known[name] = cell.cell_contents
            except ValueError:
                pass
        super().__init__(code.co_filename, code.co_firstlineno, code.co_name, code,
                         (known, function.__globals__), parent)
        self.call = call  # node in the parent, and the line of its statement
        self.bound = owner is not MISSING
        self.line = float("inf")

    def ends(self):
        """Return what it returns or yields, as [(node, line)], in the order of the source."""
        source = frames.scope(self)
        if source is None:
            return []
        if isinstance(source, ast.Lambda):
            return [(source.body, source.body.lineno)]
        return [(node.value, node.lineno) for node in own_nodes(source)
                if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]


def left_over(site):
    """How many arguments the *args of a function whose frame is gone took; None if not known."""
    call = site.call[0] if isinstance(site, Function) and site.call else None
    if call is None or any(isinstance(part, ast.Starred) for part in call.args):
        return None
    return max(len(call.args) + site.bound - len(positional(frames.scope(site))), 0)
