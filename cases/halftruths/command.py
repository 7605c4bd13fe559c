"""The published package's own command: half-truths autopsy | explain.

Exit 0: it did what was asked. Exit 1: the script of `autopsy` raised. Exit 2: bad arguments, one
line on standard error that names what is allowed.
"""

import sys

from . import script
from .base import BadInput, obey
from .messages import reader

PROGRAM = "half-truths"
USAGE = """usage: half-truths autopsy [--json] SCRIPT [ARGS ...]   run it, explain what it raised
       half-truths explain [--json] MESSAGE             what it means; - is standard input"""
COMMANDS = {"autopsy": script.main, "explain": reader.main}


def main(argv=None):
    """Run a command; return its exit code."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name in ("-h", "--help"):
        print(USAGE)
        return 0
    return obey(lambda: command(name)(rest, PROGRAM), program=PROGRAM)


def command(name):
    if name not in COMMANDS:
        raise BadInput(f"unknown command {name!r}; allowed: {', '.join(COMMANDS)}")
    return COMMANDS[name]
