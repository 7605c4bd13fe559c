"""The road of a run: every floating tensor the program makes, in the order it is made.

It watches by Python's own line tracing. PyTorch does not know of it: no hook is registered and
no mode entered, so a fast path that looks for those is still taken. That the watched run ends as
the plain one did is checked each time.
"""

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from cases.halftruths.dtypes import dtype_name
from cases.halftruths.exceptions.failures import operation, shape_of
from cases.halftruths.exceptions.frames import expression
from cases.lab.run import call, fixed_run, run, steady


@dataclass(frozen=True)
class Station:
    """One tensor: its variable's name, dtype, shape, and the line that made it."""

    name: str
    dtype: str
    shape: tuple
    file: str
    line: int
    code: str

    @property
    def operation(self):
        """Short name of what made it: the outermost call or operator of the line."""
        node = expression(self.code.split(" = ", 1)[-1].removeprefix("return "))
        return operation(node).strip("_") if node is not None else self.name


@dataclass(frozen=True)
class Road:
    """Stations in the order of the run, and the outcome of the plain run.

    disturbed: the watched run ended otherwise than the plain one, which is a finding itself.
    """

    stations: tuple
    outcome: object
    disturbed: bool

    @property
    def once(self):
        """The stations without second visits to a line, as layer after layer makes them."""
        first = {}
        for station in self.stations:
            first.setdefault((station.file, station.line, station.dtype), station)
        return tuple(first.values())


class Watcher:
    """Notes new floating tensors after each line of the files watched."""

    def __init__(self, files):
        self.files = files
        self.seen = {}  # id -> tensor; held so that an id is not used twice
        self.stations = []

    def __call__(self, frame, event, _):
        """Called by Python at each new frame; returns the tracer of its lines, or None."""
        filename = frame.f_code.co_filename
        # A comprehension's frame only walks over tensors that others made.
        if frame.f_code.co_name.startswith("<") or not filename.endswith(self.files):
            return None
        for value in frame.f_locals.values():  # arguments were made elsewhere
            if isinstance(value, torch.Tensor):
                self.seen.setdefault(id(value), value)
        last = [frame.f_lineno]

        def lines(frame, event, _):
            self.note(frame, last[0])
            last[0] = frame.f_lineno
            return lines

        return lines

    def note(self, frame, line):
        for name, value in list(frame.f_locals.items()):
            if not isinstance(value, torch.Tensor) or id(value) in self.seen:
                continue
            self.seen[id(value)] = value
            if value.is_floating_point() and not isinstance(value, torch.nn.Parameter):
                self.stations.append(
                    Station(
                        name, dtype_name(value.dtype), tuple(shape_of(value)),
                        Path(frame.f_code.co_filename).name, line,
                        linecache.getline(frame.f_code.co_filename, line).strip(),
                    )
                )




def road(case, setting=None, fixes=(), device="cpu"):
    """Run the program once more, watched, and return its Road."""
    setting, fixes = case.setting(setting), case.pick(fixes)
    outcome = run(case, setting, fixes, device, training=False)
    watcher = Watcher((str(case.folder / "model.py"),) + case.watch)
    error = None
    with steady():
        prepared, _ = fixed_run(case, setting, fixes, device)
        before = sys.gettrace()
        sys.settrace(watcher)
        try:
            call(prepared)
        except Exception as raised:
            error = str(raised).strip()
        finally:
            sys.settrace(before)
    plain = outcome.error["message"] if outcome.error else None
    return Road(tuple(watcher.stations), outcome, disturbed=error != plain)
