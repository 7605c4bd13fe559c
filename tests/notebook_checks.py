"""What is asked of a committed notebook: stored outputs that still hold, form, and exercises.

Each check returns lines that say what is wrong, none where all is well.
"""

import ast
import copy
import os
import re
import subprocess
import sys
from pathlib import Path

from cases.notebook.runner import CELL_TIMEOUT, ROOT, SANITIZE, WIDGET_VIEW, code_cells

# The shape of a notebook about a case: see DESIGN, "Notebooks".
CODE_CELLS = range(8, 15)
LINES = 12
WORDS = range(400, 901)
EXERCISES = 2
PARAMETERS = {"device", "dtype", "torch"}

IMAGES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif")
UNSTABLE = {
    "the path of a machine": r"(?<![\w.<])/(?:home|root|work|opt|usr|var|tmp|mnt|Users|private)/\w|"
                             r"\b[A-Z]:\\\w",
    "a process id": r"ipykernel_\d+|\bpid[ =:]+\d+",
    "a clock": r"\b\d{1,2}:\d\d:\d\d\b|\d\d:\d\d ?(?:UTC|[AP]M)\b",
    "an address": r"\b0x[0-9a-f]{6,}\b",
}


# ------------------------------------------------------------------ stored outputs


def compare(notebook):
    """Run a notebook under strict nbval; return (differences found, what nbval printed)."""
    start = "from cases.notebook import fast_start; import pytest, sys; sys.exit(pytest.main())"
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", start, "-q", "-p", "no:cacheprovider", "--color=no", "--nbval",
         "--nbval-kernel-name=python3", f"--nbval-sanitize-with={SANITIZE}",
         f"--nbval-cell-timeout={CELL_TIMEOUT}", f"--rootdir={notebook.parent}",
         "-c", "/dev/null" if sys.platform != "win32" else "NUL", str(notebook)],
        cwd=notebook.parent, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, encoding="utf-8",
    )
    return done.returncode != 0, done.stdout + done.stderr


# ------------------------------------------------------------------ form


def lint(notebook, shape=False):
    """Return what is wrong with a notebook's form. shape: also hold it to a case's shape."""
    checks = (outputs_stored, nothing_hidden, nothing_unstable, parameters_tagged,
              images_described, headings_in_order, solutions_have_exercises)
    return [line for check in checks + ((in_shape,) if shape else ()) for line in check(notebook)]


def numbered(notebook):
    return enumerate(code_cells(notebook), start=1)


def prose(notebook):
    """The markdown cells' text, without the code in them."""
    return [re.sub(r"^```.*?^```", "", cell.source, flags=re.M | re.S)
            for cell in notebook.cells if cell.cell_type == "markdown"]


def texts_of(output):
    """Yield (MIME type, text) of all an output shows."""
    if output.output_type == "stream":
        yield "text/plain", output.text
    for mime, data in output.get("data", {}).items():
        yield mime, data if isinstance(data, str) else "".join(map(str, data))


def prints(source):
    """True if a cell prints by itself, not only in a function that it defines."""
    nodes = [ast.parse("\n".join(
        line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))
    ))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print":
            return True
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.If, ast.For)):
            nodes += ast.iter_child_nodes(node)
    return False


def outputs_stored(notebook):
    for number, cell in numbered(notebook):
        if cell.source.strip() and cell.execution_count is None:
            yield f"code cell {number} was not run: no execution count"
        if prints(cell.source) and not cell.outputs:
            yield f"code cell {number} prints, but has no stored output"
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"code cell {number} has an error as its stored output"


def nothing_hidden(notebook):
    """Nothing by which a failure could pass unseen, and no widget that cannot be shown again."""
    if "widgets" in notebook.metadata:
        yield "the notebook carries widget state"
    for number, cell in numbered(notebook):
        if "raises-exception" in cell.metadata.get("tags", []):
            yield f"code cell {number} is tagged raises-exception: then it may also not raise"
        found = re.search(r"\bOutput\(|\binteract\w*\(", cell.source)
        if found:
            yield f"code cell {number} uses {found[0][:-1]}: what is raised in it is swallowed"
        if any(WIDGET_VIEW in output.get("data", {}) for output in cell.outputs):
            yield f"code cell {number} has a widget's view as its stored output"


def nothing_unstable(notebook):
    for number, cell in numbered(notebook):
        for output in cell.outputs:
            for mime, text in texts_of(output):
                text = re.sub(r"data:image/[^\"')]+", "", text)
                for what, pattern in UNSTABLE.items():
                    hit = None if mime in IMAGES else re.search(pattern, text)
                    if hit:
                        yield f"code cell {number} shows {what}: {hit[0]}"


def parameters_tagged(notebook):
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1 or tagged[0].cell_type != "code":
        yield f"{len(tagged)} cells are tagged parameters; there must be one, of code"
        return
    names = set(re.findall(r"^(\w+)\s*(?::[^=]+)?=", tagged[0].source, flags=re.M))
    for name in sorted(PARAMETERS - names):
        yield f"the parameters lack {name}"


def images_described(notebook):
    """Alternative text everywhere. An image as raw output loses it, so there is none of that."""
    for number, cell in numbered(notebook):
        for output in cell.outputs:
            for mime, text in texts_of(output):
                if mime in IMAGES:
                    yield f"code cell {number} shows a raw {mime}, which has no alternative text"
                elif mime == "text/html":
                    yield from (f"code cell {number} shows {what}" for what in undescribed(text))
    for text in prose(notebook):
        if re.search(r"!\[\s*\]\(", text):
            yield "markdown has an image without alternative text"
        yield from (f"markdown has {what}" for what in undescribed(text))


