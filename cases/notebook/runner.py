"""Run the notebooks under papermill, or refresh their stored outputs.

    python -m cases.notebook.runner                          all, with default parameters
    python -m cases.notebook.runner 01_encoder_bf16 -p dtype float16
    python -m cases.notebook.runner --variants               also the other dtypes and wrong values
    python -m cases.notebook.runner --refresh                execute in place and tidy

Executed copies go to build/notebooks/, one folder an invocation; build/report.html shows the
newest, and report.xml (JUnit) and report.json beside it say the same to a program. Exit 0: all
ran. Exit 1: one or more did not, or nothing can be written. Exit 2: bad arguments, nothing was run.
Exit 130 or 143: it was asked to stop, and has ended the kernels.
"""

import argparse
import ast
import contextlib
import functools
import hashlib
import html
import json
import logging
import os
import re
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from cases.notebook import fast_start  # noqa: F401

# isort: split
import nbformat
import papermill
import psutil
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError, strip_color
from tqdm import tqdm

from cases.halftruths.base import BadInput, OneLineParser
from cases.lab.base import ROOT

NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "build"
SANITIZE = Path(__file__).with_name("sanitize.cfg")

CELL_TIMEOUT = 60  # seconds
TIMEOUT = 300  # seconds
DTYPES = ("float16", "bfloat16")
# One value that does not exist for each parameter. The notebook must refuse it in one line.
WRONG = {"device": "tpu", "dtype": "float99", "torch": "torch-0.1"}
TAIL = 12  # lines of a traceback shown in the report

# Cells that papermill adds to a copy, the parameters given and where an error is.
ADDED = {"injected-parameters", "papermill-error-cell-tag"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# The file that a cell is, in a warning; sanitize.cfg has the same for nbval.
CELL_FILE = r"(?m)^\S*ipykernel_\d+[/\\]\d+\.py"
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class Job:
    """One run to do. `refuse` names a parameter whose value the notebook must not accept."""

    notebook: Path
    parameters: dict = field(default_factory=dict)
    refuse: str | None = None

    @property
    def name(self):
        values = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.notebook.stem} {values}".strip()

    @property
    def file_name(self):
        return re.sub(r"[^\w.=-]+", "-", self.name)


@dataclass
class Result:
    """What became of a job. `said` is one line; `tail` the last lines of the error, if any."""

    job: Job
    ok: bool
    seconds: float
    said: str = ""
    tail: str = ""
    copy: Path | None = None


# ------------------------------------------------------------------ before a run


def use_this_python(scratch):
    """Make kernels started from here use this Python, this checkout and no one's own settings.

    Changes the environment of this process. scratch: a folder for IPython's files.
    """
    path = os.environ.get("PYTHONPATH")
    os.environ.update(
        JUPYTER_PATH=str(Path(sys.prefix) / "share" / "jupyter"),
        PYTHONPATH=os.pathsep.join([str(ROOT)] + ([path] if path else [])),
        IPYTHONDIR=str(scratch),
        HF_HUB_OFFLINE="1",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
    )
    os.environ.pop("MPLBACKEND", None)  # the kernel's own, which shows figures in the notebook


def pick(names):
    """Return the notebooks named (as name, number, case, file name or path); all if none is named.

    Raises BadInput for one that does not exist.
    """
    known = sorted(NOTEBOOKS.glob("*.ipynb"))
    if not names:
        if not known:
            raise BadInput(f"no notebooks in {shown(NOTEBOOKS)}")
        return known
    picked = []
    for name in names:
        path = Path(name)
        if path.suffix == ".ipynb" and path.is_file():
            picked.append(path.resolve())
            continue
        found = [p for p in known if name in (p.stem, p.name, *p.stem.split("_", 1))]
        if not found:
            allowed = ", ".join(p.stem for p in known) or "none"
            raise BadInput(f"unknown notebook {name!r}; allowed: {allowed}")
        picked.append(found[0])
    picked = list(dict.fromkeys(picked))
    if len({path.stem for path in picked}) < len(picked):
        raise BadInput("two notebooks of one name: their copies would overwrite each other")
    return picked


