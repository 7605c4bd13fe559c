"""The box of the message reader, without a browser; tests/browser has it in JupyterLab."""

import html
import re

import pytest

from cases.halftruths import pages
from cases.halftruths.messages.reader import explain
from cases.notebook import box as module
from cases.notebook.box import SENT, Box

MESSAGE = "RuntimeError: expected m1 and m2 to have the same dtype, but got: float != c10::Half"


def ask(box, text):
    """What the page does when the button is pressed."""
    box.widget._handle_custom_msg({"text": text}, [])
    return box


@pytest.mark.parametrize("how", [Box, Box().set, lambda text: ask(Box(), text)])
def test_it_says_what_the_reader_says(how):
    box = how(MESSAGE)
    answer = explain(MESSAGE)
    assert box.text() == answer.text()
    page = re.sub("</?a\\b[^>]*>", "", box.widget.answer)
    for heading, rows in answer.blocks():
        assert html.escape(heading) in page
        for name, words in rows:
            assert html.escape(name) in page and html.escape(words) in page
    assert box.widget.said.startswith("Read as linear-matmul-mismatch. It may also be: ")
    links = re.findall('<a href="([^"]*)"', box.widget.answer)
    assert links == ["02_llama_vision.ipynb", pages.page("02_llama_vision.ipynb")]
    box.raise_errors()


def test_nothing_is_read_before_it_is_asked():
    box = Box()
    assert (box.text(), box.widget.answer, box.widget.said) == ("Nothing was read yet.", "", "")


def test_what_is_unknown_is_said():
    box = Box("the quick brown fox")
    assert box.widget.said == "Not recognised." and "full traceback" in box.widget.answer


@pytest.mark.parametrize("bad, words", [
    ("", "empty"), (" \n", "empty"), ("\x00\x01", "not text"), ("x" * SENT, "1,000,000 bytes"),
    (None, "not NoneType"), (3, "not int"),
])
@pytest.mark.parametrize("how", [Box.set, ask])
def test_bad_input_is_a_line_in_the_box_and_loses_no_text(how, bad, words):
    box = Box(MESSAGE)
    before = box.widget.revision
    how(box, bad)
    assert words in box.text() and "\n" not in box.text()
    assert box.widget.said == box.text() and box.widget.answer == ""
    assert box.widget.revision == before + 1
    # What the page holds is left to the page; what code gives is put there.
    assert box.widget.pasted == (MESSAGE if how is ask else bad if isinstance(bad, str) else "")
    box.raise_errors()
    assert box.set(MESSAGE).text() == explain(MESSAGE).text()


def test_code_cannot_give_the_page_more_than_it_bears():
    assert len(Box().set("x" * 3_000_000).widget.pasted) == SENT


def test_what_is_pasted_is_escaped():
    text = "<script>alert(1)</script> float16 LSTM dtype <b>"
    box = Box(text)
    bundle, _ = box._repr_mimebundle_()
    for page in (box.widget.answer, box.html(), bundle["text/html"]):
        assert "<script" not in page and "<b>" not in page
    assert html.escape(text) in bundle["text/html"]


def test_an_error_of_ours_is_kept_and_said(monkeypatch):
    def broken(text):
        raise KeyError("rule")

    box = Box(MESSAGE)
    monkeypatch.setattr(module, "explain", broken)
    ask(box, MESSAGE)
    assert box.text() == box.widget.said == "KeyError: 'rule'"
    with pytest.raises(RuntimeError, match="the box caught: KeyError: 'rule'"):
        box.raise_errors()


def test_what_stays_when_the_notebook_is_saved():
    bundle, _ = Box(MESSAGE)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == explain(MESSAGE).text()
    assert html.escape(MESSAGE) in bundle["text/html"] and "<style" not in bundle["text/html"]
    assert Box()._repr_mimebundle_()[0]["text/html"] == "Nothing was read yet."
    assert "empty" in Box().set("")._repr_mimebundle_()[0]["text/html"]
