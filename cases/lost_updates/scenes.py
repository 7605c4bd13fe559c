"""What notebook 06 looks at: steps that do not count, a sum over time, and three guesses judged."""

import torch

from cases.halftruths.dtypes import dtype_name
from cases.lab.case import DTYPES
from cases.lab.run import call, prepare, steady
from cases.notebook.exercise import SHOWN, Judgement
from cases.notebook.table import Table

LOW = ("float32", "float16", "bfloat16")


def least_step(weights, dtype):
    """The least that moves each of `weights` upwards in `dtype`: found by trying, and halving."""
    weights = torch.as_tensor(weights, dtype=torch.float64).to(dtype).double()
    little, enough = torch.zeros_like(weights), weights.clone()
    for _ in range(40):
        middle = (little + enough) / 2
        moves = (weights + middle).to(dtype).double() != weights
        little, enough = torch.where(moves, little, middle), torch.where(moves, middle, enough)
    return enough.tolist()


def least_steps(rate):
    """For figures.lines_picture: the least step that moves a weight, by the weight's size.

    rate: the step that an optimiser takes, drawn across.
    """
    sizes = [2 ** (place / 8) for place in range(-48, 49)]
    lines = {name: (sizes, least_step(sizes, DTYPES[name])) for name in LOW}
    shown = (1 / 64, 1 / 8, 1, 8, 64)
    steps = [least_step(shown, DTYPES[name]) for name in LOW]
    rows = [(f"{size:g}", *(f"{step:.1g}" for step in some))
            for size, some in zip(shown, zip(*steps, strict=True), strict=True)]
    table = Table("The least step that moves a weight: measured", ("weight", *LOW), rows)
    lost = "; ".join(f"in {name} it is lost on weights of {first:g} and more" for name in LOW
                     for first in [next((size for size, least in zip(*lines[name], strict=True)
                                         if least > rate), None)] if first)
    alt = ("The least step that moves a weight, by the weight's size: stairs that rise with it, "
           f"one for each dtype. A step of {rate:g} is drawn across: {lost}.")
    return {"lines": lines, "table": table, "alt": alt, "log": True,
            "level": (rate, f"a step of {rate:g}"),
            "across": "size of the weight", "up": "least step that moves it"}


def sums(device="cpu"):
    """For figures.lines_picture: the case's sum of losses after each step, dtype by dtype."""
    import cases

    case, lines = cases.load("lost_updates"), {}
    losses = prepare(case, case.setting({"kept": "sum"}), device, reference=True).batch["losses"]
    for name in LOW:
        total, seen = torch.zeros((), dtype=DTYPES[name], device=device), []
        for loss in losses.to(DTYPES[name]):
            total += loss
            seen.append(float(total))
        lines[name] = (list(range(1, len(seen) + 1)), seen)
    count = len(losses)
    shown = (100, 400, 1000, 2000, 3000, count)
    rows = [(step, *(f"{lines[name][1][step - 1]:.0f}" for name in LOW)) for step in shown]
    alt = (f"The sum of {count} losses of about 0.6. In float32 it grows along a straight line to "
           f"{rows[-1][1]}. In float16 it stands still at {rows[-1][2]}, in bfloat16 at "
           f"{rows[-1][3]}.")
    return {"lines": lines, "table": Table("The sum after so many losses", ("losses", *LOW), rows),
            "alt": alt, "across": "losses added", "up": "sum"}


def logged(case, setting, device="cpu"):
    """What the program logs, in float32 and as `setting` says, as a Table."""
    setting = {**setting, "kept": "sum"}
    rows = []
    with steady():
        for reference in (True, False):
            run = prepare(case, setting, device, reference)
            said = "  ".join(f"{loss:.2f}" for loss in call(run).float().tolist())
            rows.append((dtype_name(run.dtype), said))
    return Table("The loss as it is logged, each the mean of 500 steps", ("sum in", "logged"), rows)


def guessed(answers, programs):
    """Run each program; set a person's guesses of the numbers that they return beside them.

    answers: a function that returns one number a program; None stands for no guess yet.
    Returns a Judgement; never raises for what `answers` does.
    """
    try:
        guesses = tuple(answers())
        empty = [str(place) for place, guess in enumerate(guesses, start=1) if guess is None]
        if len(guesses) != len(programs) or empty:
            return Judgement(False, ["Your guesses first: a number for each, in place of None."])
        guesses = [float(guess) for guess in guesses]
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return Judgement(False, [f"Your function raises {said[:SHOWN]}"])
    with steady():
        found = [float(program()) for program in programs]
    right = [guess == number for guess, number in zip(guesses, found, strict=True)]
    return Judgement(all(right), [
        f"{place}. You: {guess:g}. It is {number:g}." for place, (guess, number)
        in enumerate(zip(guesses, found, strict=True), start=1)])
