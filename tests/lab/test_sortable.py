"""A table that sorts: in Python, in the page, and readable where there is neither."""

import re
from pathlib import Path

import pytest

from cases.lab.case import BadInput
from cases.lab.sortable import Sortable, Widget
from cases.lab.table import Table

CHROMIUM = "/usr/bin/chromium"
ROWS = [("mm", "2.13", "✗"), ("<add>", "2.9", "✓"), ("fft", "never", "✗"), ("linear", "1.13", "✓")]


@pytest.fixture
def table():
    return Sortable(Table("Some ops", ("op", "since", "1.13"), ROWS))


def first_words(text):
    return [line.split()[0] for line in text.splitlines()[2:]]


def test_versions_sort_as_numbers_before_words(table):
    assert first_words(table.sort("since")) == ["linear", "<add>", "mm", "fft"]
    assert first_words(table.sort("since", falling=True)) == ["fft", "mm", "<add>", "linear"]


def test_equal_rows_stay_in_their_order(table):
    assert first_words(table.sort("1.13")) == ["<add>", "linear", "mm", "fft"]
    assert first_words(table.sort("1.13", falling=True)) == ["mm", "fft", "<add>", "linear"]


def test_sorting_loses_nothing_and_changes_nothing(table):
    before = str(table)
    text = table.sort("op")
    assert sorted(text.splitlines()) == sorted(before.splitlines())
    assert text.splitlines()[:2] == before.splitlines()[:2]
    assert str(table) == before


def test_an_unknown_column_is_refused_in_one_line(table):
    with pytest.raises(BadInput, match="^unknown column 'version'; allowed: op, since, 1.13$"):
        table.sort("version")


def test_it_reads_without_a_widget(table):
    bundle, _ = table._repr_mimebundle_()
    assert bundle["text/plain"] == str(Table("Some ops", ("op", "since", "1.13"), ROWS))
    page = bundle["text/html"]
    assert "<button" not in page and "<script" not in page and "&lt;add&gt;" in page
    cells = re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", page)
    assert [cell.replace("&lt;", "<").replace("&gt;", ">") for cell in cells] == [
        "op", "since", "1.13", *(cell for row in ROWS for cell in row)]


def test_a_table_without_rows_sorts_too():
    empty = Sortable(Table("None", ("op", "since"), ()))
    assert empty.sort("op") == "None\nop  since"


@pytest.mark.browser
def test_a_click_and_a_key_sort_as_python_does(table):
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no {CHROMIUM} on this machine")
    from playwright.sync_api import sync_playwright

    widget = table.widget()
    traits = {name: getattr(widget, name) for name in ("content", "rising", "falling")}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_content("<div id=here></div>")
        page.evaluate(
            """async ([source, traits]) => {
              const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
              const widget = (await import(url)).default;
              widget.render({model: {get: name => traits[name]},
                             el: document.getElementById('here')});
            }""", [Widget._esm, traits])

        def shown():
            return [cell.inner_text() for cell in page.query_selector_all("tbody th")]

        def sorts():
            return [head.get_attribute("aria-sort") for head in page.query_selector_all("thead th")]

        assert shown() == [row[0] for row in ROWS] and sorts() == [None] * 3
        page.click("text=since")
        assert shown() == first_words(table.sort("since"))
        assert sorts() == [None, "ascending", None]
        page.click("text=since")
        assert shown() == first_words(table.sort("since", falling=True))
        assert sorts() == [None, "descending", None]
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert shown() == first_words(table.sort("1.13"))
        assert sorts() == [None, None, "ascending"]
        page.keyboard.press("Space")
        assert shown() == first_words(table.sort("1.13", falling=True))
        buttons = page.query_selector_all("thead button")
        assert [b.get_attribute("data-lm-suppress-shortcuts") for b in buttons] == ["true"] * 3
        browser.close()
