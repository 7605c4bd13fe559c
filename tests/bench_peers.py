"""The autopsy beside other tools:  python tests/bench_peers.py [--quick] [TOOL ...]

Two programs that fail, one tool at a time, each in a Python of its own. A tool is given what it
offers for the purpose: every switch on, its log, report and graph in one text. All is measured:

sees       does the program still raise the same error while the tool watches? Where it does not,
           nothing more is asked of the tool: what it recorded is another run.
module     is the path of the failing module in the tool's text? `yes` if it is the first or the
           last module that the text names, for there one looks; else `among N` modules named.
operand    `yes`: a line names the odd operand, its dtype, and says in some word that it is odd.
           `shown`: the failing call, or module, stands in a line with its operands' dtypes, so that
           a reader who knows which dtype belongs can tell. In the encoder no operand is odd:
           there `yes` is a line that says so.
origin     is the line of the program in the text where a cast cures it? As for the module, among
           all lines of the program that the text names. In the encoder nothing odd comes in.
same       a forward pass that does not fail: does it return the same numbers while watched?
forward    median time of such a pass, watched, over the same without.
keeps      how many bytes of Python objects and tensors such a pass leaves more than without the
           tool, as long as its record is held.

PyTorch's own message is taken out of each text first: it is the same for all. Writes
build/bench_peers.json; --quick leaves out the times; --write puts the tables into tests/BENCH.md.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import traceback
import tracemalloc
import warnings
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import cases
from cases.halftruths.dtypes import dtype_name
from cases.lab.evidence import write_whole
from cases.lab.run import call, prepare, steady
from cases.notebook.papers import filled

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "bench_peers.json"
PAGE = ROOT / "tests" / "BENCH.md"
LIMIT = 300  # seconds a tool may take for everything
REPEATS, ENOUGH = 60, 4  # forward passes; fewer, but at least 3, once they took so many seconds
# One thread's own time, which other work on the machine does not lengthen; Windows has it in steps
# of 16 ms, too coarse.
FINE = time.get_clock_info("process_time").resolution < 1e-5
clock = time.process_time if FINE else time.perf_counter
TORCHLENS = "2.36.1"


# ----------------------------------------------------------------------------------- the programs

@dataclass(frozen=True)
class Failure:
    """A program that fails, and what a good answer names; tests/lab holds these to be true.

    call: names that the failing call goes by. odd: names of the odd operand, or none.
    dtypes: of the floating operands of the call, the odd one's first. origin: beginnings of
    those assignments of the program of which a cast cures it.
    """

    case: str
    module: str
    call: tuple
    dtypes: tuple
    odd: tuple = ()
    origin: tuple = ()

    def prepare(self, healthy=False):
        """A fresh run of the program; healthy: of the first control, which does not fail."""
        case = cases.load(self.case)
        setting = case.setting(None)
        return prepare(case, case.controls(setting)[0] if healthy else setting)

    @property
    def program(self):
        return cases.load(self.case).folder / "model.py"

    def origin_lines(self):
        lines = self.program.read_text(encoding="utf-8").splitlines()
        return [number for number, line in enumerate(lines, 1)
                if line.strip().startswith(self.origin or ("\0",))]


FAILURES = (
    Failure(
        case="encoder_bf16", module="encoder.layers.0", call=("_transformer_encoder_layer_fwd",),
        dtypes=("float32",),
    ),
    Failure(
        case="llama_vision", module="model.layers.0.self_attn.q_proj",
        call=("linear", "mm", "addmm"), dtypes=("float32", "float16"),
        odd=("input", "hidden_states", "argument 0"),
        origin=("features = ", "embeds = torch.cat"),
    ),
)


# -------------------------------------------------------------------------------------- the tools
# Each takes a prepared run, and returns two functions: `go` runs it watched, `text` returns, given
# the exception or None, all that the tool has to say.

def autopsy(run):
    def text(error):
        from cases.halftruths.exceptions.answer import autopsy as explain

        return explain(error).text()

    return lambda: call(run), text


def plain_traceback(run):
    return lambda: call(run), lambda error: "".join(traceback.format_exception(error))


class Hooks:
    """Note before and after each module its path, class, and the dtypes in, out, of its weights."""

    def __init__(self, model):
        self.names = {module: f"{path} ({type(module).__name__})"
                      for path, module in model.named_modules()}
        self.lines = []

    def before(self, module, args, options=None):
        own = {dtype_name(parameter.dtype) for parameter in module.parameters()}
        self.lines.append(f"> {self.names.get(module)} input {dtypes((args, options))}; "
                          f"parameters {', '.join(sorted(own))}")

    def after(self, module, args, out):
        self.lines.append(f"< {self.names.get(module)} output {dtypes(out)}")

    def text(self, error):
        return "\n".join(self.lines)


def forward_hooks(run):
    hooks = Hooks(run.model)
    for module in run.model.modules():
        module.register_forward_pre_hook(hooks.before, with_kwargs=True)
        module.register_forward_hook(hooks.after)
    return lambda: call(run), hooks.text


def global_hooks(run):
    """The same, registered once for all modules: no module has a hook of its own."""
    hooks = Hooks(run.model)

    def go():
        handles = [register_module_forward_pre_hook(hooks.before),
                   register_module_forward_hook(hooks.after)]
        try:
            return call(run)
        finally:
            for handle in handles:
                handle.remove()

    return go, hooks.text


def dispatch_mode(run):
    """Every operation that reaches a kernel, with the dtypes it takes and returns."""
    lines = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            lines.append(f"{func} {dtypes((args, kwargs))}")
            out = func(*args, **(kwargs or {}))
            lines[-1] += f" -> {dtypes(out)}"
            return out

    return under(Watch, run), lambda error: "\n".join(lines)


def function_mode(run):
    """Every function of torch that Python calls, with the dtypes it takes and returns."""
    lines = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            place = len(lines)
            lines.append(f"{resolve_name(func) or func.__name__} {dtypes((args, kwargs))}")
            out = func(*args, **(kwargs or {}))
            lines[place] += f" -> {dtypes(out)}"
            return out

    return under(Watch, run), lambda error: "\n".join(lines)


def debug_mode(run, **switches):
    from torch.utils._debug_mode import DebugMode

    mode = DebugMode(**switches)
    return under(lambda: mode, run), lambda error: mode.debug_string()


def debug_mode_all(run):
    return debug_mode(run, record_torchfunction=True, record_nn_module=True, record_ids=True,
                      record_stack_trace=True)


def debug_mode_modules(run):
    return debug_mode(run, record_nn_module=True, record_stack_trace=True)


def torchlens(run):
    """Its trace of the whole program as one module, without values; and of a failed trace all
    that it offers: the card, audit, report, graph, each operation's place, and the narration.

    tl.record, and a trace of selected operations, see the encoder's error no better.
    """
    import torchlens as tl

    class Program(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = run.model

        def forward(self, tokens):
            outputs.append(call(run))
            return outputs[-1]

    told, traces, outputs = [], [], []

    def go():
        traces.append(tl.trace(
            Program(), run.batch["tokens"],
            capture=tl.options.CaptureOptions(layers_to_save="none"),
            echo=tl.options.EchoOptions(on_error_only=True, sink=told.append)))
        return outputs.pop()

    def text(error):
        part = getattr(error, "partial_log", None)
        if part is None:
            return "\n".join([*(trace.summary() for trace in traces), *told])
        places = [f"{op._label_raw} {place.file}:{place.line_number}"
                  for op in part.raw_layers for place in op.code_context]
        return "\n".join([str(part), str(part.audit()), tl.report.explain(part), part.draw(),
                          *places, part.narrate(), *told])

    return go, text


TOOLS = {
    "autopsy": (autopsy, "the autopsy"),
    "traceback": (plain_traceback, "the traceback alone"),
    "hooks": (forward_hooks, "forward hooks on every module"),
    "global_hooks": (global_hooks, "global forward hooks"),
    "dispatch": (dispatch_mode, "a TorchDispatchMode"),
    "function": (function_mode, "a TorchFunctionMode"),
    "debug": (debug_mode, "torch's DebugMode"),
    "debug_modules": (debug_mode_modules, "DebugMode, modules and stacks on"),
    "debug_all": (debug_mode_all, "DebugMode, functions on too"),
    "torchlens": (torchlens, f"torchlens {TORCHLENS}"),
}


def dtypes(tree):
    """The dtypes of the tensors in nested lists, tuples and dicts, in their order."""
    found = [dtype_name(leaf.dtype) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    return ", ".join(found) or "none"


def under(mode, run):
    def go():
        with mode():
            return call(run)

    return go


# -------------------------------------------------------------------------------------- the judge

SPELLINGS = {"float32": r"\b(?:f32|float32|float)\b", "float16": r"\b(?:f16|float16|half)\b"}
ODD = r"\b(?:odd|mismatch\w*|differs?|disagrees?|belongs?|wrong|culprit|unexpected|expected)\b"
NONE_ODD = (rf"\b(?:no|none|nothing)\b.*{ODD}|{ODD}.*\b(?:none|nothing)\b|"
            r"\b(?:all|each|every)\b.*\b(?:operands?|inputs?|arguments?|tensors?)\b.*float32")


def sees(error, plain):
    """`yes`: the very error of the unwatched run; else what came instead."""
    if error is None:
        return "no error"
    same = type(error) is type(plain) and str(error) == str(plain)
    return "yes" if same else "another error"


def found(answers, mentions):
    """Grade the place of the right answers among all mentions of their kind, in their order."""
    if not set(answers) & set(mentions):
        return "no"
    if {mentions[0], mentions[-1]} & set(answers):
        return "yes"
    return f"among {len(set(mentions))}"


def whole(*paths):
    """A pattern of these paths, perhaps behind a root's name, but not as a part of a longer one."""
    return rf"(?<!\w)(?:{'|'.join(map(re.escape, paths))})(?!\w|\.\w)"


