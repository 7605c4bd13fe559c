"""Judge a fix that a reader wrote, by the same two-sided rule as the fixes of the case."""

from dataclasses import dataclass

from cases.lab.run import run

# Costs that a good fix may not have. Others (memory, an output in another dtype) are
# reported and left to the reader's judgement.
FORBIDDEN = ("master_weights", "error", "not_finite", "output_shape", "gradients", "no_learning",
             "updates_lost")


@dataclass
class Judgement:
    """What `case.check` found: passed or not, and the lines that say why."""

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
    if without.status == "ran":
        return Judgement(False, [f"On torch {without.torch} this program does not fail: "
                                 f"{without.said}. There is nothing to cure."])
    with_fix = run(case, setting, [my_fix])
    if with_fix.status == "raised":
        kind = "The same error is raised" if with_fix.verdict == "fails" else "It now raises"
        return Judgement(False, [f"{kind}: {with_fix.said}"])
    bad = [item for item in with_fix.costs if item["kind"] in FORBIDDEN + tuple(forbid)]
    lines = [f"It runs, but {item['text']}." for item in bad]
    wrong = output_dtype not in (None, with_fix.output_dtype)
    if wrong:
        lines.append(f"It runs, but the output is {with_fix.output_dtype}, not {output_dtype}.")
    lines += [f"(It costs: {item['text']}.)" for item in with_fix.costs if item not in bad]
    lines.append(f"Output {with_fix.output_dtype}, relative error {with_fix.relative_error:g}."
                 if with_fix.relative_error is not None else f"Output {with_fix.output_dtype}.")
    return Judgement(not bad and not wrong, lines)
