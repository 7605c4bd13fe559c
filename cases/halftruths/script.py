"""Ways in for whole programs: `half-truths autopsy SCRIPT`, and `sys.excepthook`.

A script runs in this process as `python SCRIPT` runs it. Nothing here imports torch before the
script does: what it sets up for torch comes first.
"""

import argparse
import builtins
import contextlib
import io
import json
import os
import sys
import tokenize
import types
from importlib.machinery import SourceFileLoader

from .base import PROGRAM, BadInput, OneLineParser, obey

ALLOWED = "allowed: a file of Python text"
NOTHING = {"error": None, "where": None, "odd": None, "road": [], "cure": None, "case": None,
           "sure": False}


def add_arguments(parser, program=PROGRAM):
    parser.usage = f"{program} autopsy [-h] [--json] SCRIPT [ARGS ...]"
    parser.add_argument("--json", action="store_true",
                        help="before SCRIPT, or as the last word of all")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS ...]",
                        help="a script and what it is given; after a lone -- all is the script's")


def split(words):
    """Return (script, its arguments, whether they ended in a --json of ours)."""
    ours = "--" not in words and len(words) > 1 and words[-1] == "--json"
    if ours:
        words = words[:-1]
    elif "--" in words:
        at = words.index("--")
        words = words[:at] + words[at + 1:]
    if not words or not words[0]:
        raise BadInput(f"autopsy needs a SCRIPT; {ALLOWED}")
    return words[0], words[1:], ours


def read(script):
    """Return a script's source as bytes; BadInput for what is none."""
    if os.path.isdir(script):
        raise BadInput(f"{script!r} is a folder; {ALLOWED}")
    if os.path.exists(script) and not os.path.isfile(script):
        raise BadInput(f"{script!r} is a device or a pipe; {ALLOWED}")
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        raise BadInput(f"{script!r} cannot be read ({error.strerror}); {ALLOWED}") from None
    if not source.strip():
        raise BadInput(f"{script!r} is empty; {ALLOWED}")
    if not is_text(source):
        raise BadInput(f"{script!r} is no text, in UTF-8 or an encoding that it names; {ALLOWED}")
    return source


def is_text(source):
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return "\0" not in source.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        return False


def run(script, args, source):
    """Run a script and return what it raised, or None.

    Its traceback begins in the script, as if we were not there. KeyboardInterrupt passes.
    """
    path = os.path.abspath(script)
    main = types.ModuleType("__main__")
    vars(main).update(__file__=path, __builtins__=builtins, __cached__=None,
                      __loader__=SourceFileLoader("__main__", path))
    kept = sys.argv, sys.path, sys.modules.get("__main__")
    ours = checkout_modules()
    for name in ours:
        del sys.modules[name]
    sys.argv, sys.modules["__main__"] = [script, *args], main
    if not getattr(sys.flags, "safe_path", False):
        sys.path = [os.path.dirname(os.path.realpath(script)), *sys.path[1:]]
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(main))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return BaseException.with_traceback(error, sys.exc_info()[2].tb_next)
    finally:
        sys.argv, sys.path, sys.modules["__main__"] = kept
        for name in checkout_modules():
            del sys.modules[name]
        sys.modules.update(ours)


def checkout_modules():
    """{name: module} of the package that this one is part of in a checkout, `cases`.

    A script may have a folder of that name of its own, and must find that one.
    """
    top, _, below = __package__.partition(".")
    if not below:
        return {}
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == top}


def autopsy_of(error):
    """Return (the Autopsy of an exception, ""), or (None, why there can be none)."""
    try:
        from .exceptions.answer import autopsy

        return autopsy(error), ""
    except Exception as fault:  # torch is not installed, or a file of the script's is torch.py
        return None, f"There is no autopsy, which needs torch: {fault}"


def do_autopsy(args):
    """Run a script and explain what it raised. Returns 0 if it ended well, else 1.

    With --json nothing but the answer comes out of standard output: what the script prints goes
    to standard error, also from C and from its own subprocesses, and for good, as threads and
    exit handlers may outlive the script.
    """
    script, script_args, last = split(args.words)
    source, as_json = read(script), args.json or last
    # Before the script can close or redirect its own. A terminal may lack letters of the words.
    encoding = os.device_encoding(1) or getattr(sys.stdout, "encoding", None) or "utf-8"
    answer = os.dup(1)
    if as_json:
        sys.stdout.flush()
        os.dup2(2, 1)
    error = run(script, script_args, source)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    found, said, nothing = None, ended(script, error), dict(NOTHING)
    if said is None:
        print_usual(error)
        found, said = autopsy_of(error)
        nothing["error"] = {"type": type(error).__name__, "message": said}
    elif error is not None and error.__context__ is not None:  # it may have caught the very error
        found, _ = autopsy_of(error.__context__)
        found = found if found and found.found else None
    if as_json:
        said = json.dumps(found.to_json() if found else nothing)
    elif found:
        said = f"{said}\n\n{found.text()}".strip()
    with contextlib.suppress(BrokenPipeError), \
            open(answer, "w", encoding=encoding, errors="replace") as out:
        print(said, file=out)
    return 0 if error is None or isinstance(error, SystemExit) and not error.code else 1


def ended(script, error):
    """Return what to say of a script that raised nothing; None if it raised."""
    if error is None:
        return f"{script} ended well: nothing was raised."
    if not isinstance(error, SystemExit):
        return None
    code = error.code
    if code is None or isinstance(code, int):
        return f"{script} ended by sys.exit({int(code or 0)}): nothing else was raised."
    with contextlib.suppress(Exception):  # as Python does
        print(code, file=sys.stderr, flush=True)
    return f"{script} ended by sys.exit with a message: nothing else was raised."


def print_usual(error):
    """Print the traceback as Python would, by the hook that the script has set."""
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except Exception:
        sys.__excepthook__(type(error), error, error.__traceback__)


def excepthook(kind, error, tb):
    """For `sys.excepthook`: the usual traceback, then the autopsy if it has found something."""
    with contextlib.suppress(Exception):
        sys.__excepthook__(kind, error, tb)
    with contextlib.suppress(Exception):
        if issubclass(kind, Exception) and "torch" in sys.modules:
            found, _ = autopsy_of(error)
            if found and found.found:
                print(f"\n{found.text()}", file=sys.stderr, flush=True)


def main(argv, program=PROGRAM):
    """`autopsy` of a program, without the import of torch that other commands need."""
    parser = OneLineParser(description="Run a script and explain what it raised.")
    add_arguments(parser, program)
    return obey(lambda: do_autopsy(parser.parse_args(argv)), program=program)
