"""What notebook 08 looks at: a loop step by step, its loss, and each mistake torch by torch."""

import torch

from cases.grad_scaler.case import CASE
from cases.grad_scaler.model import STEPS
from cases.lab.numerics import show
from cases.lab.outcome import label_of, verdict_of
from cases.lab.run import call, fixed_run, prepare, run, steady
from cases.notebook.exercise import Judgement, answered
from cases.notebook.history import NOT_KNOWN, columns, provenance
from cases.notebook.table import Table

# Steps that a table shows; the first is 1.
SHOWN = (1, 2, 3, 8, STEPS)
MISTAKES = CASE.factors[0].values


def watched(setting, fixes=(), device="cpu", reference=False):
    """Run the program; return a dict for each step: loss, scale, and two norms of the gradients.

    "clip" is the norm that clip_grad_norm_ found; "got" the one that the optimizer stepped with,
    None where the scaler skipped its step. The first three are the program's own log; the last is
    noted as the optimizer's step is called, and changes nothing.
    """
    with steady():
        setting = CASE.setting(setting)
        if reference:
            program = prepare(CASE, setting, device, reference=True)
        else:
            program, _ = fixed_run(CASE, setting, CASE.pick(fixes), device)
        optimizer, log, got = program.batch["optimizer"], program.batch["log"], {}
        step = optimizer.step

        def noted():
            norms = [p.grad.float().norm() for group in optimizer.param_groups
                     for p in group["params"] if p.grad is not None]
            got[len(log)] = float(torch.stack(norms).norm()) if norms else 0.0
            return step()

        optimizer.step = noted
        call(program)
    return [{"loss": loss, "scale": scale, "clip": norm, "got": got.get(number)}
            for number, (loss, norm, scale) in enumerate(log, start=1)]


def log_table(setting, fixes=(), device="cpu"):
    """What the loop did, step by step, as a Table."""
    steps = watched(setting, fixes, device)
    names = [getattr(fix, "__name__", fix) for fix in fixes]
    title = " with ".join([CASE.setting(setting)["mistake"]] + [" + ".join(names)] * bool(names))
    return Table(f"{title}, step by step (live, torch {torch.__version__.split('+')[0]}, {device})",
                 ("step", "loss", "scale", "norm that clip finds", "norm the optimizer gets"),
                 [(number, *cells(steps[number - 1])) for number in SHOWN])


def cells(step):
    """A step as text: loss, scale, the norm before the clipping, the norm in the end."""
    got = "skipped" if step["got"] is None else show(step["got"])
    return one(step["loss"]), f"{step['scale']:g}", one(step["clip"]), got


def one(number):
    """One significant digit; nan stays nan."""
    return show(number) if number == number else "nan"


def curves(device="cpu"):
    """Losses of the same training, {name: (dtype, [loss, …])}: what notebook.figures draws."""
    wanted = {
        "no mixed precision": ("float32", {}, (), True),
        "unscale_, then clip": ("float16", {}, ("unscale_before_clip",), False),
        "clip, then unscale_": ("float16", {}, (), False),
        "no scaler": ("float16", {"mistake": "no_scaler"}, (), False),
    }
    return {name: (dtype, [step["loss"] for step in watched(setting, fixes, device, reference)])
            for name, (dtype, setting, fixes, reference) in wanted.items()}


def tried(tries, setting, device="cpu"):
    """What fixes do to other mistakes than the setting's: {mistake: [fix, …]} as a Table."""
    rows = []
    for mistake, names in tries.items():
        for name in names:
            outcome = run(CASE, {**setting, "mistake": mistake}, [name], device, training=False)
            rows.append((mistake, name, verdict_of(CASE, outcome), outcome.said))
    return Table(f"One fix each ({label_of(outcome)})",
                 ("mistake", "fix", "verdict", "what it did"), rows)


def across():
    """Each mistake in each dtype, on every torch there is an answer from, as a Table."""
    found, rows = columns(CASE), []
    for mistake in MISTAKES:
        for dtype in CASE.factors[1].values:
            setting = CASE.setting({"mistake": mistake, "dtype": dtype})
            rows.append((mistake, dtype, *(sign(column.ask(CASE, setting, ()))
                                           for column in found)))
    return Table("Each mistake, torch by torch: ✓ learns as float32 does, ✗ is wrong without a "
                 f"word, ! raises. {provenance(found)}",
                 ("mistake", "dtype", *(column.head for column in found)), rows)


def sign(outcome):
    """✓, ✗ or ! for an Outcome; see `across`."""
    if outcome is None:
        return NOT_KNOWN
    return "!" if outcome.status == "raised" else "✓" if CASE.cured(outcome) else "✗"


# Three loops that raise nothing, and what is wrong with each.
PATIENTS = {
    "A": ({"mistake": "no_gradients"}, ("scaler_off",)),
    "B": ({"mistake": "no_scaler"}, ()),
    "C": ({"mistake": "overflow"}, ()),
}


def patients(device="cpu"):
    """The logs of three loops that raise nothing, as a Table."""
    rows = []
    for name, (setting, fixes) in PATIENTS.items():
        steps = watched(setting, fixes, device)
        rows += [(name, number, *cells(steps[number - 1])) for number in SHOWN]
    return Table("Three loops in float16, step by step",
                 ("loop", "step", "loss", "scale", "norm that clip finds",
                  "norm the optimizer gets"), rows)


def diagnose(answers):
    """Compare a reader's three answers, names of mistakes, with what is wrong with A, B and C.

    Returns a Judgement; never raises for what the function does.
    """
    texts, trouble = answered(answers, len(PATIENTS))
    if trouble:
        return Judgement(False, [trouble])
    unknown = [text for text in texts if text not in MISTAKES]
    if unknown:
        return Judgement(False, [f"Unknown: {', '.join(unknown)}. Allowed: {', '.join(MISTAKES)}."])
    right = [text == setting["mistake"] for text, (setting, _) in
             zip(texts, PATIENTS.values(), strict=True)]
    return Judgement(all(right), [
        f"{name}. {text}: {'yes' if true else 'no, look at its log again'}."
        for name, text, true in zip(PATIENTS, texts, right, strict=True)])
