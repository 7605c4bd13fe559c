"""One palette and one set of letters for dtypes, in panels, figures and tables.

The colours differ for colour-blind readers and have a contrast of at least 4.5 to 1 with white;
the letters always stand beside them.
"""

LETTERS = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64",
}
COLOURS = {
    "float32": "#0b63a5", "float16": "#b84c00", "bfloat16": "#00755a", "float64": "#7a3aa8",
}
INTEGERS = "#5f6368"


def letters(dtype):
    return LETTERS.get(dtype, dtype)


def colour(dtype):
    return COLOURS.get(dtype, INTEGERS)
