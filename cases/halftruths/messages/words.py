"""Error messages as text: when two are the same, and which lines of one matter."""

import re

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


# How PyTorch's messages call its floating dtypes: C++ scalar types, c10 names, Python names.
NAMES = {
    "float16": r"\bc10::Half\b|\bHalf\b|\bfloat16\b",
    "bfloat16": r"\bc10::BFloat16\b|\bBFloat16\b|\bbfloat16\b",
    "float32": r"\bFloat\b|\bfloat\b|\bfloat32\b",
    "float64": r"\bDouble\b|\bdouble\b|\bfloat64\b",
}


def dtypes_in(message):
    """Return the floating dtypes that a message names, as a list in the order of NAMES."""
    return [dtype for dtype, words in NAMES.items() if re.search(words, message)]


def same_error(one, other):
    """True if two errors, each {"type", "message"}, are of one type and say the same."""
    return one["type"] == other["type"] and plain(one["message"]) == plain(other["message"])
