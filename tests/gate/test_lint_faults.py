"""The lint over the notebooks, tested: each of these is a way for a failure to pass unseen."""

import notebook_checks
import pytest
from conftest import PARAMETERS
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

pytestmark = pytest.mark.fault

SOLUTION = ("<details><summary>A solution</summary>\n\n```python\ndef f():\n    pass\n```\n\n"
            "</details>")


def notebook():
    """A notebook in which nothing is wrong."""
    tagged = {"tags": ["parameters"]}
    cells = [
        new_markdown_cell("# One"),
        new_code_cell(PARAMETERS, metadata=tagged, execution_count=1),
        new_markdown_cell("## Two\n\n![a road](road.svg)"),
        code("print(6 * 7)", new_output("stream", text="42\n")),
        code("def f():\n    pass", tags=["exercise"]),
        new_markdown_cell(SOLUTION),
    ]
    return new_notebook(cells=cells)


def code(source, *outputs, tags=()):
    return new_code_cell(source, outputs=list(outputs), execution_count=2,
                         metadata={"tags": list(tags)} if tags else {})


def shows(mime, text):
    return new_output("display_data", {mime: text})


ADDED = {
    "print(1)": (code("print(1)"), "prints, but has no stored output"),
    "a stored error": (code("f()", new_output("error", ename="E", evalue="", traceback=[])),
                       "has an error as its stored output"),
    "raises-exception": (code("f()", tags=["raises-exception"]), "may also not raise"),
    "an Output widget": (code("with widgets.Output():\n    f()"), "uses Output"),
    "interact": (code("interact(f)"), "uses interact"),
    "interactive_output": (code("interactive_output(f, {})"), "uses interactive_output"),
    "a widget's view": (code("f()", shows("application/vnd.jupyter.widget-view+json", "{}")),
                        "has a widget's view"),
    "a path": (code("f()", shows("text/plain", "File /home/someone/a.py, line 3")),
               "shows the path of a machine"),
    "a path on Windows": (code("f()", shows("text/plain", r"C:\Users\someone")),
                          "shows the path of a machine"),
    "a pid": (code("f()", shows("text/plain", "tmp/ipykernel_123/45.py:1: UserWarning")),
              "shows a process id"),
    "a clock": (code("f()", shows("text/html", "<p>done at 12:30:45</p>")), "shows a clock"),
    "an address": (code("f()", shows("text/plain", "<f at 0x7f16f5160900>")), "shows an address"),
    "a raw image": (code("f()", shows("image/png", "iVBO")), "shows a raw image/png"),
    "an img without alt": (code("f()", shows("text/html", '<img src="data:image/png;base64,i">')),
                           "an <img> without alternative text"),
    "an img with empty alt": (code("f()", shows("text/html", '<img alt="" src="a.png">')),
                              "an <img> without alternative text"),
    "an svg without label": (code("f()", shows("text/html", "<svg><path/></svg>")),
                             "an <svg> without aria-label"),
    "an image in markdown": (new_markdown_cell("![](road.svg)"), "without alternative text"),
    "a skipped level": (new_markdown_cell("#### Four"), "level 4 follows one of level 2"),
    "a second title": (new_markdown_cell("# Another"), "must be of level 1"),
    "a second parameters cell": (code("x = 1", tags=["parameters"]), "2 cells are tagged"),
    "a solution alone": (new_markdown_cell(SOLUTION), "a solution follows no exercise"),
    "an exercise alone": (code("def g():\n    pass", tags=["exercise"]), "has no solution"),
}


def test_a_good_notebook_passes():
    assert notebook_checks.lint(notebook()) == []


@pytest.mark.parametrize("name", ADDED)
def test_added(name):
    cell, said = ADDED[name]
    changed = notebook()
    changed.cells.append(cell)
    found = notebook_checks.lint(changed)
    assert len(found) == 1 and said in found[0]


def test_widget_state():
    changed = notebook()
    changed.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    assert notebook_checks.lint(changed) == ["the notebook carries widget state"]


def test_a_parameter_missing():
    changed = notebook()
    changed.cells[1].source = 'device: str = "cpu"\ntorch = "torch-2.13"'
    assert notebook_checks.lint(changed) == ["the parameters lack dtype"]


def test_a_case_out_of_shape():
    found = notebook_checks.lint(notebook(), shape=True)
    assert found == [
        "3 code cells; 8 to 14 are asked for",
        "6 words of prose; 400 to 900 are asked for",
        "1 exercises; at least 2 are asked for",
    ]
    changed = notebook()
    changed.cells.append(code("x = 1\n" * 13))
    said = notebook_checks.lint(changed, shape=True)
    assert "code cell 4 has 13 lines; at most 12 are asked for" in said
    assert "3 prose cells for 4 code cells; at least as many are asked for" in said