def module_named(text, failure, model):
    """Grade the module; the paths counted have a dot, for `norm` or `model` are words too."""
    paths = sorted((path for path, _ in model.named_modules() if "." in path), key=len)
    return found([failure.module], re.findall(whole(*reversed(paths)), text))


def operand_named(text, failure):
    """Grade the operand; see the top of this file."""
    grade = "no"
    for line in text.splitlines():
        if not failure.odd and re.search(NONE_ODD, line, re.IGNORECASE):
            return "yes"
        has = {dtype: re.search(SPELLINGS[dtype], line) for dtype in failure.dtypes}
        if (has[failure.dtypes[0]] and re.search(ODD, line, re.IGNORECASE)
                and any(re.search(rf"\b{name}\b", line) for name in failure.odd)):
            return "yes"
        calls = rf"\b(?:{'|'.join(failure.call)})\b|{whole(failure.module)}"
        if all(has.values()) and re.search(calls, line):
            grade = "shown"
    return grade


def origin_named(text, failure):
    """Grade the line of the program; None where nothing odd comes in."""
    if not failure.origin:
        return None
    # As `model.py:12`, and as in a traceback: `model.py", line 12`.
    lines = re.findall(re.escape(failure.program.name) + r"(?::|\", line )(\d+)", text)
    return found(failure.origin_lines(), [int(line) for line in lines])


