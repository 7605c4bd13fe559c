"""What a notebook's cells call: the failure caught, the source shown, the experiment tabled."""

import functools
import html
import os
import platform
import traceback
from importlib import metadata
from pathlib import Path
from unittest import mock

import torch

import cases
from cases.halftruths.base import BadInput, spans
from cases.lab import advice, emulate, evidence, torches
from cases.lab.case import Headline, Silent
from cases.lab.numerics import TRAINING_STEPS
from cases.lab.outcome import label_of, verdict_of
from cases.lab.run import (
    ask,
    call,
    check_device,
    fixed_run,
    prepare,
    reference_training,
    run,
    smallest_sufficient,
    steady,
    train,
)
from cases.notebook import advice_tables
from cases.notebook.exercise import compare
from cases.notebook.table import Table


def environment():
    """What is on this machine: versions, devices, and which torches are live."""
    rows = [("Python", platform.python_version()), ("torch", torch.__version__)]
    for package in ("transformers", "jupyterlab", "ipywidgets"):
        try:
            rows.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    gpu = torch.cuda.is_available()
    rows.append(("GPU", torch.cuda.get_device_name(0) if gpu else "none: all runs on the CPU"))
    for entry in torches.listed():
        rows.append((entry["id"], "live" if torches.is_live(entry["id"]) else "not here"))
    return Table("On this machine", ("what", "here"), rows)


def index():
    """Every error text that a program raises without fixes, and where: notebook and torch.

    One text can have several causes; the headlines come first.
    """
    every = [cases.load(name) for name in cases.RECORDED]
    found = {case.headline.text: {} for case in every if isinstance(case.headline, Headline)}
    for case in every:
        for torch_id, device in evidence.files(case):
            for outcome in evidence.outcomes(case, torch_id, device):
                if not outcome.fixes and outcome.error:
                    text = outcome.error["message"].splitlines()[0]
                    where = found.setdefault(text, {}).setdefault((case.notebook[:2], device), [])
                    if torch_id not in where:
                        where.append(torch_id)
    listed = list(dict.fromkeys(t for case in every for t, _ in evidence.files(case)))
    rows = [
        (text, "; ".join(
            f"{number} on torch {spans(ids, listed)}" + ", cuda" * (device == "cuda")
            for (number, device), ids in where.items()))
        for text, where in found.items()
    ]
    return Table("Find your error", ("the message says", "notebook, and where it was raised"), rows)


def silent_index():
    """What people say of each failure that raises nothing, and where: notebook and torch."""
    rows = []
    for case in map(cases.load, cases.RECORDED):
        if isinstance(case.headline, Silent):
            listed = [torch_id for torch_id, device in evidence.files(case) if device == "cpu"]
            met = spans(case.headline.torches, listed)
            rows.append((case.headline.text, f"{case.notebook[:2]} on torch {met}"))
    return Table("Find your symptom", ("nothing is raised, but", "notebook, and where it was seen"),
                 rows)


def parameters(case, device, dtype, torch_id="current", **factors):
    """Check a notebook's parameters; return the setting they ask for, over the case's default.

    torch_id: "current", or an id that env/torches.toml lists.
    Raises BadInput, one line, for a device, dtype, torch or factor that cannot be had.
    """
    check_device(device)
    torches.check_id(torches.current() if torch_id == "current" else torch_id)
    return case.setting({"dtype": dtype, **factors})


def reproduce(case, setting, device="cpu"):
    """Run the program as it is and print what it does; it must do what is recorded.

    Raises AssertionError where the evidence for this torch and device says otherwise. Where
    there is no evidence it says so, for then nothing is checked.
    """
    try:
        known = evidence.find(case, setting, (), torches.current(), device)
    except BadInput as missing:
        outcome = run(case, setting, (), device, training=False)
        print(f"{outcome.said}\nNot checked: {missing}")
        return
    if known.status == "raised":
        with steady():
            program = prepare(case, setting, device)
            expect_failure(lambda: call(program), known.error["type"], known.error["message"])
        return
    outcome = run(case, setting, (), device, training=False)
    if (outcome.output_dtype, case.cured(outcome)) != (known.output_dtype, case.cured(known)):
        raise AssertionError(f"recorded was: {known.said}; now it is: {outcome.said}")
    print(f"Nothing is raised. It {outcome.said}.")


