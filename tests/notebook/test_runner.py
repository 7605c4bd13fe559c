"""The command that runs the notebooks: every committed one, and its own behaviour on small ones."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import nbclient
import nbformat
import notebook_checks
import psutil
import pytest
from conftest import write_notebook

from cases.notebook import runner
from cases.notebook.runner import Job

pytestmark = pytest.mark.usefixtures("kernels")

CHECK = """if dtype not in ("float16", "bfloat16"):
    raise ValueError(f"unknown dtype {dtype!r}; allowed: float16, bfloat16")"""


NOTEBOOKS = notebook_checks.notebooks()
VARIANTS = [job for path in NOTEBOOKS for job in runner.variants(path, {})]
DTYPES = [job for job in VARIANTS if job.parameters and not job.refuse]
REFUSED = [job for job in VARIANTS if job.refuse]


@pytest.mark.slow
def test_a_notebook_with_every_variant(capsys, tmp_path):
    """The default and the other dtype must run, and three wrong values be refused in one line."""
    assert runner.main(["01", "--variants", "--jobs", "1", "--out", str(tmp_path)]) == 0
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said == ["ok", "ok", "refused", "refused", "refused", "5"]


@pytest.mark.slow
@pytest.mark.parametrize("job", DTYPES, ids=lambda job: job.file_name)
def test_a_notebook_with_another_dtype(job, tmp_path):
    """Each notebook runs with its default in test_stored_outputs.py, which compares besides."""
    result = runner.run(job, tmp_path)
    assert result.ok, result.said


@pytest.mark.slow
def test_every_notebook_refuses_every_wrong_value():
    """Of each, the cells up to the one that looks at its parameters, all in one kernel."""
    cells, ends = [], []
    for job in REFUSED:
        code = runner.code_cells(nbformat.read(job.notebook, as_version=4))
        end = next(at for at, cell in enumerate(code) if "lesson.parameters(" in cell.source)
        wrong = f"{job.refuse} = {job.parameters[job.refuse]!r}"
        first, *others = [cell.source for cell in code[:end + 1]]
        cells += ["%reset -f", f"{first}\n{wrong}", *others]
        ends.append(len(cells) - 1)
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    nbclient.execute(notebook, cwd=runner.NOTEBOOKS, kernel_name="python3", allow_errors=True)
    raised = {number: output for number, cell in enumerate(notebook.cells)
              for output in cell.outputs if output.output_type == "error"}
    assert sorted(raised) == ends
    for job, end in zip(REFUSED, ends, strict=True):
        assert runner.not_refused(job, raised[end], raised[end].evalue) == "", job.name


# ------------------------------------------------------------------ bad arguments


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["no_such"], r"unknown notebook 'no_such'; allowed: .*01_encoder_bf16"),
        (["01", "-p", "dtyp", "float16"], r"unknown parameter 'dtyp' of 01_.*; allowed: .*dtype"),
        (["--refresh", "-p", "dtype", "float16"], r"--refresh stores the outputs of the default"),
        (["--jobs", "0"], r"--jobs, --cell-timeout and --timeout take numbers above 0"),
        (["--cell-timeout", "soon"], r"argument --cell-timeout: invalid float value: 'soon'"),
        (["--nope"], r"unrecognized arguments: --nope"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(argv, said, capsys, tmp_path):
    assert runner.main([*argv, "--out", str(tmp_path / "build")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(f"run_notebooks: {said}.*\n", err)
    assert not (tmp_path / "build").exists()


def test_a_file_that_is_no_notebook(tmp_path, capsys):
    path = tmp_path / "torn.ipynb"
    path.write_text('{"cells": [', encoding="utf-8")
    assert runner.main([str(path), "-p", "x", "1", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("run_notebooks: torn.ipynb is not a notebook")


# ------------------------------------------------------------------ a run


def test_all_go_on_after_one_fails_and_the_report_shows_it(tmp_path, capsys):
    bad = write_notebook(tmp_path / "bad.ipynb", "print('before')", "1 / 0")
    good = write_notebook(tmp_path / "good.ipynb", CHECK, "print(dtype, 0.1)")
    out = tmp_path / "build"
    code = runner.main(
        [str(bad), str(good), "-p", "dtype", "float16", "--jobs", "1", "--out", str(out)]
    )
    said = capsys.readouterr().out.splitlines()
    assert code == 1
    assert re.fullmatch(
        r"failed +\d+\.\d s  bad dtype=float16: ZeroDivisionError: .* \(code cell 3\)", said[0]
    )
    assert re.fullmatch(r"ok +\d+\.\d s  good dtype=float16", said[1])
    assert said[2].startswith("1 of 2 runs as they should be; report: ")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "✗ failed" in page and "✓ ok" in page and "----&gt; 1 1 / 0" in page
    assert '<html lang="en">' in page and page.count("<h1") == 1
    links = re.findall(r'href="([^"]+)"', page)
    copies = [(out / link).read_text(encoding="utf-8") for link in links]
    assert len(copies) == 2 and "float16 0.1" in copies[1]
    for text in [page, *copies]:
        assert not re.search(r'(?:src|href)="?(?:https?:)?//(?!jupyter\.org)', text)


def test_a_widget_is_exported_as_its_table(tmp_path):
    source = """import ipywidgets
