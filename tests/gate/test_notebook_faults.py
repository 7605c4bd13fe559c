"""The gate over the notebooks, tested: each of these must turn it red, for the right reason."""

import re

import nbformat
import notebook_checks
import pytest
from conftest import write_notebook

from cases.notebook import runner
from cases.notebook.runner import Job, run

pytestmark = [pytest.mark.fault, pytest.mark.usefixtures("kernels")]

EXPECT = "from cases.notebook.lesson import expect_failure\n"
BOOM = "def boom():\n    raise RuntimeError('{}')\n"
WANTED = "expect_failure({}, 'RuntimeError', 'found BFloat16')"

# What a notebook does, and what the run must say of it.
RUNS = {
    "raises nothing": (
        [EXPECT + WANTED.format("lambda: None")],
        r"AssertionError: expected RuntimeError with 'found BFloat16', but nothing was raised",
    ),
    "raises another message": (
        [EXPECT + BOOM.format("no such operator") + WANTED.format("boom")],
        r"AssertionError: expected RuntimeError .* got RuntimeError: no such operator",
    ),
    "raises another type": (
        [EXPECT + "def boom():\n    raise KeyError('found BFloat16')\n" + WANTED.format("boom")],
        r"AssertionError: expected RuntimeError .* got KeyError",
    ),
    "swallowed in a panel's callback": (
        [
            "import cases\nfrom cases.notebook import panel\n"
            "case = cases.load('encoder_bf16')\nshown = panel.Panel(case)",
            BOOM.format("lost in the browser") + "panel.ask = lambda *args: boom()\n"
            "shown.set(disable_nested_tensor=True)",
            "shown.raise_errors()",
        ],
        r"RuntimeError: the panel caught: RuntimeError: lost in the browser",
    ),
    "a bad magic": (["%nosuchmagic\nx = 1", "x"], r"UsageError: .*%nosuchmagic.* not found"),
    "an early exit": (["import sys\nsys.exit(0)", "1 / 0"], r"SystemExit: 0"),
    "an error let pass by its tag": (["1 / 0", "2"], r"ZeroDivisionError: division by zero"),
    "a killed kernel": (
        ["import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"],
        r"the kernel died: it was killed, crashed, or ran out of memory \(code cell 2\)",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_fails_where_the_notebook(name, tmp_path):
    sources, said = RUNS[name]
    tags = {0: ["raises-exception"]} if "its tag" in name else {}
    notebook = write_notebook(tmp_path / "fault.ipynb", *sources, tags=tags)
    result = run(Job(notebook), tmp_path / "copies")
    assert not result.ok
    assert re.search(said, result.said)
    assert "\n" not in result.said


def test_a_cell_that_hangs(tmp_path):
    path = write_notebook(tmp_path / "hang.ipynb", "import time\ntime.sleep(1000)")
    result = run(Job(path), tmp_path, cell_timeout=2)
    assert (result.ok, result.said) == (False, "a cell took longer than its 2 s (code cell 2)")


def test_a_notebook_that_takes_too_long(tmp_path):
    path = write_notebook(tmp_path / "slow.ipynb", *["import time\ntime.sleep(1)"] * 20)
    result = run(Job(path), tmp_path, timeout=4)
    assert not result.ok
    assert result.said.startswith("the notebook took longer than its 4 s")


def test_an_unknown_parameter(tmp_path, capsys):
    path = write_notebook(tmp_path / "small.ipynb", "print(dtype)")
    code = runner.main([str(path), "-p", "dtpye", "float16", "--out", str(tmp_path)])
    assert code == 2
    said = capsys.readouterr()
    assert said.err == ("run_notebooks: unknown parameter 'dtpye' of small; "
                        "allowed: device, dtype, torch\n")
    assert said.out == "" and not (tmp_path / "notebooks").exists()


def test_a_wrong_value_that_is_accepted(tmp_path):
    path = write_notebook(tmp_path / "meek.ipynb", "print(dtype)")
    result = run(Job(path, {"dtype": "float99"}, refuse="dtype"), tmp_path)
    assert not result.ok
    assert result.said.startswith("dtype=float99 must be refused in one line")


def test_a_wrong_value_that_crashes_later(tmp_path):
    path = write_notebook(tmp_path / "late.ipynb", "raise TypeError(f'two\\nlines about {dtype}')")
    result = run(Job(path, {"dtype": "float99"}, refuse="dtype"), tmp_path)
    assert not result.ok
    assert "TypeError: two lines about float99" in result.said


# ------------------------------------------------------------------ stored outputs

FIX = """import cases
from cases.lab.run import run
def my_fix(run):
    run.model.encoder.enable_nested_tensor = False
    run.model.encoder.use_nested_tensor = False
print(run(cases.load("encoder_bf16"), fixes=[my_fix], training=False).verdict)"""


def stored(path, *sources):
    """A notebook executed in place, as --refresh leaves it."""
    write_notebook(path, *sources)
    result = runner.refresh(Job(path), path.parent)
    assert result.ok, result.said
    return path


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_stored_output_that_was_changed(tmp_path):
    path = stored(tmp_path / "sum.ipynb", "print('answer', 6 * 7)")
    assert not notebook_checks.compare(path)[0]
    change(path, "answer 42", "answer 43")
    red, said = notebook_checks.compare(path)
    assert red and "answer 42" in said and "answer 43" in said


def test_a_fix_made_a_no_op(tmp_path):
    path = stored(tmp_path / "fix.ipynb", FIX)
    change(path, "    run.model.encoder.enable_nested_tensor = False", "    pass")
    change(path, "    run.model.encoder.use_nested_tensor = False", "    pass")
    red, said = notebook_checks.compare(path)
    assert red and "'runs\\n' == 'fails\\n'" in said


def test_outputs_stripped(tmp_path):
    path = stored(tmp_path / "strip.ipynb", "print('answer', 6 * 7)")
    notebook = nbformat.read(path, as_version=4)
    assert notebook_checks.lint(notebook) == []
    for cell in runner.code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, path)
    assert not notebook_checks.compare(path)[0], "nbval alone passes it, so the lint must not"
    assert notebook_checks.lint(notebook) == [
        "code cell 1 was not run: no execution count",
        "code cell 2 was not run: no execution count",
        "code cell 2 prints, but has no stored output",
    ]


# ------------------------------------------------------------------ exercises

JUDGE = "print('✓ solved' if my_fix(1) == 2 else '✗ not yet')"
DETAILS = ("<details><summary>A solution</summary>\n\n```python\ndef my_fix(x):\n"
           "    return {}\n```\n\n</details>")


def exercised(path, stub, solution):
    """Judge a notebook with one exercise."""
    write_notebook(path, f"def my_fix(x):\n    return {stub}\n\n{JUDGE}", tags={0: ["exercise"]})
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_markdown_cell(DETAILS.format(solution)))
    nbformat.write(notebook_checks.with_solutions(notebook), path)
    result = run(Job(path), path.parent / "copies")
    assert result.ok, result.said
    return list(notebook_checks.judge_exercises(nbformat.read(result.copy, as_version=4)))


@pytest.mark.parametrize(
    ("stub", "solution", "said"),
    [("None", "x", "the solution of exercise 1 must say '✓ solved'"),
     ("x + 1", "x + 1", "exercise 1, unsolved, must say '✗ not yet'")],
    ids=["a solution that does not solve", "an exercise that is solved from the start"],
)
def test_exercise(tmp_path, stub, solution, said):
    found = exercised(tmp_path / "exercise.ipynb", stub, solution)
    assert len(found) == 1 and found[0].startswith(said)