def expect_failure(function, type_name, text):
    """Call `function`, which must raise `type_name` with `text` in its message; print what it said.

    Prints the last calls of the real traceback and the message, without paths.
    Raises AssertionError if nothing is raised, or something else.
    """
    caught(function, type_name, text)


def caught(function, type_name, text):
    """What `expect_failure` does; return what was said, for a cell would show it a second time."""
    try:
        with steady():
            function()
    except Exception as error:
        if type(error).__name__ != type_name or text not in str(error):
            raise AssertionError(
                f"expected {type_name} with {text!r}, got {type(error).__name__}: {error}"
            ) from error
        # Without this function's own frame, and the plumbing of nn.Module and of decorators.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:]
                  if not frame.name.endswith("_call_impl")
                  and frame.line != "return func(*args, **kwargs)"]
        for frame in frames[-3:]:
            file = "this cell" if "ipykernel" in frame.filename else Path(frame.filename).name
            print(f"{file}, line {frame.lineno}, in {frame.name}")
            print(f"    {frame.line}")
        said = f"{type_name}: {error}"
        print(said)
        return said
    raise AssertionError(f"expected {type_name} with {text!r}, but nothing was raised")


def diagnose(answers, calls, dtype=None):
    """Let messages be raised, then compare a person's answers with the message reader's.

    calls: a list of (function, type name, text), each as `expect_failure` takes them.
    answers, dtype, and the Judgement returned: see cases.notebook.exercise.compare.
    Raises AssertionError as `expect_failure` does.
    """
    messages = []
    for expected in calls:
        messages.append(caught(*expected))
        print()
    return compare(answers, messages, dtype)


def last_operations(case, setting, device="cpu", last=3):
    """Print the last operations that had begun when the program stopped, as a profiler saw them.

    They lie below Python, inside the call that the traceback ends with.
    """
    # The profiler logs two lines with the process id, unless told not to.
    with steady(), mock.patch.dict(os.environ, KINETO_LOG_LEVEL="9"):
        program = prepare(case, setting, device)
        with torch.autograd.profiler.profile(use_kineto=False) as seen:
            try:
                call(program)
            except Exception:
                pass
    begun = sorted(seen.function_events, key=lambda event: event.time_range.start)
    names = [event.name for event in begun if event.name != "aten::empty"]
    print("last operations begun:", ", ".join(names[-last:]))


def expect_outcome(outcome, expected=None):
    """What another torch did, run there or recorded, must be `expected`; return it as a Table.

    expected: a case's headline; None: the program must run.
    Raises AssertionError if the outcome is something else.
    """
    if expected is None:
        fits, wanted = outcome.status == "ran", "run without error"
    else:
        fits, wanted = expected.met_by(outcome), expected.wanted
    if not fits:
        raise AssertionError(f"the program must {wanted}, but torch {outcome.torch} did this: "
                             f"{outcome.said}")
    return Table(f"The program alone ({label_of(outcome)})", ("verdict", "what it did"),
                 [(verdict_of(cases.load(outcome.case), outcome), outcome.said)])


class Source:
    """A program's text with one line marked; the mark is a sign, not only a colour."""

    def __init__(self, text, mark=None):
        self.lines = text.rstrip().splitlines()
        self.mark = mark

    def __str__(self):
        return "\n".join(
            ("▶ " if self.mark and self.mark in line else "  ") + line for line in self.lines
        )

    __repr__ = __str__

    def _repr_html_(self):
        rows = []
        for line in str(self).splitlines():
            text = html.escape(line)
            rows.append(f"<strong>{text}</strong>" if line.startswith("▶") else text)
        style = "line-height:1.35;white-space:pre;overflow-x:auto"
        return f'<pre style="{style}">' + "\n".join(rows) + "</pre>"


def model_source(case, start=None, mark="# fails here", end=None):
    """The failing program, with the failing line marked.

    From the line that holds `start` to before the next line that holds `end`; by default all.
    """
    lines = case.model_source.splitlines()
    first = next((i for i, line in enumerate(lines) if start and start in line), 0)
    rest = range(first + 1, len(lines))
    last = next((i for i in rest if end and end in lines[i]), len(lines))
    return Source("\n".join(lines[first:last]), mark)


