"""A person's own diagnosis beside the message reader's: the person first, then both."""

import pytest

from cases.notebook import lesson
from cases.notebook.exercise import SHOWN, compare

LINEAR = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"
CONV = "RuntimeError: Input type (c10::BFloat16) and bias type (float) should be the same"
SCATTER = "RuntimeError: scatter(): Expected self.dtype to be equal to src.dtype"
LONG = "NotImplementedError: \"softmax_lastdim_kernel_impl\" not implemented for 'Long'"


def judged(*texts, messages=(LINEAR, CONV), dtype="float32"):
    return compare(lambda: texts, messages, dtype)


@pytest.mark.parametrize("texts, empty", [(("", ""), "1, 2"), (("input", " \n"), "2")])
def test_the_person_answers_first(texts, empty):
    found = judged(*texts)
    assert not found.passed
    assert found.lines == [f"Your answers first. Still empty: {empty}."]


def test_then_both_stand_side_by_side():
    found = judged("input", "the weight")
    assert found.passed and str(found).startswith("✓ solved\n")
    assert found.lines[0] == ("1. You: input. The reader: input float32, weight bfloat16. "
                              "You agree.")
    assert "linear-matmul-mismatch: Two operands of a matrix product differ in dtype." in str(found)


def test_who_differs_is_told_so_and_not_who_is_right():
    found = judged("input", "input")
    assert not found.passed and "✗ not yet" in str(found)
    line = next(line for line in found.lines if line.startswith("2."))
    assert "You differ: one of you is wrong." in line


@pytest.mark.parametrize("text", ["weight", "both input and weight", "bfloat16", "what", "?"])
def test_what_is_no_right_operand_does_not_agree(text):
    assert not judged(text, messages=[LINEAR]).passed


def test_readings_that_share_the_words_are_named():
    assert "   It may also be: encoder-fastpath-autocast, " in str(judged("input", "weight"))
    assert "It may also be" not in str(judged("weight", messages=[CONV]))


def test_where_the_reader_cannot_tell_there_is_nothing_to_compare():
    found = judged("source", messages=[SCATTER])
    assert found.passed and "names no operand. Nothing to compare." in str(found)
    found = judged("anything", messages=["KeyError: 'x'"])
    assert found.passed and "does not know this message" in str(found)


@pytest.mark.parametrize("text, agrees", [
    ("int64", True), ("Long", True), ("torch.int64", True), ("half", False), ("integers", False),
])
def test_a_dtype_by_any_of_its_names(text, agrees):
    found = judged(text, messages=[LONG], dtype=None)
    assert found.passed == agrees
    assert "label-dtype" in str(found), "the right reading, which is its second here"


def raises():
    raise KeyError("x\ny")


@pytest.mark.parametrize("answers, words", [
    (raises, "Your function raises KeyError: 'x"), (lambda: None, "Not 2 answers"),
    (lambda: "in", "Not 2 answers"), (lambda: ("input",), "Not 2 answers"),
    (lambda: {"a": 1, "b": 2}, "Not 2 answers"), (lambda: (1, 2), "Not all answers are texts"),
    (lambda: ("input", None), "Not all answers are texts"), (lambda one: one, "raises TypeError"),
    ("input", "raises TypeError"),
])
def test_odd_answers_are_one_clear_line(answers, words):
    found = compare(answers, [LINEAR, CONV], "float32")
    assert not found.passed and len(found.lines) == 1
    assert words in found.lines[0] and "\n" not in found.lines[0]


def test_an_endless_answer_is_cut():
    found = judged("x " * 10_000, "weight")
    assert all(len(line) < SHOWN + 200 for line in found.lines)


def test_messages_are_raised_live_and_none_twice(capsys):
    def fails():
        raise RuntimeError(LINEAR.removeprefix("RuntimeError: "))

    found = lesson.diagnose(lambda: ("input",), [(fails, "RuntimeError", "same dtype")], "float32")
    assert found.passed and capsys.readouterr().out.count(LINEAR) == 1
    with pytest.raises(AssertionError, match="nothing was raised"):
        lesson.diagnose(lambda: ("input",), [(lambda: None, "RuntimeError", "x")], "float32")
    assert lesson.expect_failure(fails, "RuntimeError", "same dtype") is None
