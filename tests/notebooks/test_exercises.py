"""Every exercise must fail as it stands and pass with its solution: each notebook in one kernel."""

import ast

import nbformat
import notebook_checks
import pytest

from cases.notebook import runner
from cases.notebook.runner import Job

NOTEBOOKS = [path for path in notebook_checks.notebooks() if not path.stem.startswith("00")]


def judged(path, folder):
    """Run a notebook with its solutions put in; return what is wrong with its exercises."""
    notebook = notebook_checks.with_solutions(nbformat.read(path, as_version=4))
    solved = folder / path.name
    nbformat.write(notebook, solved)
    result = runner.run(Job(solved), folder / "copies")
    if not result.ok:
        return [result.said]
    return list(notebook_checks.judge_exercises(nbformat.read(result.copy, as_version=4)))


@pytest.mark.slow
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_exercises(path, tmp_path):
    assert judged(path, tmp_path) == []


def test_a_solution_replaces_its_stub_only():
    exercise = "import os\n\ndef mine(run):\n    '''Yours.'''\n    pass\n\nprint(check(mine))"
    solution = "def mine(run):\n    run.x = 1\n"
    assert notebook_checks.solved(exercise, solution) == (
        "import os\n\ndef mine(run):\n    run.x = 1\n\nprint(check(mine))"
    )
    with pytest.raises(ValueError, match="the exercise has no function other"):
        notebook_checks.solved(exercise, "def other():\n    pass\n")
    ast.parse(notebook_checks.solved(exercise, "@keep\n" + solution))
