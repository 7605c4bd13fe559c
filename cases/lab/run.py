"""Run a case and say what happened: outcome, verdict, costs."""

import copy
import importlib.util
import itertools
import random
import types
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from cases.halftruths.base import BadInput
from cases.halftruths.dtypes import dtype_name
from cases.halftruths.exceptions.answer import autopsy
from cases.halftruths.messages.words import same_error
from cases.lab import evidence, numerics, torches
from cases.lab.case import Missing
from cases.lab.outcome import Outcome


@contextmanager
def steady():
    """One thread, quiet warnings, and the random state and switches of torch put back after.

    Sums over several threads come out differently from run to run. On a GPU, convolutions in
    float32 would use TF32, 10 bits of mantissa, and the float32 reference must be float32.
    """
    threads, gpu = torch.get_num_threads(), torch.cuda.is_available()
    tf32 = gpu and torch.backends.cudnn.allow_tf32
    state = torch.get_rng_state(), random.getstate()
    fastpath = getattr(torch.backends, "mha", None)
    enabled = fastpath.get_fastpath_enabled() if fastpath else None
    torch.set_num_threads(1)
    if gpu:
        torch.backends.cudnn.allow_tf32 = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state[0])
        random.setstate(state[1])
        if fastpath:
            fastpath.set_fastpath_enabled(enabled)
        if gpu:
            torch.backends.cudnn.allow_tf32 = tf32


# Devices that cases.lab.emulate stands in for at the moment, and its file, which is no part of a
# program's traceback. Outcomes on them are labelled so.
EMULATED = {}