def defaults(notebook):
    """Return {name: default} of a notebook's parameters, from its cell tagged `parameters`.

    Papermill's own inspection misses annotated parameters. {} where there is no such cell.
    Raises BadInput for a file that is no notebook.
    """
    try:
        cells = nbformat.read(notebook, as_version=4).cells
        tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
        lines = [node for cell in tagged for node in ast.parse(cell.source).body]
    except (ValueError, SyntaxError, nbformat.ValidationError) as error:
        raise BadInput(one_line(f"{notebook.name} is not a notebook: {error}")[:200]) from None
    found = {}
    for node in lines:
        annotated = [node.target] if isinstance(node, ast.AnnAssign) else []
        for target in node.targets if isinstance(node, ast.Assign) else annotated:
            found[ast.unparse(target)] = value_of(ast.unparse(node.value))
    return found


def check_parameters(notebook, parameters):
    """Raise BadInput for a parameter that the notebook lacks; papermill would only log it."""
    allowed = defaults(notebook)
    for name in parameters:
        if name not in allowed:
            raise BadInput(
                f"unknown parameter {name!r} of {notebook.stem}; "
                f"allowed: {', '.join(allowed) or 'none'}"
            )


def value_of(text):
    """A parameter's value: a Python literal (3, True, None) or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def variants(notebook, parameters):
    """Yield the jobs of a notebook: as asked, the other dtypes, one wrong value a parameter."""
    known = defaults(notebook)
    yield Job(notebook, parameters)
    for dtype in DTYPES:
        if "dtype" in known and dtype != parameters.get("dtype", known["dtype"]):
            yield Job(notebook, {**parameters, "dtype": dtype})
    for name, value in WRONG.items():
        if name in known:
            yield Job(notebook, {**parameters, name: value}, refuse=name)


# ------------------------------------------------------------------ a run


def limited(cell_timeout, timeout):
    """Return nbclient's `timeout_func`: a cell's limit, or what is left of the notebook's."""
    end = time.monotonic() + timeout
    return lambda cell: max(1, min(cell_timeout, end - time.monotonic()))


def execute(source, copy, parameters, cell_timeout=CELL_TIMEOUT, timeout=TIMEOUT):
    """Execute a notebook in a kernel of its own, write the executed copy, and return it.

    Raises whatever stopped it: PapermillExecutionError, CellTimeoutError, DeadKernelError.
    """
    copy.parent.mkdir(parents=True, exist_ok=True)
    return papermill.execute_notebook(
        str(source), str(copy), parameters, kernel_name="python3", language="python",
        progress_bar=False, autosave_cell_every=0, timeout_func=limited(cell_timeout, timeout),
        resources={"metadata": {"path": str(source.parent)}},
        shutdown_kernel="immediate", coalesce_streams=True, store_widget_state=False,
        extra_arguments=["--log-level=ERROR"],
    )


def run(job, folder, cell_timeout=CELL_TIMEOUT, timeout=TIMEOUT):
    """Run one job; return its Result. Never raises for what the notebook does."""
    copy = folder / f"{job.file_name}.ipynb"
    began = time.monotonic()
    said, tail, error = "", "", None
    try:
        said = unfinished(execute(job.notebook, copy, job.parameters, cell_timeout, timeout))
    except PapermillExecutionError as caught:
        error = caught
        said = one_line(f"{error.ename}: {error.evalue}")
        tail = last_lines("\n".join(error.traceback))
    except DeadKernelError:
        said = "the kernel died: it was killed, crashed, or ran out of memory"
    except CellTimeoutError:
        limit = min(cell_timeout, timeout)
        over = time.monotonic() - began >= timeout
        said = (f"the notebook took longer than its {timeout:g} s" if over
                else f"a cell took longer than its {limit:g} s")
    except Exception as caught:  # the notebook cannot be read, the kernel does not start, …
        said = one_line(f"{type(caught).__name__}: {caught}")
        tail = last_lines(str(caught))
    number, cell = last_started(copy) if said and copy.exists() else (0, None)
    if cell and error and not error.traceback:  # a bad magic: all there is went to stderr
        tail = last_lines(stderr_of(cell))
        said = one_line(tail) or said
    if cell:
        said += f" (code cell {number})"
    seconds = time.monotonic() - began
    if job.refuse:
        said = not_refused(job, error, said)
    return Result(job, not said, seconds, said, tail, copy if copy.exists() else None)


