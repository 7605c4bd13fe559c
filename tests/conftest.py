"""Shared by the tests: kernels of this Python, small notebooks, and the count of caught faults."""

import os

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


# ------------------------------------------------------------------ "gate: 12 of 12 faults caught"

faults = {}


def pytest_configure(config):
    config.addinivalue_line("markers", "fault: the gate must catch it; counted at the end")


def pytest_collection_finish(session):
    marked = [item for item in session.items if item.get_closest_marker("fault")]
    faults.update({item.nodeid: False for item in marked})


def pytest_runtest_logreport(report):
    if report.when == "call" and report.nodeid in faults:
        faults[report.nodeid] = report.passed


def pytest_terminal_summary(terminalreporter):
    if faults:
        caught = sum(faults.values())
        terminalreporter.write_line(f"gate: {caught} of {len(faults)} faults caught")
