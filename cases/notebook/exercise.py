"""Judge what a reader of a notebook did: a fix, a counter-example, a diagnosis."""

import re
from dataclasses import dataclass

from cases.halftruths.messages.reader import NAMES, dtype_of, explain
from cases.lab.run import run

# Costs that a good fix may not have. Others (memory, an output in another dtype) are
# reported and left to the reader's judgement.
FORBIDDEN = ("master_weights", "error", "not_finite", "output_shape", "gradients", "no_learning",
             "updates_lost")
SHOWN = 80  # characters of an answer, or of what a person's function raised, that are shown


@dataclass
class Judgement:
    """What `check` found: passed or not, and the lines that say why."""

    passed: bool
    lines: list

    def __str__(self):
        return "\n".join([("✓ solved" if self.passed else "✗ not yet")] + self.lines)

    __repr__ = __str__


def check(case, my_fix, forbid=(), output_dtype=None, **setting):
    """Judge `my_fix`, a function of a Run, on the program with `setting`.

    Two-sided: the program must fail without the fix (else there is nothing to cure), and with
    it must run, keep its float32 weights and stay as close to float32 as its dtype allows.
    forbid: further kinds of cost that the exercise rules out.
    output_dtype: name of the dtype that the exercise asks for, if it does.
    Returns a Judgement; never raises for what the fix does.
    """
    without = run(case, setting)
    if case.cured(without):
        return Judgement(False, [f"On torch {without.torch} this program does not fail: "
                                 f"{without.said}. There is nothing to cure."])
    with_fix = run(case, setting, [my_fix])
    if with_fix.status == "raised":
        kind = "The same error is raised" if with_fix.verdict == "fails" else "It now raises"
        return Judgement(False, [f"{kind}: {with_fix.said}"])
    forbidden = {*FORBIDDEN, *forbid, *getattr(case.headline, "kinds", ())}
    bad = [item for item in with_fix.costs if item["kind"] in forbidden]
    lines = [f"It runs, but {item['text']}." for item in bad]
    wrong = output_dtype not in (None, with_fix.output_dtype)
    if wrong:
        lines.append(f"It runs, but the output is {with_fix.output_dtype}, not {output_dtype}.")
    lines += [f"(It costs: {item['text']}.)" for item in with_fix.costs if item not in bad]
    lines.append(f"Output {with_fix.output_dtype}, relative error {with_fix.relative_error:g}."
                 if with_fix.relative_error is not None else f"Output {with_fix.output_dtype}.")
    return Judgement(not bad and not wrong, lines)


def counter_example(example, holds):
    """Judge what a reader found against a claim: an example on which it is not true.

    example: a function without arguments. holds: `holds(what it returned)` says whether the claim
    is true there, and a line that shows it. Returns a Judgement; never raises for what the
    example, or the claim on it, does.
    """
    try:
        true, shown = holds(example())
    except Exception as error:
        return Judgement(False, [f"That raises {raised(error)}"])
    return Judgement(not true, [shown, f"There the claim is {'true' if true else 'false'}."])


def raised(error):
    """What a reader's function raised, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]


def compare(answers, messages, dtype=None):
    """Set a person's own answers beside what the message reader says of the same messages.

    answers: a function that returns one text a message; while one is empty nothing is compared.
    dtype: the question is which operand has this dtype; None: which dtype a message is about.
    Returns a Judgement, passed where no answer differs from the message reader's; it never raises
    for what the function does. To agree is no proof: the message reader can be wrong.
    """
    texts, trouble = answered(answers, len(messages))
    if trouble:
        return Judgement(False, [trouble])
    passed, lines = True, []
    for place, (text, message) in enumerate(zip(texts, messages, strict=True), start=1):
        agrees, said = compared(text, explain(message).readings, dtype)
        passed = passed and agrees
        lines += [f"{place}. You: {text}. {said[0]}", *(f"   {line}" for line in said[1:])]
    return Judgement(passed, lines)


def answered(answers, count):
    """Return ([text, ...], ""), or (None, the line that says what is wrong with the answers)."""
    wanted = f"give {count} texts, as in: return " + ", ".join(['"weight"'] * count)
    try:
        texts = answers()
    except Exception as error:
        return None, f"Your function raises {raised(error)}"
    if not isinstance(texts, (tuple, list)) or len(texts) != count:
        return None, f"Not {count} answers; {wanted}"
    if not all(isinstance(text, str) for text in texts):
        return None, f"Not all answers are texts; {wanted}"
    texts = [" ".join(text.split())[:SHOWN] for text in texts]
    empty = [str(place) for place, text in enumerate(texts, start=1) if not text]
    if empty:
        return None, f"Your answers first. Still empty: {', '.join(empty)}."
    return texts, ""


def compared(text, readings, dtype):
    """Return (False if the first of the readings says otherwise, [line, ...] that say it)."""
    if not readings:
        return True, ["The reader does not know this message."]
    first, *others = readings
    operands = {operand["name"]: operand["dtype"] for operand in first.operands}
    words = re.findall(r"[\w.:]+", text.lower())
    if dtype:
        named = set(words) & set(operands)
        right = {name for name, its in operands.items() if its == dtype}
    else:
        named = set(map(dtype_of, words)) & set(NAMES.values())
        right = set(operands.values())
    agrees = not right or bool(named) and named <= right
    said = ", ".join(f"{name} {its}" for name, its in operands.items()) or "names no operand"
    end = ("Nothing to compare." if not right else "You agree." if agrees
           else "You differ: one of you is wrong. Look at the message again.")
    lines = [f"The reader: {said}. {end}",
             f"{first.kind}: {first.cause.split('. ')[0].rstrip('.')}."]
    if others:
        lines.append(f"It may also be: {', '.join(other.kind for other in others)}.")
    return agrees, lines
