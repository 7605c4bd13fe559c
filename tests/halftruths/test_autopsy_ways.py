"""The ways in to the autopsy: a script, a notebook, sys.excepthook, pytest."""

import json
import os
import re
import subprocess
import sys
import textwrap

from cases.notebook import fast_start  # noqa: F401

# isort: split
import nbformat
import pytest
import torch
from nbclient import NotebookClient

from cases import cli, halftruths
from cases.halftruths import pages, script
from cases.halftruths.exceptions.answer import Autopsy
from cases.lab import torches
from cases.notebook import runner

NOTHING = {"error": None, "where": None, "odd": None, "road": [], "cure": None, "case": None,
           "sure": False}
HALF = """
import torch

net = torch.nn.Linear(4, 4).half()


def step(batch):
    mask = batch.float()
    return net(mask)
"""
FAILS = HALF + "\n\nstep(torch.ones(2, 4).half())\n"
SAID = "mat1 and mat2 must have the same dtype, but got Float and Half"


@pytest.fixture
def write(tmp_path):
    """Write a script and return its path as text."""

    def write(source, name="train.py"):
        path = tmp_path / name
        path.write_bytes(source if isinstance(source, bytes) else textwrap.dedent(source).encode())
        return str(path)

    return write


def test_an_address_in_the_html_is_a_link():
    shown = Autopsy({"type": "Error", "message": "see https://a.org."},
                    case="llama_vision")._repr_html_()
    assert re.findall('<a href="([^"]*)" target="_blank" rel="noopener">', shown) == [
        "https://a.org", pages.page("02_llama_vision.ipynb")]


@pytest.fixture
def ask(capfd, monkeypatch):
    """Call the command line in this process; return (exit code, standard output, error)."""
    # Under pytest print writes to a file of its own, not to file 1, which --json redirects.
    monkeypatch.setattr(sys, "stdout", open(1, "w", closefd=False, encoding="utf-8"))
    monkeypatch.setattr(sys, "stderr", open(2, "w", closefd=False, encoding="utf-8"))

    def ask(*argv):
        code = cli.main(["autopsy", *argv])
        sys.stdout.flush()
        sys.stderr.flush()
        return code, *capfd.readouterr()

    yield ask
    sys.stdout.flush()


def python(*argv, **given):
    """Run Python in a process of its own, where `cases` can be imported."""
    env = {**os.environ, "PYTHONPATH": str(torches.ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, *argv], capture_output=True, encoding="utf-8", env=env,
                          **given)


# ------------------------------------------------------------------ a script that raises


def test_a_script_that_raises(write, ask):
    path = write(FAILS)
    code, out, err = ask(path)
    assert code == 1
    assert err.startswith(f'Traceback (most recent call last):\n  File "{path}", line 12, in <mod')
    assert err.rstrip().endswith("RuntimeError: " + SAID)
    assert out.startswith("RuntimeError: " + SAID)
    assert "train.py:8" in out and "mask = batch.to(torch.float16)" in out


def test_its_answer_in_json_is_that_of_the_code(write, ask):
    path = write(FAILS)
    code, out, err = ask("--json", path)
    assert code == 1 and SAID in err
    answer = json.loads(out)
    assert set(NOTHING) <= set(answer)
    assert answer["odd"] == {"name": "input", "dtype": "float32"}
    assert answer["road"][0]["file"].endswith("train.py")
    # The road begins in the script, as if we were not there.
    assert not [s for s in answer["road"] if "cases/lab" in s["file"]]
    space = {"__name__": "train"}
    with open(path) as file, pytest.raises(RuntimeError) as caught:
        exec(compile(file.read(), path, "exec"), space)
    assert halftruths.autopsy(caught.value).to_json() == answer


def test_an_error_of_syntax_says_its_line(write, ask):
    path = write("x = 1\nif x\n    pass\n")
    code, out, err = ask(path)
    assert code == 1
    assert f'File "{path}", line 2' in err and "Traceback" not in err
    assert "SyntaxError" in out and "line 2" in out
    code, out, _ = ask("--json", path)
    assert code == 1 and "line 2" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize("raised", ["ValueError('no')", "AssertionError", "GeneratorExit",
                                    "BaseException('odd')", "RecursionError", "StopIteration(3)"])
