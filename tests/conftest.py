"""Shared by the tests: kernels of this Python, small notebooks, the two workers, the faults caught.

pytest-xdist runs two tests at once, in two workers. A file's tests stay together and in order, for
some share what is dear to make; those of the files in APART are long, and each goes where there is
time. `pytest -n 0` runs all in one process.
"""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: a core a worker
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import nbformat
import pytest

from cases.notebook import runner

PARAMETERS = 'device = "cpu"\ndtype = "bfloat16"\ntorch = "torch-2.13"'


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Kernels started in a test use this Python and no one's own settings; undone afterwards."""
    before = dict(os.environ)
    runner.use_this_python(tmp_path_factory.mktemp("ipython"))
    yield
    os.environ.clear()
    os.environ.update(before)


def write_notebook(path, *sources, tags=(), parameters=PARAMETERS):
    """Write a notebook of code cells under a heading; return its path.

    tags: {number of a source, from 0: list of tags}.
    """
    cells = [nbformat.v4.new_markdown_cell("# A small notebook")]
    if parameters:
        cells.append(nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    for number, source in enumerate(sources):
        cell = nbformat.v4.new_code_cell(source)
        if number in dict(tags):
            cell.metadata.tags = dict(tags)[number]
        cells.append(cell)
    notebook = runner.tidy(nbformat.v4.new_notebook(cells=cells))
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    return path


# ------------------------------------------------------------------ two workers

APART = ("test_exercises.py", "test_stored_outputs.py", "test_runner.py", "test_notebook_faults.py")


def pytest_collection_modifyitems(items):
    """The files with long tests first, so that no worker is left with one at the end."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return nodeid if file.endswith(APART) else file

    return ByFile(config, log)


# ------------------------------------------------------------------ "gate: 12 of 12 faults caught"

faults = {}  # by test: whether the gate caught it


def pytest_configure(config):
    config.addinivalue_line("markers", "fault: the gate must catch it; counted at the end")


def pytest_runtest_logreport(report):
    """From reports alone: with workers, this process collects nothing."""
    if "fault" in report.keywords and report.when != "teardown":
        faults[report.nodeid] = report.when == "call" and report.passed


def pytest_terminal_summary(terminalreporter):
    if faults:
        caught = sum(faults.values())
        terminalreporter.write_line(f"gate: {caught} of {len(faults)} faults caught")