def undescribed(text):
    for tag in re.findall(r"<img\b[^>]*>", text):
        if not re.search(r"\balt=([\"'])\s*[^\"'\s]", tag):
            yield "an <img> without alternative text"
    for tag in re.findall(r"<svg\b[^>]*>", text):
        if not re.search(r"aria-label(ledby)?=|aria-hidden=", tag):
            yield "an <svg> without aria-label"


def headings_in_order(notebook):
    levels = [len(marks) for text in prose(notebook)
              for marks in re.findall(r"^(#{1,6})\s", text, flags=re.M)]
    if levels.count(1) != 1 or levels[:1] != [1]:
        yield "the first heading, and no other, must be of level 1"
    for before, after in zip(levels, levels[1:], strict=False):
        if after > before + 1:
            yield f"a heading of level {after} follows one of level {before}"


def solutions_have_exercises(notebook):
    """Each solution follows its exercise, and each exercise has a solution."""
    waiting = None
    for cell in notebook.cells:
        if is_exercise(cell):
            if waiting is not None:
                yield "an exercise has no solution before the next exercise"
            waiting = cell
        elif cell.cell_type == "markdown" and "<details" in cell.source:
            if "<summary" not in cell.source:
                yield "a <details> has no <summary>"
            if solution_in(cell) is None:
                continue
            if waiting is None:
                yield "a solution follows no exercise"
            waiting = None
    if waiting is not None:
        yield "the last exercise has no solution"


def in_shape(notebook):
    code, texts = code_cells(notebook), prose(notebook)
    words = sum(bool(re.search(r"\w", word))
                for text in texts for word in re.sub(r"<[^>]+>", " ", text).split())
    if len(code) not in CODE_CELLS:
        yield f"{len(code)} code cells; {CODE_CELLS[0]} to {CODE_CELLS[-1]} are asked for"
    if words not in WORDS:
        yield f"{words} words of prose; {WORDS[0]} to {WORDS[-1]} are asked for"
    if len(texts) < len(code):
        yield f"{len(texts)} prose cells for {len(code)} code cells; at least as many are asked for"
    for number, cell in numbered(notebook):
        lines = len(cell.source.splitlines())
        if lines > LINES:
            yield f"code cell {number} has {lines} lines; at most {LINES} are asked for"
    exercises = sum(map(is_exercise, notebook.cells))
    if exercises < EXERCISES:
        yield f"{exercises} exercises; at least {EXERCISES} are asked for"


# ------------------------------------------------------------------ exercises


def is_exercise(cell):
    return cell.cell_type == "code" and "exercise" in cell.metadata.get("tags", [])


def solution_in(cell):
    """The Python in a markdown cell's <details>, or None."""
    details = re.search(r"<details.*?</details>", cell.source, flags=re.S)
    block = details and re.search(r"^```python\n(.*?)^```", details[0], flags=re.M | re.S)
    return block[1] if block else None


def solved(exercise, solution):
    """An exercise's source with the functions that the solution defines put in; the rest stays.

    Raises ValueError if they share no function.
    """
    lines = exercise.splitlines()
    names = {node.name for node in ast.parse(solution).body if isinstance(node, ast.FunctionDef)}
    stubs = [node for node in ast.parse(exercise).body
             if isinstance(node, ast.FunctionDef) and node.name in names]
    if not stubs:
        raise ValueError(f"the exercise has no function {' or '.join(sorted(names))}")
    for node in reversed(stubs):
        del lines[node.lineno - 1 : node.end_lineno]
    lines[stubs[0].lineno - 1 : stubs[0].lineno - 1] = solution.rstrip().splitlines()
    return "\n".join(lines)


def defines(cell):
    """True if a later cell may need this one: it does more than show the value of expressions."""
    try:
        return not all(isinstance(node, ast.Expr) for node in ast.parse(cell.source).body)
    except SyntaxError:  # a magic
        return True


def with_solutions(notebook):
    """A copy of a notebook's setup and exercises, each exercise followed by itself, solved.

    Cells that only show something are left out, to save time.
    """
    cells, changed = [], copy.deepcopy(notebook)
    for place, cell in enumerate(changed.cells):
        if cell.cell_type == "markdown" or is_exercise(cell) or defines(cell):
            cells.append(cell)
        if not is_exercise(cell):
            continue
        after = (solution_in(c) for c in changed.cells[place:] if c.cell_type == "markdown")
        answer = copy.deepcopy(cell)
        answer.id = f"{cell.id}-solved"
        answer.source = solved(cell.source, next(text for text in after if text is not None))
        answer.metadata.tags = ["solution"]
        cells.append(answer)
    changed.cells = cells
    return changed


def judge_exercises(executed):
    """What is wrong in an executed copy of `with_solutions`."""
    count = 0
    for cell in code_cells(executed):
        said = "".join(text for output in cell.outputs for mime, text in texts_of(output)
                       if mime == "text/plain")
        if is_exercise(cell):
            count += 1
            if "✗ not yet" not in said or "✓ solved" in said:
                yield f"exercise {count}, unsolved, must say '✗ not yet'; it says {said!r}"
        elif "solution" in cell.metadata.get("tags", []):
            if "✓ solved" not in said or "✗ not yet" in said:
                yield f"the solution of exercise {count} must say '✓ solved'; it says {said!r}"


def notebooks():
    """The committed notebooks."""
    return sorted(Path(ROOT, "notebooks").glob("*.ipynb"))