def test_whatever_it_raises_is_told(write, ask, raised):
    code, out, err = ask(write(f"raise {raised}\n"))
    name = raised.split("(")[0]
    assert code == 1 and name in err and out.startswith(name)


def test_an_interrupt_passes_and_all_is_as_before(write, ask):
    before = sys.argv, list(sys.path), sys.modules["__main__"]
    with pytest.raises(KeyboardInterrupt):
        ask(write("import sys\nsys.path.append('x')\nsys.argv = []\nraise KeyboardInterrupt\n"))
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_a_hook_of_the_scripts_shows_its_traceback(write, ask):
    code, out, err = ask(write("""
        import sys

        sys.excepthook, kept = lambda *parts: print("mine", file=sys.stderr), sys.excepthook
        raise ValueError("no")
        """))
    sys.excepthook = sys.__excepthook__
    assert (code, err) == (1, "mine\n") and out.startswith("ValueError: no")
    code, out, err = ask(write("""
        import sys

        sys.excepthook = lambda: 0
        raise ValueError("no")
        """))
    sys.excepthook = sys.__excepthook__
    assert code == 1 and err.endswith("ValueError: no\n") and out.startswith("ValueError: no")


# ------------------------------------------------------------------ a script that ends

OTHER = "nothing else was raised."
ENDS = [  # source, exit code, standard output, standard error
    ("x = 1", 0, "ended well: nothing was raised.", ""),
    ("import sys; sys.exit()", 0, f"ended by sys.exit(0): {OTHER}", ""),
    ("raise SystemExit(0)", 0, f"ended by sys.exit(0): {OTHER}", ""),
    ("import sys; sys.exit(False)", 0, f"ended by sys.exit(0): {OTHER}", ""),
    ("import sys; sys.exit(3)", 1, f"ended by sys.exit(3): {OTHER}", ""),
    ("import sys; sys.exit(-1)", 1, f"ended by sys.exit(-1): {OTHER}", ""),
    ("import sys; sys.exit('no data')", 1, f"ended by sys.exit with a message: {OTHER}",
     "no data\n"),
    ("raise SystemExit(('a', 1))", 1, f"ended by sys.exit with a message: {OTHER}", "('a', 1)\n"),
    ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise SystemExit(2)", 1,
     f"ended by sys.exit(2): {OTHER}", ""),
]


@pytest.mark.parametrize(("source", "exit", "said", "error"), ENDS, ids=[e[0][-24:] for e in ENDS])
def test_a_script_that_ends(write, ask, source, exit, said, error):
    path = write(source)
    assert ask(path) == (exit, f"{path} {said}\n", error)
    code, out, err = ask("--json", path)
    assert (code, json.loads(out), err) == (exit, NOTHING, error)


def test_an_error_that_the_script_caught_before_it_left(write, ask):
    path = write(HALF + """
try:
    step(torch.ones(2, 4).half())
except RuntimeError as error:
    raise SystemExit(1)
""")
    code, out, err = ask(path)
    assert (code, err) == (1, "")
    assert out.startswith(f"{path} ended by sys.exit(1)") and "train.py:8" in out
    code, out, err = ask("--json", path)
    assert code == 1 and json.loads(out)["odd"] == {"name": "input", "dtype": "float32"}


# ------------------------------------------------------------------ as Python runs it

ABOUT = """
import json, os, sys, __main__
from beside import HERE
from pickle import dumps

class Mine:
    pass

dumps(Mine())
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__, "doc": __doc__,
    "package": __package__, "spec": __spec__, "cached": __cached__, "here": HERE,
    "loader": type(__loader__).__name__, "main": __main__.__dict__ is globals(),
    "code": sys._getframe().f_code.co_filename, "depth": sys._getframe().f_back is None,
    "annotations": "annotations" in globals(), "torch": "torch" in sys.modules,
    "stdin": sys.stdin.read(), "folder": os.getcwd(), "builtins": type(__builtins__).__name__}))
"""