def check_device(device):
    """Raise BadInput unless this torch can run on `device`."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"unknown device {device!r}; allowed: cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available() and device not in EMULATED:
        raise BadInput("device 'cuda' asked for, but this torch sees no GPU; allowed: cpu")


def check_needs(case):
    """Raise Missing if a package that the case is about is not installed here."""
    for package in case.needs:
        if importlib.util.find_spec(package) is None:
            raise Missing(
                f"case {case.name} needs {package}, which the Python that holds torch "
                f"{torch.__version__} lacks"
            )


_pristine = {}


def prepare(case, setting, device="cpu", reference=False):
    """Return a fresh Run of the program: the same weights and batch at each call.

    reference: prepare the float32 twin instead.
    """
    key = (case.name, tuple(setting.items()), device, reference)
    if key not in _pristine:
        check_device(device)
        check_needs(case)
        torch.manual_seed(0)
        dtype = torch.float32 if reference else getattr(torch, setting["dtype"])
        _pristine[key] = case.prepare(dict(setting), device, dtype)
    return copy.deepcopy(_pristine[key])


def optimizer_of(run):
    return run.optimizer(p for p in run.model.parameters() if p.requires_grad)


def train_step(run, optimizer):
    """One step of plain training; returns the output and the loss."""
    optimizer.zero_grad()
    output = run.step(run.model, run.batch)
    loss = run.loss(output, run.batch)
    loss.backward()
    for change in run.after_backward:
        change(run.model)
    optimizer.step()
    return output, loss


def call(run):
    """Do what the phase asks for, once, and return the output tensor. May raise anything."""
    torch.manual_seed(1)
    if not run.training:
        return run.step(run.model, run.batch)
    return train_step(run, optimizer_of(run))[0]


def train(run):
    """Train for numerics.TRAINING_STEPS steps; return losses and the share of lost updates.

    An update is lost where the gradient is not zero and the weight did not change.
    """
    torch.manual_seed(1)
    optimizer, losses, lost, all_updates = optimizer_of(run), [], 0, 0
    for step in range(numerics.TRAINING_STEPS + 1):
        first = [p.detach().clone() for p in run.model.parameters()] if step == 0 else None
        losses.append(float(train_step(run, optimizer)[1].detach()))
        for old, new in zip(first or (), run.model.parameters(), strict=False):
            if new.grad is not None and old.dtype == new.dtype:
                wanted = new.grad != 0
                all_updates += int(wanted.sum())
                lost += int((wanted & (old == new.detach())).sum())
    return {"losses": losses, "lost": lost / max(all_updates, 1)}


_facts = {}


def remembered(kind, case, setting, device, make):
    """Measure once per program: references, controls and unfixed outcomes do not change."""
    key = (kind, case.name, tuple(setting.items()), device)
    if key not in _facts:
        _facts[key] = make()
    return _facts[key]


def reference_output(case, setting, device):
    """Output of the same model in float32; on the CPU where the device is emulated."""
    real = "cpu" if device in EMULATED else device
    return remembered(
        "reference", case, setting, real,
        lambda: call(prepare(case, setting, real, reference=True)).detach(),
    )


def expected_dtypes(case, setting, device):
    """Dtypes that the program returns where it does not fail: measured on its controls.

    Where no control runs on this torch, the dtype that the program asks for.
    """

    def measure():
        seen = set()
        for control in case.controls(dict(setting)):
            try:
                seen.add(call(prepare(case, control, device)).dtype)
            except Exception:
                continue
        return seen or {getattr(torch, setting["dtype"])}

    return remembered("controls", case, setting, device, measure)


def reference_training(case, setting, device):
    """Losses of the same training in float32; None where nothing is trained."""

    def measure():
        run = prepare(case, setting, device, reference=True)
        return train(run) if run.training else None

    return remembered("training", case, setting, device, measure)


def parameters_before(case, setting, device):
    """Parameters of the program before any fix; see cases.lab.numerics.parameters."""
    return remembered(
        "parameters", case, setting, device,
        lambda: numerics.parameters(prepare(case, setting, device).model),
    )


def fixed_run(case, setting, fixes, device):
    """A fresh Run with `fixes` applied, and the names of those that chose no other torch."""
    run, here = prepare(case, setting, device), []
    for fix in fixes:
        before = run.torch_id
        fix.apply(run)
        if run.torch_id == before:
            here.append(fix.name)
    return run, here


def measure(case, setting, fixes, device, training):
    """Run the program with `fixes`; return an Outcome without a verdict.

    Where a fix chose another torch the Outcome is that torch's: live, or recorded.
    """
    outcome = Outcome(
        case=case.name,
        factors=dict(setting),
        fixes=[fix.name for fix in fixes],
        device=device,
        torch=torch.__version__,
        status="raised",
        provenance="emulated" if device in EMULATED else "live",
    )
    try:
        # Before the fixes, for a fix may flip a switch of the whole process. Inside the try, for
        # a library may refuse to build the model on this torch, and that is an outcome too.
        reference = reference_output(case, setting, device)
        expected = expected_dtypes(case, setting, device)
        reference_trained = reference_training(case, setting, device) if training else None
        before = parameters_before(case, setting, device)
        run, here = fixed_run(case, setting, fixes, device)
        if run.torch_id is None:
            output = call(run)
            if not isinstance(output, torch.Tensor):
                raise TypeError(f"the program returned {type(output).__name__}, not a tensor")
            twin = fixed_run(case, setting, fixes, device)[0] if training and run.training else None
            trained = train(twin) if twin else None
    except Missing:
        raise
    except Exception as error:
        outcome.error = {"type": type(error).__name__, "message": str(error).strip()}
        outcome.where = where_of(error, case.folder, EMULATED.get(device))
        return outcome
    if run.torch_id is not None:
        # Outside the try: an interpreter that is missing or dies is not the program's outcome.
        outcome = ask(case, setting, here, device, run.torch_id, training)
        return replace(outcome, fixes=[fix.name for fix in fixes])
    outcome.status = "ran"
    outcome.output_dtype = dtype_name(output.dtype)
    error = numerics.relative_error(output, reference, run.keep)
    outcome.relative_error = numerics.one_digit(error)
    outcome.costs = numerics.parameter_costs(before, numerics.parameters(run.model))
    outcome.costs += numerics.output_costs(output, error, reference, run.dtype, expected)
    if case.costs:
        outcome.costs += case.costs(run, output)
    if run.training:
        outcome.costs += numerics.gradient_costs(run.model)
    if trained:
        outcome.costs += numerics.training_costs(trained, reference_trained)
    return outcome


def where_of(error, folder, plumbing=None):
    """Where an error was raised, and where its odd dtype came in: what the autopsy says of it.

    Of the traceback it is given what is the program's: from the first frame in `folder` on, and
    without the frames of the file `plumbing` and what they called. Files are told by their names
    alone, for an outcome is the same wherever the project lies. Of a tensor's layout, which the
    autopsy tells too, an outcome has nothing.
    """
    start = whole = error.__traceback__
    while start is not None and Path(start.tb_frame.f_code.co_filename).parent != folder:
        start = start.tb_next
    where = autopsy(error.with_traceback(above(start or whole, plumbing))).where
    for operand in where["operands"] if where else ():
        operand.pop("layout", None)
    if where and where["origin"]:
        where["origin"]["file"] = Path(where["origin"]["file"]).name
    return where


def above(traceback, file):
    """A traceback without the frames of a file, and without all that those called."""
    if traceback is None or traceback.tb_frame.f_code.co_filename == file:
        return None
    return types.TracebackType(above(traceback.tb_next, file), traceback.tb_frame,
                               traceback.tb_lasti, traceback.tb_lineno)


def judge(outcome, baseline):
    """Return the verdict of `outcome` against the same program without fixes."""
    if outcome.status == "raised":
        if baseline.status == "raised" and same_error(outcome.error, baseline.error):
            return "fails"
        return "moves"
    return "costs" if outcome.costs else "runs"


def run(case, setting=None, fixes=(), device="cpu", training=True):
    """Run `case` once, live in this process, and return its Outcome.

    setting: {factor: value}; factors left out take their first value.
    fixes: names, or functions of a Run; names are applied in the case's order.
    training: also measure what a few dozen optimizer steps show (phase train only). Slower.
    Raises BadInput for a factor, value, fix or device that does not exist.
    """
    setting, fixes = case.setting(setting), case.pick(fixes)
    check_device(device)
    with steady():
        baseline = remembered(
            f"baseline training={training}", case, setting, device,
            lambda: measure(case, setting, (), device, training),
        )
        if fixes:
            outcome = measure(case, setting, fixes, device, training)
            outcome.verdict = judge(outcome, baseline)
        else:
            outcome = copy.deepcopy(baseline)
            outcome.verdict = "fails" if outcome.status == "raised" else judge(outcome, baseline)
    return outcome


def ask(case, setting=None, fixes=(), device="cpu", torch_id=None, training=True):
    """Return the Outcome of `case` on `torch_id` (None or "current": this process's torch).

    Where that torch is not live here the outcome comes from evidence and is labelled recorded.
    Raises BadInput for anything that does not exist, or was not recorded.
    """
    if torch_id in (None, "current", torches.current()):
        return run(case, setting, fixes, device, training)
    torches.check_id(torch_id)
    setting, names = case.setting(setting), [fix.name for fix in case.pick(fixes)]
    if torches.is_live(torch_id):
        return torches.ask(torch_id, case.name, setting, names, device, training)
    if device not in ("cpu", "cuda"):
        check_device(device)
    return evidence.find(case, setting, names, torch_id, device)


def known_torches(case):
    """Ids of the torches that `case` can be asked on: live here, or with evidence."""
    return [
        torch_id
        for torch_id in torches.ids()
        if torches.is_live(torch_id) or evidence.recorded(case, torch_id)
    ]


def subsets(names, most=None):
    """Yield every subset of `names` as a tuple, small ones first, up to `most` members."""
    most = len(names) if most is None else most
    for size in range(most + 1):
        yield from itertools.combinations(names, size)


def smallest_sufficient(ask, names, most=2, cured=lambda outcome: outcome.status == "ran"):
    """Return the smallest sets of fixes that make the failure go away.

    ask: function of a tuple of fix names that returns an Outcome; None says: not sufficient.
    cured: says whether an Outcome is free of the failure; see cases.lab.case.Case.cured.
    A set is listed only if none of its parts is sufficient. Traps are the caller's to leave out.
    """
    found = []
    for subset in subsets(names, most):
        if subset and not any(set(smaller) <= set(subset) for smaller, _ in found):
            outcome = ask(subset)
            if outcome and cured(outcome):
                found.append((subset, outcome))
    return found