def raised(go):
    try:
        go()
    except Exception as error:
        return error
    return None


def answers(tool, failure):
    """Run the failing program under `tool`, and grade what it says of the failure."""
    with steady():
        plain = raised(lambda: call(failure.prepare()))
        run = failure.prepare()
        go, text = TOOLS[tool][0](run)
        error = raised(go)
        said = text(error)
        began = clock()
        text(error)  # again: the first time also loads what it needs
        took = clock() - began
        same = same_output(tool, failure)
    result = {"sees": sees(error, plain), "same": same,
              "error": f"{type(error).__name__}: {error}" if error else None,
              "lines": len(said.splitlines()), "text_ms": round(1000 * took, 1)}
    if result["sees"] == "yes":
        said = said.replace(str(plain), "")
        result |= {"module": module_named(said, failure, run.model),
                   "operand": operand_named(said, failure),
                   "origin": origin_named(said, failure)}
    return result


# ------------------------------------------------------------------------------- what a tool costs

def healthy(tool, failure):
    """The `go` and `text` of a fresh run that does not fail, under `tool` or (None) under nothing.
    """
    run = failure.prepare(healthy=True)
    return TOOLS[tool][0](run) if tool else (lambda: call(run), lambda error: "")


def seconds(tool, failure):
    """Seconds of one healthy forward pass."""
    go, _ = healthy(tool, failure)
    began = clock()
    go()
    return clock() - began


def same_output(tool, failure):
    """`yes` if a healthy pass returns the very same numbers under `tool`; else its dtype, or `no`.
    """
    watched, plain = healthy(tool, failure)[0](), healthy(None, failure)[0]()
    if watched.dtype != plain.dtype:
        return f"no: {dtype_name(watched.dtype)}"
    return "yes" if torch.equal(watched, plain) else "no"


def held():
    """Bytes of the tensors that are alive."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
                    for t in gc.get_objects() if isinstance(t, torch.Tensor)}
    return sum(storages.values())


def kept(tool, failure):
    """Bytes held after a healthy pass, as long as the tool's record is: Python's, and tensors'."""
    start = held()
    tracemalloc.start()
    record = healthy(tool, failure)
    record[0]()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size + held() - start


def costs(tool, failure):
    """Return the times of a healthy pass with and without `tool`, in turns, and what it keeps."""
    watched, plain, began = [], [], clock()
    with steady():
        while len(plain) < 3 or (
            len(plain) < REPEATS and clock() - began < ENOUGH
        ):
            plain.append(seconds(None, failure))
            watched.append(seconds(tool, failure))
        size = max(kept(tool, failure) - kept(None, failure), 0)
    with_it, without = statistics.median(watched), statistics.median(plain)
    return {"forward_ms": 1000 * with_it, "plain_ms": 1000 * without,
            "times": with_it / without, "passes": len(plain), "kept_bytes": size}