@pytest.mark.parametrize("argv", [["a", "--flag", "-x", "--lr=3"], ["--json", "b"], ["-h"], []])
def test_a_script_runs_as_python_runs_it(write, tmp_path, argv):
    write("HERE = 7\n", "beside.py")
    path = write('"""Its docstring."""' + ABOUT)
    where = {"cwd": tmp_path.parent, "input": "1 2\n"}
    script = os.path.relpath(path, tmp_path.parent)
    plain = python(script, *argv, **where)
    ours = python("-m", "cases", "autopsy", script, *argv, **where)
    assert plain.returncode == ours.returncode == 0, ours.stderr
    lines = ours.stdout.splitlines()
    expected, found = json.loads(plain.stdout), json.loads(lines[0])
    # Our own frames are below the script's; nothing else tells it apart.
    assert expected.pop("depth") is True and found.pop("depth") is False
    assert found == expected
    assert lines[1:] == [f"{script} ended well: nothing was raised."]


def test_torch_is_the_scripts_to_import(write):
    """What a script sets up for torch must come first; and a script without torch is quick."""
    path = write("import sys\nassert 'torch' not in sys.modules\n")
    done = python("-m", "cases", "autopsy", path)
    assert done.returncode == 0, done.stderr


ARGV = [
    (["SCRIPT", "a", "--json"], True, ["a"]),
    (["--json", "SCRIPT", "--json"], True, []),
    (["SCRIPT", "--json", "a"], False, ["--json", "a"]),
    (["SCRIPT", "--", "--json"], False, ["--json"]),
    (["--json", "SCRIPT", "--", "--json"], True, ["--json"]),
    (["--", "SCRIPT", "--json"], False, ["--json"]),
    (["--json", "--", "SCRIPT", "a"], True, ["a"]),
    (["SCRIPT", "a", "--", "b", "--", "c"], False, ["a", "b", "--", "c"]),
    (["SCRIPT", "--json", "--"], False, ["--json"]),
    (["SCRIPT", "-h"], False, ["-h"]),
    (["SCRIPT", "--torch", "x", "list"], False, ["--torch", "x", "list"]),
]


@pytest.mark.parametrize(("argv", "as_json", "given"), ARGV, ids=[" ".join(a[0]) for a in ARGV])
def test_which_words_are_ours(write, ask, argv, as_json, given):
    path = write("import sys\nprint(sys.argv[1:], file=sys.stderr)\n")
    code, out, err = ask(*[path if word == "SCRIPT" else word for word in argv])
    assert (code, err) == (0, f"{given}\n")
    if as_json:
        assert json.loads(out) == NOTHING
    else:
        assert out == f"{path} ended well: nothing was raised.\n"


PRINTS = """
import atexit, os, subprocess, sys, threading, time

print("from print")
os.write(1, b"from C\\n")
sys.__stdout__.write("from the original\\n")
subprocess.run([sys.executable, "-c", "print('from a process')"])
atexit.register(print, "from the exit")
threading.Thread(target=lambda: (time.sleep(0.3), print("from a thread"))).start()
"""


def test_with_json_standard_output_is_the_answer_alone(write):
    done = python("-m", "cases", "autopsy", "--json", write(PRINTS))
    assert done.returncode == 0 and json.loads(done.stdout) == NOTHING
    for where in ("print", "C", "the original", "a process", "the exit", "a thread"):
        assert f"from {where}\n" in done.stderr
    plain = python("-m", "cases", "autopsy", write(PRINTS))
    assert plain.stderr == "" and plain.stdout.count("from ") == 6


@pytest.mark.parametrize("line", [
    "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
    "sys.stdout = codecs.getwriter('utf8')(sys.stdout.detach())",
    "sys.stdout = io.StringIO()",
    "sys.stdout.close()",
    "sys.stdout = None",
    "os.close(1)",
    "os.chdir('/')",
    "sys.path.clear()",
    "del sys.modules['__main__']",
])
def test_what_a_script_does_to_its_process_does_not_silence_us(write, line):
    path = write(f"import codecs, io, os, sys\n{line}\n")
    done = python("-m", "cases", "autopsy", path)
    assert (done.returncode, done.stdout) == (0, f"{path} ended well: nothing was raised.\n")


