"""The two-sided gate: what was recorded must still happen, and nothing else.

A failure that no longer fails is as much a difference as a fix that no longer fixes.
"""

import itertools

import torch

from cases.lab import evidence
from cases.lab.anywhere import ask
from cases.lab.messages import plain
from cases.lab.run import smallest_sufficient


def settings(case):
    """Yield every setting of a case's factors."""
    names = [factor.name for factor in case.factors]
    for values in itertools.product(*(factor.values for factor in case.factors)):
        yield dict(zip(names, values, strict=True))


def fix_sets(case, setting, device, torch_id):
    """Return the sets to record: no fix, each alone, all together, and the smallest sufficient.

    They are what a notebook's tables ask for, so that these can be had where a torch is not.
    """
    names = [fix.name for fix in case.fixes]
    honest = [fix.name for fix in case.fixes if fix.origin != "trap"]
    sets = [()] + [(name,) for name in names] + [tuple(names)]
    if ask(case, setting, (), device, torch_id, training=False).status == "raised":
        found = smallest_sufficient(
            lambda subset: ask(case, setting, subset, device, torch_id, training=False), honest
        )
        sets += [subset for subset, _ in found if 1 < len(subset) < len(names)]
    return sets


def sweep(case, device, torch_id):
    """Yield the Outcome of every setting and recorded set of fixes."""
    for setting in settings(case):
        for subset in fix_sets(case, setting, device, torch_id):
            yield ask(case, setting, subset, device, torch_id)


def check(case, torch_id, device="cpu", known=None):
    """Run all that is recorded for `case` on a live torch; return the differences, as lines.

    known: the recorded Outcomes; by default those of the case's evidence.
    """
    found = headline(case, torch_id, device)
    if known is None:
        data = evidence.read(case, torch_id, device)
        known = data["outcomes"] if data else []
        if data and data["provenance"]["digest"] != case.digest:
            found.append(
                f"{case.name}: evidence of {torch_id} is older than the case; record it again"
            )
    if not known:
        return found + [f"{case.name}: nothing is recorded for {torch_id}, {device}"]
    for old in known:
        # Without a GPU such a fix raises, in words that depend on how torch was built.
        needs_gpu = any(fix.needs_gpu for fix in case.pick(old.fixes))
        if needs_gpu and torch.cuda.is_available():
            continue
        new = ask(case, old.factors, old.fixes, device, torch_id)
        found += differences(old, new, words=not needs_gpu)
    return found


def headline(case, torch_id, device):
    """The failing program must fail, in the words people meet, just where the case says so."""
    if device != "cpu":
        return []
    outcome = ask(case, None, (), device, torch_id, training=False)
    if case.headline.raised_by(outcome) == (torch_id in case.headline.torches):
        return []
    should = "must" if torch_id in case.headline.torches else "must not"
    return [f"{case.name}: on {torch_id} the program {should} raise "
            f"{case.headline.text!r}; it did this: {outcome.said}"]


def differences(old, new, words=True):
    """Lines that say how `new` differs from what was recorded; empty where it does not.

    words: compare the error's type and text too.
    """
    name = " ".join(
        [old.case] + [f"{k}={v}" for k, v in old.factors.items()] + [f"+{fix}" for fix in old.fixes]
    )
    found = []
    for what, before, after in (
        ("verdict", old.verdict, new.verdict),
        ("error type", old.error and old.error["type"], new.error and new.error["type"]),
        ("message", old.error and plain(old.error["message"]),
         new.error and plain(new.error["message"])),
        ("output dtype", old.output_dtype, new.output_dtype),
    ):
        if before != after and (words or what == "verdict"):
            found.append(f"{name}: {what} was {before!r}, is {after!r}")
    return found
