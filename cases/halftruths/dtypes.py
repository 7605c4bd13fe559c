"""The dtypes by name: PyTorch's own words, and the words of its messages.

Text alone, for `explain` does without torch; where torch is there, a dtype is getattr(torch, name).
"""

# The scalar type in C++ of each dtype, as messages have it.
SCALARS = {
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex32": "ComplexHalf", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex32", "complex64", "complex128")
# The methods of a tensor that cast have the scalar types' names, in small letters.
CASTS = {scalar.lower(): name for name, scalar in SCALARS.items() if name not in COMPLEX}
SHORT = {"fp16": "float16", "f16": "float16", "bf16": "bfloat16", "bfp16": "bfloat16",
         "fp32": "float32", "fp64": "float64"}  # as people write them
# Every word for a dtype, in small letters: {"half": "float16", "fp16": "float16", …}.
NAMES = {**{name: name for name in SCALARS},
         **{scalar.lower(): name for name, scalar in SCALARS.items()}, **SHORT}


def dtype_name(dtype):
    """Return torch.bfloat16 as 'bfloat16'; None stays None."""
    return None if dtype is None else str(dtype).replace("torch.", "")


def spelled(*names):
    """The alternatives of a pattern: every word, in small letters, for one of these dtypes."""
    found = [word for word, name in NAMES.items() if name in names]
    return "|".join(sorted(found, key=len, reverse=True))  # or 'float' would hide 'float16'