class Panel:
    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = dict(ipywidgets.IntSlider()._repr_mimebundle_())
        return {**bundle, "text/html": "<table><caption>rows</caption></table>"}
Panel()"""
    path = write_notebook(tmp_path / "panel.ipynb", source)
    result = runner.run(Job(path), tmp_path / "copies")
    text = runner.export(result.copy).read_text(encoding="utf-8")
    assert "<caption>rows</caption>" in text and "widget-view" not in text


def test_two_invocations_at_once_share_no_file(tmp_path):
    wait = "import time\ntime.sleep(1)\nprint(dtype)"
    path = write_notebook(tmp_path / "slow.ipynb", CHECK, wait)
    command = [sys.executable, "-m", "cases.notebook.runner", path, "--out", tmp_path / "b"]
    started = [
        subprocess.Popen([*command, "-p", "dtype", dtype], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
        for dtype in ("float16", "bfloat16")
    ]
    said = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert [err for _, err in said] == ["", ""], "no progress bar where there is no terminal"
    folders = list((tmp_path / "b" / "notebooks").iterdir())
    assert len(folders) == 2
    copies = sorted(copy.name for folder in folders for copy in folder.glob("*.ipynb"))
    assert copies == ["slow-dtype=bfloat16.ipynb", "slow-dtype=float16.ipynb"]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_kernels(tmp_path, number, code):
    note = tmp_path / "pid"
    wait = f"import os, time, pathlib\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))"
    path = write_notebook(tmp_path / "slow.ipynb", wait, "time.sleep(50)")
    # As from a terminal: under nohup or a shell's & the tests and their children ignore SIGINT.
    start = ("import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
             "runpy.run_module('cases.notebook.runner', run_name='__main__', alter_sys=True)")
    process = subprocess.Popen([sys.executable, "-c", start, path, "--out", tmp_path / "b"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (out, err) == ("", "run_notebooks: stopped; its kernels are ended, and no report is "
                              "written\n")
    assert process.returncode == code
    assert not psutil.pid_exists(int(note.read_text()))
    assert not (tmp_path / "b" / "report.html").exists()


def test_a_parameter_may_be_written_with_an_equals_sign():
    assert runner.parse(["01", "-p", "dtype=a=b", "-p", "torch", "c"]).parameter == [
        ["dtype", "a=b"], ["torch", "c"]]


def test_parameters_with_annotations_are_known(tmp_path):
    path = write_notebook(tmp_path / "a.ipynb", parameters='device: str = "cpu"\nsteps = 3\nx = {}')
    assert runner.defaults(path) == {"device": "cpu", "steps": 3, "x": {}}
    with pytest.raises(runner.BadInput, match="allowed: device, steps, x"):
        runner.check_parameters(path, {"dtype": "float16"})


# ------------------------------------------------------------------ refresh


def test_refresh_stores_tidy_outputs_and_changes_nothing_the_second_time(tmp_path):
    slider = "import ipywidgets\nipywidgets.IntSlider()"
    path = write_notebook(tmp_path / "tidy.ipynb", "print('a')\nprint('b')", slider)
    mode = path.stat().st_mode
    assert runner.refresh(Job(path), tmp_path / "copies").ok
    first = path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = runner.code_cells(notebook)
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert [len(cell.outputs) for cell in code] == [0, 1, 0]
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata.language_info) == {
        "codemirror_mode", "file_extension", "mimetype", "name", "nbconvert_exporter",
        "pygments_lexer", "version"}
    assert runner.refresh(Job(path), tmp_path / "copies").ok
    assert path.read_bytes() == first
    assert path.stat().st_mode == mode
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_refresh_leaves_a_failing_notebook_alone(tmp_path):
    path = write_notebook(tmp_path / "bad.ipynb", "1 / 0")
    before = path.read_bytes()
    result = runner.refresh(Job(path), tmp_path / "copies")
    assert not result.ok and "ZeroDivisionError" in result.said
    assert path.read_bytes() == before


def test_another_patch_release_of_python_changes_nothing():
    def notebook(version):
        language = {"name": "python", "version": version}
        return nbformat.v4.new_notebook(metadata={"language_info": language, "title": "kept"})

    def version_after(old, new):
        return runner.tidy(notebook(new), notebook(old)).metadata.language_info.version

    assert version_after("3.11.2", "3.11.7") == "3.11.2"
    assert version_after("3.11.2", "3.12.0") == "3.12.0"
    assert runner.tidy(notebook("3.11.7")).metadata.title == "kept"


def test_ids_come_from_the_cells_own_text():
    def ids(*sources):
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        return [c.id for c in runner.tidy(nbformat.v4.new_notebook(cells=cells)).cells]

    assert ids("a", "b") == ids("a", "b")
    assert len(set(ids("a", "a"))) == 2
    assert ids("a", "new", "b")[::2] == ids("a", "b")


def test_committed_notebooks_are_tidy():
    for path in notebook_checks.notebooks():
        before = nbformat.read(path, as_version=4)
        again = runner.tidy(nbformat.read(path, as_version=4), before)
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
        assert json.loads(nbformat.writes(again)) == stored, f"{path.name}: make notebooks"


def test_the_reports_for_programs_say_what_became_of_each(tmp_path):
    results = [runner.Result(Job(tmp_path / "a.ipynb"), True, 1.25),
               runner.Result(Job(tmp_path / "b.ipynb", {"dtype": "float16"}), False, 2.0,
                             "it <broke>", "line \x1b[31m1\nline 2")]
    runner.write_json(results, tmp_path / "report.json")
    runner.write_junit(results, tmp_path / "report.xml")
    first, second = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert first == {"notebook": "a", "parameters": {}, "ok": True, "seconds": 1.2, "said": "",
                     "tail": ""}
    assert (second["ok"], second["said"], second["parameters"]) == (
        False, "it <broke>", {"dtype": "float16"})
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    failure = suite.find("testcase[@name='b dtype=float16']/failure")
    assert failure.get("message") == "it <broke>" and failure.text == "line [31m1\nline 2"
    assert suite.find("testcase[@name='a']/failure") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "report.xml"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert runner.main(["00_start_here", "--out", str(tmp_path / "file")]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("run_notebooks: ") and said.err.count("\n") == 1
    assert str(tmp_path / "file") in said.err and "Traceback" not in said.err
    assert (tmp_path / "file").read_text() == "mine"
