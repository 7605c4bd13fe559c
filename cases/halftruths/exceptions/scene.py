"""What one reading looks at: the message, the frames, the expression that failed, its model."""

import ast
import re

from . import compiled, failures, frames, values, workers
from .bindings import is_rebound, positional
from .home import Household

BACKWARD = ("torch/autograd/graph.py", "torch/autograd/__init__.py")


def message_of(error):
    try:
        # Addresses say nothing, and differ from run to run.
        return re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)).strip()
    except Exception:
        return "(its message cannot be read)"


class Scene:
    """Where an exception was raised. It holds the user's objects, and goes with its reading.

    failure: None where no frame shows a tensor operation. away: raised in another process.
    parsed: False if Python could not read the source.
    """

    def __init__(self, message, sites, failure, away=False, parsed=True):
        self.message, self.sites, self.failure = message, sites, failure
        self.away, self.parsed = away, parsed
        self._house = None

    def at(self, failure):
        """The same with another Failure."""
        return Scene(self.message, self.sites, failure, self.away)

    @property
    def house(self):
        """The Household that the Failure's operands are compared with."""
        if self._house is None:
            self._house = Household(self.failure, self.sites)
        return self._house

    def odd_of(self, floats):
        """Return (odd Operand, dtype of the others, whether that is known, why) of Operands.

        The odd Operand is None where nothing tells. known: None if it is known where NumPy made it.
        """
        found = self.house.odd_of(floats)
        return found.operand, found.home, None if found.if_numpy else found.known, found.why

    @property
    def floats(self):
        """The floating dtypes of the Failure's operands."""
        return {o.dtype for o in self.failure.operands if failures.is_floating(o.dtype)}

    @property
    def users_site(self):
        """The innermost Site of the reader's own code; None without one."""
        return next((site for site in reversed(self.sites)
                     if site.mine and not failures.is_machinery(site)), None)

    def is_own_weight(self, tensor):
        """True for a parameter or buffer of the failing module itself."""
        module = self.failure.module
        return module is not None and any(
            held is tensor for _, held in values.own_tensors(module))


def scene_of(error):
    """The Scene of the exception in the chain that shows a tensor operation, or of the first."""
    first = None
    for raised in frames.chain(error):
        message, sites = message_of(raised), until_handed_on(frames.sites(raised))
        failure = (workers.failing(sites, message) or compiled.failing(sites)
                   or failures.failing(sites))
        if failure is not None:
            away = failure.site not in sites and failure.site.code is None
            return Scene(message, sites, closer(sites, failure), away)
        first = first or Scene(message, sites, None, parsed=not values.is_a(raised, SyntaxError))
    return first


def closer(sites, failure):
    """The Failure, or a call of torch's below it that was given no tensor: torch.full(…)."""
    site = sites[-1]
    node = frames.working(site) if site is not failure.site else None
    if site.mine and isinstance(node, ast.Call) and values.is_torch(
            values.look_up(node.func, site)):
        return failures.Failure(site, node, [], *failures.module_of(sites))
    return failure


def is_backward(site):
    """True for a frame of torch's that runs a backward pass.

    torch/_tensor.py is also where the __torch_function__ of every subclass lives.
    """
    file = site.filename.replace("\\", "/")
    return any(part in file for part in BACKWARD) or (
        file.endswith("torch/_tensor.py") and site.name == "backward")


def until_handed_on(sites):
    """The Sites without those at the end in which a subclass of Tensor handed the op on as it was.

    The op failed where it was called; `__torch_function__` only stands between it and torch.
    """
    last = len(sites)
    while last > 1 and hands_on(sites[last - 1]):
        last -= 1
    return sites[:last]


def hands_on(site):
    """True for a `__torch_function__` that was busy with the very call that it was asked for."""
    if site.name not in ("__torch_function__", "__torch_dispatch__"):
        return False
    source, call = frames.scope(site), frames.working(site)
    names = positional(source)
    if len(names) < 4 or not isinstance(call, ast.Call) or is_rebound(source, names[-2]):
        return False
    given = names[-2]  # (cls, func, types, args, kwargs)
    parts = [part.value if isinstance(part, ast.Starred) else part for part in call.args]
    return any(isinstance(part, ast.Name) and part.id == given for part in parts)