def one_line(text):
    return " ".join(strip_color(text).split())


def last_lines(text):
    return "\n".join(strip_color(text).rstrip().splitlines()[-TAIL:])


def last_started(copy):
    """Return (number, cell) of the last code cell that was started; (0, None) if none was."""
    found = 0, None
    for number, cell in enumerate(code_cells(nbformat.read(copy, as_version=4)), start=1):
        if cell.metadata.get("papermill", {}).get("start_time"):
            found = number, cell
    return found


def stderr_of(cell):
    return "".join(output.text for output in cell.outputs if output.get("name") == "stderr")


def unfinished(notebook):
    """Say what papermill does not: an error it let pass, or a cell that never ran; else ''."""
    for count, cell in enumerate(code_cells(notebook), start=1):
        for output in cell.outputs:
            if output.output_type == "error":
                return one_line(f"{output.ename}: {output.evalue}")
        if cell.source.strip() and cell.execution_count is None:
            return f"code cell {count} did not run"
    return ""


def not_refused(job, error, said):
    """Say how a wrong value was not refused in one line that names it; '' if it was."""
    value = job.parameters[job.refuse]
    lines = error.evalue.strip().splitlines() if error else []
    if len(lines) == 1 and value in lines[0] and "allowed" in lines[0]:
        return ""
    return (f"{job.refuse}={value} must be refused in one line that says what is allowed; "
            f"it said: {said or 'nothing'}")


def code_cells(notebook):
    """The code cells that someone wrote; papermill injects one more."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"
            and not ADDED & set(cell.metadata.get("tags", []))]


def run_all(work, jobs, at_once, done):
    """Call `work` on each job, some at once; return the Results in the jobs' order.

    done: called with each Result as it comes.
    """
    bar = tqdm(total=len(jobs), unit="run", disable=not sys.stderr.isatty())
    with bar, ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(work, job) for job in jobs]
        try:
            for future in as_completed(waiting):
                bar.clear()
                done(future.result())
                bar.update()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            # A kernel is in a session of its own: a terminal's Ctrl-C does not reach it.
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            raise
    return [future.result() for future in waiting]


class Stopped(KeyboardInterrupt):
    """A signal asked this process to stop. number: which."""

    def __init__(self, number):
        self.number = number


def stop(number, frame):
    raise Stopped(number)


def line_of(result):
    """One line for the terminal."""
    word = "ok" if result.ok else "failed"
    if result.ok and result.job.refuse:
        word = "refused"
    text = f"{word:8}{result.seconds:6.1f} s  {result.job.name}"
    return f"{text}: {result.said}" if result.said else text


def shown(path):
    """A path as seen from the project's folder, where it lies in it."""
    path = Path(path)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


# ------------------------------------------------------------------ tidy stored outputs


def tidy(notebook, before=None):
    """Strip what papermill added, what changes from run to run, and what cannot be shown again.

    Changes the notebook and returns it.
    before: the notebook as it was; a Python of the same minor version leaves its version be.
    """
    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if ADDED & set(tags):
            continue
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items()
             if key not in ("papermill", "execution", "tags", "ExecuteTime")}
        )
        if tags:
            cell.metadata.tags = tags
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(tidy_output, cell.outputs) if output]
        cells.append(cell)
    notebook.cells = cells
    give_ids(notebook)
    language = dict(notebook.metadata.get("language_info", {"name": "python"}))
    if before is not None:
        old = before.metadata.get("language_info", {}).get("version", "")
        if old.split(".")[:2] == language.get("version", "").split(".")[:2]:
            language["version"] = old
    for key in ("papermill", "widgets"):
        notebook.metadata.pop(key, None)
    notebook.metadata.update(nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": language}
    ))
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def tidy_output(output):
    """An output without a widget's view; None if only the widget's bare repr would be left.

    A view points to a kernel that is gone: reopened, it shows "model not found".
    """
    data = output.get("data", {})
    if output.output_type == "stream":
        output.text = re.sub(CELL_FILE, "<cell>", output.text)
    if WIDGET_VIEW in data:
        del data[WIDGET_VIEW]
        if set(data) <= {"text/plain"}:
            return None
    return output


