"""What exists in half on the CPU, on which torch, and at what price. Needs torch alone."""

import functools
import re
import statistics
import time

import torch

from cases.cpu_half import ops
from cases.cpu_half.case import CASE
from cases.halftruths.base import BadInput
from cases.lab import evidence, torches
from cases.lab.run import steady
from cases.notebook.table import Table

# How an op stands in one dtype on one torch, and what the sign for it means.
SIGNS = {
    "✓": "runs",
    "→": "gradient refused",
    "≠": "runs but wrong",
    "✗": "refused",
    "–": "not there",
}
STEPS = (0, 0.01, 0.1, 0.5)  # of a relative error


@functools.cache
def here():
    """What every op does on this torch, swept once: {op: {(dtype, direction): text}}."""
    return ops.unfold(ops.survey())


def history():
    """Return one {"torch", "label", "ops"} a torch, oldest first; "ops" as `here` returns them.

    This kernel's own torch is swept live, every other one that was recorded is read from there:
    the same torches on every machine. `check --torch ID` holds a record to what that torch does.
    """
    columns = []
    for torch_id in torches.ids():
        if torch_id == torches.current():
            version, when, found = torch.__version__, "live", here()
        else:
            kept = evidence.read_survey(CASE, "ops", torch_id)
            if kept is None:
                continue
            version, found = kept["provenance"]["torch"], ops.unfold(kept)
            if list(found) != list(here()):
                raise BadInput(f"{torch_id} was swept for another list of ops; record it again")
            when = f"recorded {kept['provenance']['date']}"
        version = version.split("+")[0]
        columns.append({"torch": version, "label": f"{when}, torch {version}", "ops": found})
    return columns


def sign(said, dtype):
    """One of SIGNS for what one op does on one torch in `dtype`."""
    there, back = (said[dtype, direction] for direction in ops.DIRECTIONS)
    if there == ops.ABSENT:
        return "–"
    if any(text.startswith(ops.WRONG) for text in (there, back)):
        return "≠"
    if there != ops.RUNS:
        return "✗"
    return "✓" if back in (ops.RUNS, ops.NO_GRADIENT, ops.ABSENT) else "→"


def signs(history):
    """Return {dtype: {op: its signs, one a torch}} for what `history` returns."""
    return {
        dtype: {op: "".join(sign(column["ops"][op], dtype) for column in history)
                for op in history[-1]["ops"]}
        for dtype in ops.DTYPES
    }


def since(said, history):
    """From which torch on an op runs, and is right: "2.1", or "wrong", "refused", "none".

    said: what one dtype and direction said on each torch of the history.
    """
    last = said[-1].split(":")[0]
    if last != ops.RUNS:
        return {ops.WRONG: "wrong", ops.NO_GRADIENT: "none", ops.ABSENT: "none"}.get(
            last, "refused")
    first = len(said)
    while first and said[first - 1] == ops.RUNS:
        first -= 1
    return short(history[first])


def short(column):
    """The version of a column of the history, as '2.13'."""
    return ".".join(column["torch"].split(".")[:2])


def op_history(history):
    """What a picture of the history shows: arguments for cases.notebook.figures.history_picture."""
    legend = ", ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items())
    labels = "; ".join(column["label"] for column in history)
    return signs(history), list(map(short, history)), SIGNS, f"Ops on the CPU: {legend} ({labels})"


def op_table(history, dtype="float16"):
    """Every op in one dtype: since which torch it and its gradient run, and its sign on each."""
    headers = ["op", "forward", "gradient", *map(short, history)]
    rows = []
    for op, row in signs(history)[dtype].items():
        from_on = [since([column["ops"][op][dtype, direction] for column in history], history)
                   for direction in ops.DIRECTIONS]
        rows.append([op, *from_on, *row])
    caption = (f"{len(rows)} ops in {dtype} on the CPU, and since which torch they run "
               f"(live, torch {torch.__version__.split('+')[0]}; the others recorded)")
    return Table(caption, headers, rows)


def still_missing(dtype="float16"):
    """Return {words: [op, …]}: what this torch refuses, those refused in like words together."""
    groups = {}
    for op, said in here().items():
        if sign(said, dtype) == "✗":
            groups.setdefault(alike(said[dtype, "forward"]), []).append(op)
    return groups


def still_wrong(dtype="float16"):
    """Return {op: (forward, gradient)}: what runs on this torch and is wrong, and about how far.

    In steps of ten or so, for the digits are this processor's.
    """
    return {
        op: tuple(about(said[dtype, direction]) for direction in ops.DIRECTIONS)
        for op, said in here().items() if sign(said, dtype) == "≠"
    }


def about(said):
    """What one column of the sweep says, without the digits of an error."""
    if not said.startswith(f"{ops.WRONG}: relative error"):
        return said
    error = float(said.split()[-1])
    return f"{ops.WRONG}: error {max(step for step in STEPS if step <= error)} or more"


def alike(said):
    """A refusal without its exception's type and the name of the op."""
    words = said.split(": ", 1)[1]
    return re.sub(r'^"\w+"|^[a-z_.]+(\(.+?\))?(?=: |\(\) )', "…", words)


def price(size=128, rounds=15):
    """Time and error of two products in half, against float32, on this CPU and one thread.

    Returns {"matmul" | "matrix × vector": {dtype: {"time": ratio, "error": relative}}}: the
    median over `rounds` of the time in `dtype` over the time in float32, and |y - y32| / |y32|.
    A dtype that this torch refuses is left out. The ratio is this processor's: one with half or
    bf16 units gives another. See `pace`.
    """
    with steady():
        torch.manual_seed(0)
        square, wide = torch.randn(size, size), torch.randn(8 * size, 8 * size)
        return {
            "matmul": compare(square, torch.randn(size, size), rounds),
            "matrix × vector": compare(wide, torch.randn(8 * size), rounds),
        }


def compare(a, b, rounds):
    """Time a @ b in float32 and in each half dtype, in turn so that all see the same load."""
    pairs, products = {}, {}
    for name in ("float32", *ops.DTYPES):
        left, right = a.to(getattr(torch, name)), b.to(getattr(torch, name))
        try:  # the first call also sets the kernel up, so it is not timed
            products[name] = left @ right
        except RuntimeError:
            continue
        pairs[name] = left, right
    times = {name: [] for name in pairs}
    for _ in range(rounds):
        for name, (left, right) in pairs.items():
            start = time.perf_counter()
            left @ right
            times[name].append(time.perf_counter() - start)
    exact = products.pop("float32")
    return {
        name: {
            "time": statistics.median(
                low / full for low, full in zip(times[name], times["float32"], strict=True)
            ),
            "error": float((product.float() - exact).norm() / exact.norm()),
        }
        for name, product in products.items()
    }


def pace(ratio):
    """A time ratio in words that another run of the same machine would use too."""
    if ratio > 2:
        return "slower than float32"
    return "faster than float32" if ratio < 0.5 else "within a factor of 2 of float32"
