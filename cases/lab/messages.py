"""Error messages as text: when two are the same, and which lines of one matter."""

import re


def plain(message):
    """Return a message's first line with numbers and addresses made alike.

    Shapes and addresses differ from run to run; the words do not.
    """
    lines = message.strip().splitlines()
    return re.sub(r"0x[0-9a-f]+|(?<![\w.])\d+(?![\w.])", "#", lines[0] if lines else "")


def same_error(one, other):
    """True if two errors, each {"type", "message"}, are of one type and say the same."""
    return one["type"] == other["type"] and plain(one["message"]) == plain(other["message"])