def fix_source(case, *names):
    """The source of the fixes named."""
    return Source("\n\n".join(fix.source.rstrip() for fix in case.pick(names)))


def where_table(outcome):
    """Where the error was raised: module, operation, and each operand."""
    where = outcome.where
    if where is None:
        raised = outcome.status == "raised"
        said = "The traceback shows no tensor operation." if raised else "Nothing was raised."
        return Table(said, ("where",), [])
    rows, operands = [], where["operands"]
    for place, one in enumerate(operands):
        rest = operands[place:]
        if len(rest) > 3 and all(o["dtype"] == one["dtype"] for o in rest):
            names = f"{one['name']} and {len(rest) - 1} more"
            rows.append((names, one["dtype"], "", one["device"]))
            break
        rows.append((one["name"], one["dtype"], one["shape"], one["device"]))
    module = where["module"] or "the program itself"
    return Table(f"Raised in {module}, by {where['op']}",
                 ("operand", "dtype", "shape", "device"), rows)


def experiment(case, setting, changes, fixes=(), device="cpu", torch_id=None):
    """Run the program once for each change of `setting`, a list of dicts, and table what it did.

    The first row is the program as it is. Change one factor at a time and the cause stands alone.
    """
    rows = []
    for change in [{}] + list(changes):
        outcome = ask(case, {**setting, **change}, fixes, device, torch_id, training=False)
        name = ", ".join(f"{k}={v}" for k, v in change.items()) or "as reported"
        rows.append((name, verdict_of(case, outcome), outcome.said))
    added = "".join(f", with {fix}" for fix in fixes)
    return Table(f"One factor at a time{added} ({label_of(outcome)})",
                 ("changed", "verdict", "what it did"), rows)


def each_fix(case, setting, device="cpu", torch_id=None, training=True, most=2):
    """Every fix alone, and then the smallest sets of fixes that make the error go away.

    most: how many fixes such a set may have. Of 12 fixes 66 pairs are tried, which takes its time.
    """

    @functools.cache
    def one(fixes):
        return ask(case, setting, fixes, device, torch_id, training)

    def together(fixes):
        try:
            return one(fixes)
        except evidence.NotRecorded:  # of two fixes, only what suffices is recorded
            return None

    alone = {fix: one((fix.name,)) for fix in case.fixes}
    rows = [("no fix", "", verdict_of(case, one(())), one(()).said)]
    rows += [(f.name, f.origin, verdict_of(case, o), o.said) for f, o in alone.items()]
    honest = [fix.name for fix in case.fixes if fix.origin != "trap"]
    found = ([] if case.cured(one(()))
             else smallest_sufficient(together, honest, most, case.cured))
    rows += [(" + ".join(subset), "set", verdict_of(case, o), o.said)
             for subset, o in found if len(subset) > 1]
    sets = ", ".join(" + ".join(subset) for subset, _ in found) or "none needed, or none found"
    return Table(f"Each fix alone ({label_of(one(()))}). Smallest sufficient sets: {sets}.",
                 ("fix", "whose", "verdict", "what it did"), rows)


def advice_source(id):
    """The source of a piece of advice's check."""
    [item] = advice.COLLECTION.pick([id])
    return Source(item.code)


def tried(id, device="cpu", torch_id="current"):
    """Run the check of a piece of advice on one torch; return what it saw as a Table.

    Where that torch is not live here it is what was recorded. Where there is a record, what
    happens now must be the same: raises AssertionError if it is not.
    """
    torch_id = torches.current() if torch_id == "current" else torch_id
    answer = advice.ask(id, torch_id, device)
    known = advice.recorded(torch_id, device)
    if known:
        apart = advice.differences(answer.advice, known["seen"][id], answer.places[0].seen,
                                   same_processor=False)
        if apart:
            raise AssertionError("; ".join(apart))
    return advice_tables.scenes_table(answer)