def test_a_reader_that_has_left_is_no_error(write):
    path = write("import time\ntime.sleep(0.2)\n")
    done = subprocess.Popen([sys.executable, "-m", "cases", "autopsy", path], cwd=torches.ROOT,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    done.stdout.close()
    assert (done.wait(), done.stderr.read()) == (0, b"")


def test_a_torch_that_is_none(write):
    """A file named torch.py beside the script hides the real one."""
    write("", "torch.py")
    path = write("import torch\ntorch.ones(3)")
    said = "There is no autopsy, which needs torch: "
    done = python("-m", "cases", "autopsy", path)
    assert done.returncode == 1 and done.stderr.startswith("Traceback")
    assert done.stdout.startswith(said) and done.stdout.count("\n") == 1
    done = python("-m", "cases", "autopsy", "--json", path)
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "AttributeError" and error["message"].startswith(said)


def test_what_a_terminal_cannot_show(write):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(torches.ROOT)}
    done = subprocess.run([sys.executable, "-m", "cases", "autopsy", write(FAILS)], env=env,
                          capture_output=True)
    assert done.returncode == 1 and b"float32" in done.stdout and b"? odd" in done.stdout


SPAWNS = """
import torch
from multiprocessing import get_context

def half(number):
    return str(torch.ones(number).half().dtype)

if __name__ == "__main__":
    with get_context("spawn").Pool(1) as pool:
        print(pool.map(half, [1, 2]))
"""


@pytest.mark.slow
def test_a_script_that_starts_processes_of_itself(write):
    path = write(SPAWNS)
    done = python("-m", "cases", "autopsy", path)
    assert done.stdout == (f"['torch.float16', 'torch.float16']\n"
                           f"{path} ended well: nothing was raised.\n"), done.stderr


# ------------------------------------------------------------------ bad input

BAD = [
    ([], "needs a SCRIPT"),
    ([""], "needs a SCRIPT"),
    (["--json"], "needs a SCRIPT"),
    (["--"], "needs a SCRIPT"),
    (["gone.py"], "cannot be read (No such file"),
    (["--json", "gone.py"], "cannot be read (No such file"),
    (["x" * 5000], "cannot be read (File name too long"),
    (["folder"], "is a folder"),
    (["empty.py"], "is empty"),
    (["blank.py"], "is empty"),
    (["model.pt"], "is no text"),
    (["latin.py"], "is no text"),
    (["wide.py"], "is no text"),
    (["cookie.py"], "is no text"),
    (["noise"], "is no text"),
    (["locked.py"], "cannot be read (Permission denied"),
]
if hasattr(os, "mkfifo"):
    BAD += [(["/dev/zero"], "is a device or a pipe"), (["pipe"], "is a device or a pipe")]


