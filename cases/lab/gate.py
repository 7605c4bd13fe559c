"""The two-sided gate: what was recorded must still happen, and nothing else.

A failure that no longer fails is as much a difference as a fix that no longer fixes. It holds the
cases, and the advice that was tested, see cases.lab.advice.
"""

import itertools

import torch

import cases
from cases.halftruths.base import BadInput
from cases.halftruths.messages.words import plain, without_numbers
from cases.lab import advice, evidence, torches
from cases.lab.case import Missing
from cases.lab.run import ask, smallest_sufficient


def units(names=()):
    """Return what the gate holds: the cases named and, by the name 'advice', all advice.

    Default: everything. Raises BadInput for another name.
    """
    known = {**{name: cases.load for name in cases.NAMES},
             advice.COLLECTION.name: lambda name: advice.COLLECTION}
    for name in names:
        if name not in known:
            raise BadInput(f"unknown case {name!r}; allowed: {', '.join(known)}")
    return [known[name](name) for name in names or known]


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
    if not case.cured(ask(case, setting, (), device, torch_id, training=False)):
        found = smallest_sufficient(
            lambda subset: ask(case, setting, subset, device, torch_id, training=False), honest,
            cured=case.cured,
        )
        sets += [subset for subset, _ in found if 1 < len(subset) < len(names)]
    return sets


def sweep(case, device, torch_id):
    """Yield the Outcome of every setting and recorded set of fixes."""
    for setting in settings(case):
        for subset in fix_sets(case, setting, device, torch_id):
            yield ask(case, setting, subset, device, torch_id)


def sweep_size(case):
    """About how many outcomes `record` asks for: without the smallest sufficient pairs."""
    if case is advice.COLLECTION:
        return len(case.every)
    return sum(1 for _ in settings(case)) * (len(case.fixes) + 2)


def record(case, torch_id, device="cpu", folder=None, each=lambda: None):
    """Run all of a case and its surveys, or all advice, on a live torch; write the evidence.

    folder: where to, instead of the case's own folder. each: called after each outcome.
    Returns [(path written, how many items are in it), …]. Raises Missing where that torch lacks
    what the case needs, RuntimeError where its interpreter died; nothing is then written.
    """
    if case is advice.COLLECTION:
        return advice.record(torch_id, device, folder, each)
    machine = torches.call(torch_id, "cases.lab.evidence:machine", device)
    entries = []
    for outcome in sweep(case, device, torch_id):
        entries.append(outcome.to_json())
        each()
    found = {(name, function): torches.call(torch_id, function, device)
             for name, function in case.surveys}
    path = evidence.write(case, torch_id, device, entries, machine, folder)
    written = [(path, len(entries))]
    for survey, parts in found.items():
        path = evidence.write_survey(case, *survey, torch_id, device, parts, machine, folder)
        written.append((path, sum(map(len, parts.values()))))
    return written


def check(case, torch_id, device="cpu", known=None):
    """Run all that is recorded of a case, or of advice, on a live torch; return the differences.

    They are lines of text; none where all is as recorded.

    known: the recorded Outcomes; by default those of the case's evidence. Then it is also proved
        that no evidence, of whatever torch, is older than the case it speaks of.

    Raises Missing where a torch lacks what the case needs, or a draft was not recorded on it.
    """
    if case is advice.COLLECTION:
        return advice.check(torch_id, device)
    if case.name in cases.DRAFTS and not evidence.recorded(case, torch_id, device):
        raise Missing(f"a draft that was not recorded on {torch_id}, {device}")
    found = headline(case, torch_id, device)
    if known is None:
        found += [f"{case.name}: {name} is older than the case; record it again"
                  for name in evidence.stale(case)]
        known = evidence.outcomes(case, torch_id, device)
        found += check_surveys(case, torch_id, device)
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


def check_surveys(case, torch_id, device):
    """Lines that say where a survey no longer finds what it found; numbers are not compared.

    What another kind of processor was recorded saying is as good: which kernels there are hangs
    on it too.
    """
    found = []
    for name, function in case.surveys:
        old = evidence.read_survey(case, name, torch_id, device)
        if old is None:
            found.append(f"{case.name}: no survey {name!r} is recorded for {torch_id}, {device}")
            continue
        new = torches.call(torch_id, function, device)
        for part in new:
            other = [item for _, its, item in old.get(evidence.ELSEWHERE, ()) if its == part]
            before, after, known = (
                {without_numbers(evidence.dump(item)): item[0] for item in side}
                for side in (old.get(part, ()), new[part], [*old.get(part, ()), *other]))
            unknown = [item for item in after if item not in known]
            # An item is known by its first member. One that has gone over to what another
            # processor says is not missing.
            there = {after[item] for item in after if item in known}
            found += [f"{case.name}: {name} was {item}" for item in before
                      if item not in after and before[item] not in there]
            found += [f"{case.name}: {name} is {item}" for item in unknown]
    return found


def headline(case, torch_id, device):
    """The failing program must fail, as people meet it, just where the case says so."""
    if device != "cpu" or torch_id not in [entry["id"] for entry in torches.listed()]:
        return []
    outcome = ask(case, None, (), device, torch_id, training=False)
    if case.headline.met_by(outcome) == (torch_id in case.headline.torches):
        return []
    should = "must" if torch_id in case.headline.torches else "must not"
    return [f"{case.name}: on {torch_id} the program {should} {case.headline.wanted}; "
            f"it did this: {outcome.said}"]


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
