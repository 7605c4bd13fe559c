"""A table that sorts: in Python, in the page, and readable where there is neither."""

import re
from pathlib import Path

import pytest

from cases.halftruths.base import BadInput
from cases.notebook.sortable import Sortable, Widget
from cases.notebook.table import Table

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


def test_filters_show_the_rows_that_have_the_value():
    table = Sortable(Table("Some ops", ("op", "since", "1.13"), ROWS), filters=("1.13",))
    assert table.values("1.13") == ["✗", "✓"]
    assert first_words(table.only(**{"1.13": "✓"})) == ["<add>", "linear"]
    assert table.only() == str(table)
    with pytest.raises(BadInput, match="^unknown filter 'op'; allowed: 1.13$"):
        table.only(op="mm")
    with pytest.raises(BadInput, match="^unknown value 'x' for 1.13; allowed: ✗, ✓$"):
        table.only(**{"1.13": "x"})
    with pytest.raises(BadInput, match="^unknown column 'nope'; allowed: op, since, 1.13$"):
        Sortable(table.table, filters=("nope",))


def test_details_are_folded_under_the_last_cell_and_escaped():
    table = Sortable(Table("Some ops", ("op", "since", "1.13"), ROWS),
                     details=[["why: <b>", "and"], None, None, None])
    page = table._repr_mimebundle_()[0]["text/html"]
    assert page.count("<details><summary>✗</summary>") == 1
    assert "<div>why: &lt;b&gt;</div><div>and</div></details></td>" in page


@pytest.fixture
def show():
    """A function that renders a Sortable in Chromium and returns the page."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no {CHROMIUM} on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

        def rendered(table):
            widget = table.widget()
            traits = {name: getattr(widget, name) for name in ("content", "rising", "falling")}
            page = browser.new_page()
            page.set_content("<div id=here></div>")
            page.evaluate(
                """async ([source, traits]) => {
                  const url = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
                  const widget = (await import(url)).default;
                  widget.render({model: {get: name => traits[name]},
                                 el: document.getElementById('here')});
                }""", [Widget._esm, traits])
            return page

        yield rendered
        browser.close()


def visible(page):
    return [cell.inner_text() for cell in page.query_selector_all("tbody th") if cell.is_visible()]


@pytest.mark.browser
def test_a_click_and_a_key_sort_as_python_does(table, show):
    page = show(table)

    def sorts():
        return [head.get_attribute("aria-sort") for head in page.query_selector_all("thead th")]

    assert visible(page) == [row[0] for row in ROWS] and sorts() == [None] * 3
    page.click("text=since")
    assert visible(page) == first_words(table.sort("since"))
    assert sorts() == [None, "ascending", None]
    page.click("text=since")
    assert visible(page) == first_words(table.sort("since", falling=True))
    assert sorts() == [None, "descending", None]
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert visible(page) == first_words(table.sort("1.13"))
    assert sorts() == [None, None, "ascending"]
    page.keyboard.press("Space")
    assert visible(page) == first_words(table.sort("1.13", falling=True))
    buttons = page.query_selector_all("thead button")
    assert [b.get_attribute("data-lm-suppress-shortcuts") for b in buttons] == ["true"] * 3


@pytest.mark.browser
def test_menus_filter_as_python_does_and_sorting_keeps_that(show):
    table = Sortable(Table("Some ops", ("op", "since", "1.13"), ROWS), ("since", "1.13"),
                     [["folded"], None, None, None])
    page = show(table)
    since, old = page.query_selector_all("select")
    old.select_option("✗")
    assert visible(page) == first_words(table.only(**{"1.13": "✗"})) == ["mm", "fft"]
    assert page.inner_text("output") == "2 of 4 rows"
    page.click("thead >> text=op")
    assert visible(page) == ["fft", "mm"]
    since.select_option("2.13")
    assert visible(page) == ["mm"]
    assert not page.is_visible("text=folded")
    page.click("summary")
    assert page.is_visible("text=folded")
    since.select_option(""), old.select_option("")
    assert len(visible(page)) == 4 and page.inner_text("output") == "4 of 4 rows"
    assert all(menu.get_attribute("data-lm-suppress-shortcuts") for menu in (since, old))
