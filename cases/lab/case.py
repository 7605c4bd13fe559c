"""What a case is: factors to vary, fixes to try, and a program prepared to run once."""

import ast
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from cases.halftruths.base import BadInput

DTYPES = {name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64")}


class Missing(BadInput):
    """This interpreter lacks what the case needs, such as a package that it is about."""


@dataclass(frozen=True)
class Factor:
    """A knob of the experiment. The first value is the one the report speaks of."""

    name: str
    values: tuple
    help: str


@dataclass(frozen=True)
class Fix:
    """A remedy: a function that changes a prepared Run before its forward pass.

    `origin` says whose it is: "article" (advice found in the wild), "ours", or "trap".
    """

    apply: Callable
    origin: str

    @property
    def name(self):
        return self.apply.__name__

    @property
    def help(self):
        return (self.apply.__doc__ or "").strip().splitlines()[0] if self.apply.__doc__ else ""

    @property
    def needs_gpu(self):
        """True if what it does depends on a GPU being there; the gate then looks less closely."""
        return getattr(self.apply, "needs_gpu", False)

    @property
    def source(self):
        """The text of the function: this is what a reader reads and copies."""
        return inspect.getsource(self.apply)


@dataclass
class Run:
    """A program prepared to run once. Fixes change it; then it is called.

    model: the nn.Module, as the program holds it just before the forward pass.
    batch: dict of what the program is fed; tensors and plain values.
    step: `step(model, batch) -> tensor`, the forward pass as model.py does it.
    loss: `loss(output, batch) -> scalar`, for phase train; None where nothing is trained.
    optimizer: `optimizer(parameters) -> torch.optim.Optimizer`, likewise.
    after_backward: functions of the model, called between backward and the optimizer's step.
    keep: bool tensor over the output's leading dimensions, False at padding; None keeps all.
    torch_id: another interpreter to run in (see env/torches.toml); None is this one.
    """

    setting: dict
    device: str
    dtype: torch.dtype
    model: torch.nn.Module
    batch: dict
    step: Callable
    loss: Callable | None = None
    optimizer: Callable | None = None
    after_backward: list = field(default_factory=list)
    keep: torch.Tensor | None = None
    torch_id: str | None = None

    @property
    def training(self):
        return self.setting.get("phase") == "train" and self.loss is not None


@dataclass(frozen=True)
class Headline:
    """The error people meet: its type, its text, and the torches on which it is really raised."""

    type: str
    text: str
    torches: tuple

    @property
    def wanted(self):
        """What `met_by` asks for, in words."""
        return f"raise {self.type} with {self.text!r}"

    def met_by(self, outcome):
        """True if `outcome` is this very error."""
        return (outcome.status == "raised" and outcome.error["type"] == self.type
                and self.text in outcome.error["message"])


@dataclass(frozen=True)
class Silent:
    """A failure that no message announces: the program runs, and what it returns is wrong.

    text: what people say of it. kinds: the kinds of costs by which the wrong number shows; one
        is enough. torches: on which it really happens.
    """

    text: str
    kinds: tuple
    torches: tuple

    @property
    def wanted(self):
        """What `met_by` asks for, in words."""
        return f"run and have a cost of kind {' or '.join(self.kinds)}"

    def met_by(self, outcome):
        """True if `outcome` ran and has the wrong number."""
        return outcome.status == "ran" and any(c["kind"] in self.kinds for c in outcome.costs)


@dataclass(frozen=True)
class Case:
    """One failure people really hit.

    prepare: `prepare(setting, device, dtype) -> Run`. `dtype` is the setting's own, or float32
        for the reference: the same weights and batch, nothing in low precision.
    controls: `controls(setting) -> [setting, …]`, near programs that do not fail. Their output
        dtype, measured, is what an output dtype is judged by. A control may use a value that
        no factor offers, such as "none" for the part that goes wrong.
    watch: file names (ends of paths) whose lines the road is drawn from, besides model.py.
    surveys: ((name, "module:function"), …), more to record than outcomes. `function(device)`
        returns {part: [item, …]} in JSON, the same at each call; it runs in any torch.
    costs: `costs(run, output) -> [cost, …]`, measured on the program that just ran: what the
        case alone can see, such as attention to what is masked. See cases.lab.numerics.cost.
    """

    name: str
    title: str
    notebook: str
    headline: Headline | Silent
    factors: tuple
    fixes: tuple
    prepare: Callable
    controls: Callable
    needs: tuple = ()
    watch: tuple = ()
    surveys: tuple = ()
    costs: Callable | None = None

    def cured(self, outcome):
        """True if the program ran, and without the wrong number if the failure is a silent one."""
        return outcome.status == "ran" and not self.headline.met_by(outcome)

    @property
    def folder(self):
        return Path(inspect.getfile(self.prepare)).parent

    @property
    def model_source(self):
        return (self.folder / "model.py").read_text(encoding="utf-8")

    @property
    def digest(self):
        """Hash of the program and its fixes, so that evidence older than them shows.

        Not of the headline's torches: they are typed after the evidence, which tells them.
        """
        texts = [(self.folder / name).read_text("utf-8") for name in ("model.py", "fixes.py")]
        texts.append(without_torches((self.folder / "case.py").read_text("utf-8")))
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

    def setting(self, chosen=None):
        """Return a whole setting: `chosen` over the defaults, in the factors' order.

        Raises BadInput for a factor or value that the case does not have.
        """
        chosen = dict(chosen or {})
        whole = {}
        for factor in self.factors:
            value = str(chosen.pop(factor.name, factor.values[0]))
            if value not in factor.values:
                raise BadInput(
                    f"unknown value {value!r} for factor {factor.name!r} of case {self.name}; "
                    f"allowed: {', '.join(factor.values)}"
                )
            whole[factor.name] = value
        if chosen:
            raise BadInput(
                f"unknown factor {next(iter(chosen))!r} of case {self.name}; "
                f"allowed: {', '.join(factor.name for factor in self.factors)}"
            )
        return whole

    def pick(self, fixes=()):
        """Return the fixes named (or given as functions), in the case's order, each once.

        The order is the case's, not the caller's, so that a set of fixes has one outcome.
        Raises BadInput for a name that the case does not have.
        """
        names, own = [], []
        for fix in fixes:
            if isinstance(fix, str):
                names.append(fix)
            else:
                own.append(fix if isinstance(fix, Fix) else Fix(fix, "yours"))
        known = [fix.name for fix in self.fixes]
        for name in names:
            if name not in known:
                raise BadInput(
                    f"unknown fix {name!r} of case {self.name}; allowed: {', '.join(known)}"
                )
        return tuple(fix for fix in self.fixes if fix.name in names) + tuple(own)


def without_torches(source):
    """A case.py's text, but its headline without torches, and on one line."""
    for call in ast.walk(ast.parse(source)):
        if (isinstance(call, ast.Call)
                and getattr(call.func, "id", "") in (Headline.__name__, Silent.__name__)):
            written = ast.get_source_segment(source, call)
            call.args = call.args[:2]  # torches are the third field of both
            call.keywords = [given for given in call.keywords if given.arg != "torches"]
            source = source.replace(written, ast.unparse(call))
    return source


def fixes(article=(), ours=(), trap=()):
    """Return Fix objects in the order in which a case shows them."""
    groups = (("article", article), ("ours", ours), ("trap", trap))
    return tuple(Fix(function, origin) for origin, group in groups for function in group)
