"""Error messages as text: when two are the same, and which lines of one matter."""

import re

from ..dtypes import FLOATS, SCALARS

NUMBER = re.compile(r"\b\d+(\.\d+)?(e-?\d+)?\b")  # as in "relative error 0.04"; not as in conv2d


def without_numbers(text):
    """Return a text with its numbers made alike, for they differ from processor to processor."""
    return NUMBER.sub("#", text)


def plain(message):
    """Return a message's first line with numbers and addresses made alike.

    Shapes and addresses differ from run to run; the words do not.
    """
    lines = message.strip().splitlines()
    return re.sub(r"0x[0-9a-f]+|(?<![\w.])\d+(?![\w.])", "#", lines[0] if lines else "")


def dtypes_in(message):
    """Return the floating dtypes that a message names, as a list in the order of FLOATS."""
    said = set(re.findall(r"\w+", message))
    # C++ has a float and a double itself; `half` in small letters is a word of English.
    return [name for name in FLOATS
            if said & {name, SCALARS[name], SCALARS[name].lower()} - {"half"}]


def same_error(one, other):
    """True if two errors, each {"type", "message"}, are of one type and say the same."""
    return one["type"] == other["type"] and plain(one["message"]) == plain(other["message"])