def give_ids(notebook):
    """Cell ids from the cells' own text, so that making a notebook anew changes no id."""
    seen = {}
    for cell in notebook.cells:
        text = f"{cell.cell_type}\n{cell.source}"
        seen[text] = seen.get(text, 0) + 1
        cell.id = hashlib.sha256(f"{seen[text]}\n{text}".encode()).hexdigest()[:8]


def refresh(job, folder, cell_timeout=CELL_TIMEOUT, timeout=TIMEOUT):
    """Run a job with default parameters and store the outputs in its notebook, tidied.

    The file is replaced whole, and only where the run succeeded. Returns the Result.
    """
    result = run(job, folder, cell_timeout, timeout)
    if result.ok:
        before = nbformat.read(job.notebook, as_version=4)
        after = tidy(nbformat.read(result.copy, as_version=4), before)
        replace(job.notebook, nbformat.writes(after) + "\n")
    return result


def replace(path, text):
    """Write a file whole, by way of a temporary one beside it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


# ------------------------------------------------------------------ the report

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Half Truths: notebook runs</title>
<style>
:root {{ color-scheme: light dark; background: Canvas; color: CanvasText }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
caption {{ text-align: left; padding-bottom: .5rem }}
th, td {{ text-align: left; vertical-align: top; padding: .35rem 1rem .35rem 0;
  border-bottom: 1px solid GrayText; font-weight: normal; white-space: nowrap }}
td:last-child {{ width: 100%; white-space: normal; overflow-wrap: anywhere }}
thead th {{ font-weight: bold }}
td.number {{ text-align: right }}
pre {{ font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0 }}
</style>
</head>
<body>
<main>
<h1>Half Truths: notebook runs</h1>
<p>{summary}</p>
<h2>Runs</h2>
<table>
<caption>A wrong value must be refused in one line: that run is ✓ when it is.</caption>
<thead><tr><th scope="col">notebook</th><th scope="col">parameters</th><th scope="col">result</th>
<th scope="col">seconds</th><th scope="col">what it said</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</main>
</body>
</html>
"""


def write_report(results, path):
    """Write one HTML page of all results, which asks for no other host."""
    failed = sum(not result.ok for result in results)
    seconds = sum(result.seconds for result in results)
    summary = (f"{len(results)} runs, {failed} failed, {seconds:.0f} s of kernels, "
               f"Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d %H:%M')}")
    page = PAGE.format(summary=html.escape(summary),
                       rows="\n".join(row_of(result, path.parent) for result in results))
    replace(path, page)


def write_json(results, path):
    """Write a list of all results: notebook, parameters, ok, seconds, said and tail."""
    records = [{"notebook": result.job.notebook.stem, "parameters": result.job.parameters,
                "ok": result.ok, "seconds": round(result.seconds, 1), "said": result.said,
                "tail": result.tail} for result in results]
    replace(path, json.dumps(records, indent=1, ensure_ascii=False) + "\n")