@pytest.mark.parametrize(("argv", "said"), BAD, ids=[" ".join(bad[0])[:20] for bad in BAD])
def test_bad_input_is_exit_2_and_one_line(ask, tmp_path, monkeypatch, argv, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    if argv == ["pipe"]:
        os.mkfifo("pipe")
    for name, source in {"empty.py": b"", "blank.py": b"\n \n", "model.pt": b"PK\3\4\0\0data",
                         "latin.py": "x = 'caf\xe9'".encode("latin-1"), "locked.py": b"x = 1",
                         "wide.py": "x = 1".encode("utf-16"), "noise": bytes(range(128, 256)),
                         "cookie.py": b"# coding: klingon\nx = 1"}.items():
        (tmp_path / name).write_bytes(source)
    if argv == ["locked.py"]:
        os.chmod("locked.py", 0)
        if os.access("locked.py", os.R_OK):  # root may read all
            monkeypatch.setattr(script, "open", refuse, raising=False)
    code, out, err = ask(*argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.startswith("python -m cases: ")
    assert said in err and "allowed: a file of Python text" in err


def refuse(*args):
    raise PermissionError(13, "Permission denied")


def test_unknown_options_are_one_line(ask):
    code, out, err = ask("--jsom", "x.py")
    assert (code, out, err) == (2, "", "python -m cases: unrecognized arguments: --jsom\n")


def test_a_text_in_an_encoding_that_it_names_runs(write, ask):
    path = write("# coding: latin-1\nassert 'caf\xe9'[3] == chr(233)\n".encode("latin-1"))
    assert ask(path)[0] == 0
    assert ask(write(b"\xef\xbb\xbfx = 1\n"))[0] == 0


# ------------------------------------------------------------------ sys.excepthook


def test_the_readme_has_the_lines_that_are_tried_here():
    readme = (torches.ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("\n## The tool alone\n")[1].split("\n## ")[0]
    for line in (HOOK, CONFTEST.strip(), "%load_ext cases.halftruths", "%autopsy",
                 "python -m cases autopsy"):
        assert f"`{line}" in section


HOOK = "import sys; from cases import halftruths; sys.excepthook = halftruths.excepthook"


def test_the_excepthook_in_one_line(write):
    done = python(write(HOOK + FAILS))
    assert (done.returncode, done.stdout) == (1, "")
    usual, ours = done.stderr.split("\n\n", 1)
    assert usual.startswith("Traceback") and usual.endswith(SAID)
    assert ours.startswith("RuntimeError") and "mask = batch.to(torch.float16)" in ours


def test_the_excepthook_adds_nothing_where_nothing_is_found(capsys):
    for error in (ValueError("no"), KeyboardInterrupt(), SystemExit(2), GeneratorExit()):
        sys.__excepthook__(type(error), error, None)
        usual = capsys.readouterr().err
        halftruths.excepthook(type(error), error, None)
        assert capsys.readouterr().err == usual, error


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


def test_the_excepthook_never_raises(capsys, monkeypatch):
    for parts in ((Unspeakable, Unspeakable(), None), (ValueError, None, None),
                  (None, None, None), (ValueError, "text", "more")):
        halftruths.excepthook(*parts)
    monkeypatch.setattr(sys, "stderr", None)
    halftruths.excepthook(ValueError, ValueError("no"), None)


# ------------------------------------------------------------------ pytest

CONFTEST = 'pytest_plugins = ["cases.halftruths.pytest_plugin"]\n'
TESTS = HALF + """
import pytest


def test_half():
    step(torch.ones(2, 4).half())


def test_plain():
    assert 1 == 2


@pytest.fixture
def made():
    return step(torch.ones(2, 4).half())


def test_setup(made):
    pass


def test_skipped():
    pytest.skip("not now")


@pytest.mark.xfail
def test_expected():
    step(torch.ones(2, 4).half())


def test_good():
    pass
"""


@pytest.mark.parametrize("by", ["conftest", "-p"])
def test_a_failing_test_gets_a_section(write, tmp_path, monkeypatch, by):
    write(TESTS, "test_it.py")
    if by == "conftest":
        write(CONFTEST, "conftest.py")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # their imports take longer than all
    done = python("-m", "pytest", "-p", "no:cacheprovider", str(tmp_path),
                  *(["-p", "cases.halftruths.pytest_plugin"] if by == "-p" else []), cwd=tmp_path)
    assert "2 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in done.stdout, done.stdout
    assert "Warning" not in done.stdout
    parts = {name: done.stdout.split(f" {name} ___")[1].split(" ____")[0]
             for name in ("test_half", "test_plain", "ERROR at setup of test_setup")}
    assert "Captured autopsy call" in parts["test_half"]
    assert "mask = batch.to(torch.float16)" in parts["test_half"]
    assert "autopsy" not in parts["test_plain"]
    assert "Captured autopsy setup" in parts["ERROR at setup of test_setup"]


# ------------------------------------------------------------------ a notebook

CELLS = ["""
%load_ext cases.halftruths
%autopsy
""", "%autopsy please", """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)

net = Net().half()
""", """
def step(batch):
    mask = batch.float()
    return net(mask)
""", """
import weakref
batch = torch.ones(2, 4).half()
seen = weakref.ref(batch)
step(batch)
""", "%autopsy", """
try:
    step(batch)
except RuntimeError as error:
    raise ValueError("bad step") from error
""", "%autopsy", "a = (", "%autopsy", "step(batch.to('meta'))", "%autopsy",
    "%reload_ext cases.halftruths", """
import gc, sys
del batch, _
for number in list(Out):  # what the user sees again under Out[6]
    assert not isinstance(Out[number], torch.Tensor)
# What IPython keeps itself.
sys.last_value = sys.last_traceback = sys.last_type = sys.last_exc = None
shell = get_ipython()
shell.InteractiveTB.tb = None
shell = None
gc.collect()
print("kept" if seen() is not None else "gone")
"""]


@pytest.fixture(scope="module")
def notebook(kernels):
    """The cells above, run in a real kernel: [[output, ...], ...]."""
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS]
    made = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": runner.KERNELSPEC})
    NotebookClient(made, allow_errors=True, timeout=120).execute()
    return [cell.outputs for cell in made.cells]


@pytest.fixture(scope="module")
def autopsies(notebook):
    """{number of a cell: the data of its Autopsy}"""
    found = {}
    for number, outputs in enumerate(notebook, 1):
        for output in outputs:
            if output.output_type == "execute_result":
                found[number] = output.data
    return found


def test_a_notebooks_autopsy(autopsies):
    assert set(autopsies[6]) == {"text/plain", "text/html"}
    for text in autopsies[6].values():
        assert SAID in text and "In [4]:2" in text and "In [3]:10" in text
        assert "mask = batch.to(torch.float16)" in text
        for secret in ("ipykernel", "/tmp", str(os.getpid()), "site-packages", "0x"):
            assert secret not in text


def test_a_notebooks_bad_input_is_one_line(notebook):
    for number, words in ((0, "no cell has raised"), (1, "takes no arguments, not 'please'")):
        (output,) = notebook[number]
        assert output.name == "stderr" and output.text.count("\n") == 1 and words in output.text


def test_a_notebooks_chained_exception_is_read_where_it_began(autopsies):
    assert "ValueError: bad step" in autopsies[8]["text/plain"]
    assert "mask = batch.to(torch.float16)" in autopsies[8]["text/plain"]


def test_a_notebooks_error_of_syntax_is_told(autopsies):
    assert autopsies[10]["text/plain"].startswith("SyntaxError")
    assert "ipykernel" not in autopsies[10]["text/plain"]


def test_after_the_autopsy_a_notebook_keeps_nothing(notebook, autopsies):
    assert autopsies[12], "the last exception held the batch"
    assert [output.text for output in notebook[13]] == ["gone\n"]


def test_ipython_in_a_terminal():
    env = {**os.environ, "PYTHONPATH": str(torches.ROOT), "IPYTHONDIR": "/nonexistent/ipython",
           "PYTHONIOENCODING": "utf-8"}
    # An empty line ends a cell here.
    cells = [cell.strip().replace("\n\n", "\n") for cell in CELLS[:1] + CELLS[2:6]]
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=NoColor", "--simple-prompt", "--no-banner",
         "--HistoryManager.enabled=False"],
        input="\n\n".join(cells) + "\n\n", env=env, capture_output=True, encoding="utf-8")
    assert "nothing to explain" in done.stderr
    assert re.search(r"In \[\d+\]:2 +mask = batch.float", done.stdout), done.stdout
    assert "mask = batch.to(torch.float16)" in done.stdout


@pytest.mark.parametrize("name", ["last_value", "last_exc"])
def test_the_last_exception_is_found_on_every_python(monkeypatch, name, capsys):
    class Shell:
        def register_magic_function(self, function, kind):
            assert (function.__name__, kind) == ("autopsy", "line")
            self.autopsy = function

    for other in ("last_value", "last_exc"):
        monkeypatch.delattr(sys, other, raising=False)
    shell = Shell()
    halftruths.load_ipython_extension(shell)
    assert shell.autopsy("") is None and "nothing to explain" in capsys.readouterr().err
    with pytest.raises(RuntimeError) as caught:
        torch.ones(2, 2) @ torch.ones(2, 2).half()
    monkeypatch.setattr(sys, name, caught.value, raising=False)
    assert shell.autopsy("").error["type"] == "RuntimeError"
