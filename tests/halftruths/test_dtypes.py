"""One table of the words for dtypes, held to torch itself, and read by all of the package."""

import torch

from cases.halftruths import dtypes
from cases.halftruths.exceptions import wording
from cases.halftruths.messages import reader
from cases.halftruths.messages.words import dtypes_in


def test_the_names_are_torchs():
    for name in dtypes.SCALARS:
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype) and dtypes.dtype_name(dtype) == name
        assert (name in dtypes.COMPLEX) == dtype.is_complex
        assert (name in dtypes.FLOATS) == dtype.is_floating_point
    assert set(dtypes.NAMES.values()) == set(dtypes.SCALARS)


def test_a_cast_is_a_method_of_a_tensor():
    for method, name in dtypes.CASTS.items():
        assert getattr(torch.ones(1), method)().dtype == getattr(torch, name)
        assert wording.DTYPES[method] == getattr(torch, name)


def test_the_scalar_types_are_those_of_torchs_messages():
    """type() of a tensor is named after its scalar type; of complex ones the short form is not."""
    for name in dtypes.CASTS.values():
        said = torch.zeros(1, dtype=getattr(torch, name)).type()
        assert said == f"torch.{dtypes.SCALARS[name]}Tensor"
        assert reader.dtype_of(said) == reader.dtype_of(f"c10::{dtypes.SCALARS[name]}") == name


def test_the_longest_word_is_tried_first():
    assert dtypes.spelled("float32", "float16").split("|")[:3] == ["float16", "float32", "float"]


def test_the_floats_that_a_message_names():
    said = "expected m1 and m2 to have the same dtype, but got: float != c10::Half"
    assert dtypes_in(said) == ["float16", "float32"]
    assert dtypes_in("of half the size, not doubled, halfway") == []
    assert dtypes_in("torch.bfloat16 and Double, c10::BFloat16") == ["bfloat16", "float64"]