def write_junit(results, path):
    """Write JUnit XML, which the services that run tests show notebook by notebook."""
    suite = ElementTree.Element("testsuite", name="notebooks", tests=str(len(results)), errors="0",
                                failures=str(sum(not result.ok for result in results)),
                                time=f"{sum(result.seconds for result in results):.1f}")
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", classname="notebooks",
                                      name=result.job.name, time=f"{result.seconds:.1f}")
        if not result.ok:
            failure = ElementTree.SubElement(case, "failure", message=printable(result.said))
            failure.text = printable(result.tail)
    replace(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n")


def printable(text):
    """A text without the control characters that XML has no way to write."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "", text)


def row_of(result, folder):
    job = result.job
    name = html.escape(job.notebook.stem)
    exported = export(result.copy) if result.copy else None
    if exported:
        link = html.escape(Path(os.path.relpath(exported, folder)).as_posix())
        label = html.escape(f"executed copy of {job.name}")
        name = f'<a href="{link}" aria-label="{label}">{name}</a>'
    values = html.escape(", ".join(f"{k}={v}" for k, v in job.parameters.items()) or "default")
    sign = "✓ refused" if result.ok and job.refuse else "✓ ok" if result.ok else "✗ failed"
    said = html.escape(result.said)
    if result.tail:
        said += f"<pre>{html.escape(result.tail)}</pre>"
    return (f'<tr><th scope="row">{name}</th><td>{values}</td><td>{sign}</td>'
            f'<td class="number">{result.seconds:.1f}</td><td>{said}</td></tr>')


def export(copy):
    """Write an executed copy as HTML that needs no other host; return its path.

    Widgets are shown by their tables, for their views need a kernel or a download.
    """
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="lab", exclude_input_prompt=True, exclude_output_prompt=True,
        require_js_url="", mathjax_url="", embed_images=True,
    )
    notebook = tidy(nbformat.read(copy, as_version=4))
    for cell in code_cells(notebook):
        for output in cell.outputs:  # a terminal's colours are hard to read on paper white
            if output.output_type == "error":
                output.traceback = [strip_color(line) for line in output.traceback]
    text, _ = exporter.from_notebook_node(
        notebook, resources={"metadata": {"name": copy.stem, "path": str(NOTEBOOKS)}}
    )
    path = copy.with_suffix(".html")
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------ the command line


def parse(argv):
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="default: all of them")
    parser.add_argument("-p", "--parameter", nargs=2, action="append", default=[],
                        metavar=("NAME", "VALUE"), help="set a parameter; NAME=VALUE is the same")
    parser.add_argument("--variants", action="store_true",
                        help="also the other dtypes, and wrong values, which must be refused")
    parser.add_argument("--refresh", action="store_true",
                        help="execute in place and store the outputs, tidied")
    parser.add_argument("--cell-timeout", type=float, default=CELL_TIMEOUT, metavar="SECONDS")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS",
                        help="for a whole notebook")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), metavar="N",
                        help="how many at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=BUILD, metavar="DIR", help="default: build")
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_intermixed_args([
        part for before, word in zip(["", *argv], argv, strict=False)
        for part in (word.split("=", 1) if before in ("-p", "--parameter") else [word])
    ])
    if args.refresh and (args.parameter or args.variants):
        raise BadInput("--refresh stores the outputs of the default parameters: leave -p and "
                       "--variants out")
    if args.jobs < 1 or args.cell_timeout <= 0 or args.timeout <= 0:
        raise BadInput("--jobs, --cell-timeout and --timeout take numbers above 0")
    return args


def main(argv=None):
    try:
        args = parse(argv)
        notebooks = pick(args.notebooks)
        parameters = {name: value_of(text) for name, text in args.parameter}
        jobs = []
        for notebook in notebooks:
            check_parameters(notebook, parameters)
            jobs += variants(notebook, parameters) if args.variants else [Job(notebook, parameters)]
    except BadInput as error:
        print(f"run_notebooks: {error}", file=sys.stderr)
        return 2
    try:
        return run_jobs(jobs, args)
    except KeyboardInterrupt as stopped:
        print("run_notebooks: stopped; its kernels are ended, and no report is written",
              file=sys.stderr)
        return 128 + getattr(stopped, "number", signal.SIGINT)
    except OSError as error:  # a folder that cannot be made, a disk that is full
        print(f"run_notebooks: {error.filename or args.out}: {error.strerror or error}; "
              "--out DIR writes elsewhere", file=sys.stderr)
        return 1


def run_jobs(jobs, args):
    """Run jobs, print a line for each and write the reports; return the exit status."""
    runs = args.out / "notebooks"
    runs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs))
    use_this_python(folder / "ipython")
    for name in ("papermill", "asyncio", "traitlets"):  # what they log is in the results
        logging.getLogger(name).setLevel(logging.CRITICAL)
    work = functools.partial(refresh if args.refresh else run, folder=folder,
                             cell_timeout=args.cell_timeout, timeout=args.timeout)
    results = run_all(work, jobs, args.jobs, lambda result: print(line_of(result), flush=True))
    report = args.out / "report.html"
    write_report(results, report)
    write_json(results, report.with_suffix(".json"))
    write_junit(results, report.with_suffix(".xml"))
    failed = sum(not result.ok for result in results)
    print(f"{len(results) - failed} of {len(results)} runs as they should be; "
          f"report: {shown(report.resolve())}")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