def measure(tool, quick):
    """Return {case: answers, and costs unless quick} of one tool, in this process."""
    return {failure.case: answers(tool, failure) | ({} if quick else costs(tool, failure))
            for failure in FAILURES}


# -------------------------------------------------------------------------- all tools, one by one

def ask(command, limit=LIMIT):
    """Run `command`; return its last line read as JSON, or {"broke": what went wrong}."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", env=env,
                              timeout=limit)
    except subprocess.TimeoutExpired:
        return {"broke": f"no answer in {limit} seconds"}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        return {"broke": f"exit {done.returncode}: {last[0]}"}


def missing(tool):
    """Why `tool` cannot be had here, or None."""
    if tool != "torchlens":
        return None
    try:
        version = importlib.metadata.version("torchlens")
    except importlib.metadata.PackageNotFoundError:
        return f"torchlens is not installed: pip install torchlens=={TORCHLENS}"
    if version != TORCHLENS:
        return f"torchlens {version} is installed: pip install torchlens=={TORCHLENS}"
    return None


def size_of(count):
    return f"{count / 1e6:.1f} MB" if count >= 5e5 else f"{count / 1e3:.0f} KB"


def rows_of(results, case):
    """Lines of cells of one failure's table; a head first, and one row a tool."""
    asked = ["sees", "module", "operand"] + ["origin"] * bool(
        next(failure for failure in FAILURES if failure.case == case).origin)
    lines = [["tool", "sees the error", "module", "odd operand", "origin"][: len(asked) + 1]
             + ["same output", "forward", "keeps"]]
    for tool, result in results.items():
        row = result.get(case)
        if row is None:
            lines.append([TOOLS[tool][1], result["broke"], *[""] * (len(asked) + 2)])
            continue
        cells = [row.get(name) or "–" for name in [*asked, "same"]]
        cells += [f"×{row['times']:.{1 if row['times'] < 10 else 0}f}",
                  size_of(row["kept_bytes"])] if "times" in row else ["–", "–"]
        lines.append([TOOLS[tool][1], *cells])
    return lines


def as_text(results):
    parts = []
    for failure in FAILURES:
        lines = rows_of(results, failure.case)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        parts.append(failure.case)
        parts += ["  " + "   ".join(cell.ljust(width) for cell, width in
                                    zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(parts)


def markdown(results):
    """The tables of tests/BENCH.md, one a failure."""
    parts = []
    for failure in FAILURES:
        head, *rows = rows_of(results, failure.case)
        head[0] = cases.load(failure.case).notebook[:2] + " " + failure.case
        rule = ["---"] * len(head)
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows)))
    return "\n\n".join(parts)


def conditions(machine):
    """What the tables were measured with, in a sentence."""
    return ("On {date}, torch {torch}, transformers {transformers}, Python {python}, {processor}, "
            "one thread:".format(**machine))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tools", nargs="*", metavar="TOOL",
                        help=f"default: all; {', '.join(TOOLS)}")
    parser.add_argument("--quick", action="store_true", help="leave the times out")
    parser.add_argument("--write", action="store_true", help="put the tables into tests/BENCH.md")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    unknown = [tool for tool in args.tools if tool not in TOOLS]
    if unknown:
        print(f"bench_peers: no tool {unknown[0]!r}; allowed: {', '.join(TOOLS)}", file=sys.stderr)
        return 2
    chosen = args.tools or list(TOOLS)
    if args.write and (args.quick or args.tools):
        print("bench_peers: --write wants every tool and its times; give it alone",
              file=sys.stderr)
        return 2
    if args.here:  # the process that the lines below start
        with contextlib.redirect_stdout(sys.stderr):
            results = {tool: measure(tool, args.quick) for tool in chosen}
        print(json.dumps(results))
        return 0
    results = {}
    for tool in chosen:
        lack = missing(tool)
        if lack:
            print(lack)
            continue
        answer = ask([sys.executable, __file__, tool, "--here"] + ["--quick"] * args.quick)
        results[tool] = answer.get(tool, answer)
    machine = {"torch": torch.__version__,
               "transformers": importlib.metadata.version("transformers"),
               "python": platform.python_version(), "processor": platform.machine(),
               "cores": os.cpu_count(), "date": date.today().isoformat()}
    print(as_text(results))
    if args.write and len(results) < len(TOOLS):
        print(f"{PAGE.relative_to(ROOT).as_posix()} stays as it is: not every tool is here")
    elif args.write:
        write_whole(PAGE, filled(PAGE.read_text(encoding="utf-8"), "peers",
                                 f"{conditions(machine)}\n\n{markdown(results)}"))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": machine, "tools": results}, indent=1) + "\n")
    print(f"torch {machine['torch']}, {machine['cores']} cores, one thread; written to "
          f"{OUT.relative_to(ROOT).as_posix()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