def learning(case, setting, fix_sets, device="cpu"):
    """Train in float32, and with each set of fixes: the loss before and after, or what was raised.

    fix_sets: lists of fix names. The phase of `setting` must be train.
    """
    rows = []
    with steady():
        losses = reference_training(case, setting, device)["losses"]
        rows.append(("all in float32", f"{losses[0]:.2f}", f"{losses[-1]:.2f}"))
        for names in fix_sets:
            try:
                prepared, _ = fixed_run(case, setting, case.pick(names), device)
                losses = train(prepared)["losses"]
                row = f"{losses[0]:.2f}", f"{losses[-1]:.2f}"
            except Exception as error:
                row = "-", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            rows.append((" + ".join(names), *row))
    return Table(f"Loss of the first step and after {TRAINING_STEPS} steps",
                 ("fixes on", "first", "last"), rows)


def on_cuda(case, setting, fixes=()):
    """Outcome on cuda: live where there is a GPU, else recorded with this torch, else emulated.

    Raises BadInput where it can be had in none of these ways.
    """
    if torch.cuda.is_available():
        return run(case, setting, fixes, "cuda", training=False)
    try:
        return evidence.find(case, setting, fixes, torches.current(), "cuda")
    except evidence.NotRecorded:
        return emulate.run(case, setting, fixes)


def emulated(case, setting, changes=(), fixes=()):
    """The same program on the CPU, live, and on cuda, emulated if need be; each row says how.

    The first two rows are `setting` as it is, then two for each change, a dict.
    """
    rows = []
    for change in [{}, *changes]:
        name = ", ".join(f"{key}={value}" for key, value in change.items()) or "as it is"
        asked = {**setting, **change}
        here = run(case, asked, fixes, training=False)
        rows.append((name, "cpu, live", verdict_of(case, here), here.said))
        try:
            there = on_cuda(case, asked, fixes)
            rows.append((name, f"cuda, {there.provenance}", verdict_of(case, there), there.said))
        except BadInput as error:
            rows.append((name, "cuda", "not shown", str(error)))
    added = "".join(f", with {fix}" for fix in fixes)
    caption = f"On two devices{added} (torch {here.torch.split('+')[0]})."
    if any("emulated" in row[1] for row in rows):
        caption += (" Emulated: CUDA's rules of autocast above the CPU's kernels, whose words and "
                    "numbers these are.")
    return Table(caption, ("changed", "where", "verdict", "what it did"), rows)


def policies():
    """What autocast does to an operation's inputs on the CPU and on cuda: measured, by kind."""
    groups = {}
    for name, both in emulate.policies().items():
        groups.setdefault(both, []).append(name)
    # First what differs, and the large groups first.
    order = sorted(groups, key=lambda both: (both[0] == both[1], -len(groups[both])))
    cpu, cuda = emulate.registered()
    how = "live" if torch.cuda.is_available() else "emulated"
    return Table(
        f"What autocast makes of an operation's inputs: the CPU's live, CUDA's {how} (torch "
        f"{torch.__version__.split('+')[0]}). It knows {len(cpu)} operations on the CPU and "
        f"{len(cuda)} on CUDA, {len(cpu & cuda)} of them on both.",
        ("on the CPU", "on CUDA", "operations measured"),
        [(*both, ", ".join(sorted(groups[both]))) for both in order])


def truth_table(panel, fixes=None):
    """Drive every toggle of a panel, one at a time and all together; return the table.

    This is the last cell of a notebook: it also raises what the panel's callbacks caught.
    """
    names = [fix.name for fix in panel.case.fixes] if fixes is None else list(fixes)
    rows = []
    for chosen in [[]] + [[name] for name in names] + [names]:
        panel.set(**{name: name in chosen for name in names})
        outcome = panel.outcome
        label = "all of them" if len(chosen) > 1 else (chosen or ["no fix"])[0]
        result = outcome.error["type"] if outcome.error else outcome.output_dtype
        _, verdict = verdict_of(panel.case, outcome).split(" ", 1)
        rows.append((label, verdict, result, panel.setting["dtype"]))
    panel.set(**{name: False for name in names})
    panel.raise_errors()
    return Table("Every toggle", ("fixes on", "verdict", "raised, or output", "dtype"), rows)
