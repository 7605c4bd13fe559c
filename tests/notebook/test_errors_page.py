"""The page of all errors: made anew it is the same, whole, escaped, and to be searched."""

import html
import re
from pathlib import Path

import pytest

from cases.halftruths.messages import reader
from cases.notebook import errors_page

CHROMIUM = "/usr/bin/chromium"
RULES = reader.rules()
EXAMPLES = [(rule["kind"], text) for rule in RULES for text in rule.get("example", ())]


def test_the_committed_page_is_what_is_generated(tmp_path):
    errors_page.write(tmp_path / "errors.html")
    made = (tmp_path / "errors.html").read_text(encoding="utf-8")
    assert errors_page.PAGE.read_text(encoding="utf-8") == made, (
        "run python -m cases.notebook.errors_page")
    assert [path.name for path in tmp_path.iterdir()] == ["errors.html"]


@pytest.mark.parametrize("kind, text", EXAMPLES, ids=[text[:40] for _, text in EXAMPLES])
def test_an_example_is_read_as_its_kind(kind, text):
    assert reader.explain(text).readings[0].kind == kind


def test_each_rule_is_there_whole():
    page = errors_page.page()
    articles = re.findall(r'<article id="([^"]+)">\n(.*?)</article>', page, re.S)
    assert len({name for name, _ in articles}) == len(RULES) == len(articles)
    for rule, (_, text) in zip(RULES, articles, strict=True):
        said = [rule["kind"], rule["cause"], *rule["checks"], *rule.get("example", ())]
        said += [part for cure in rule["cures"] for part in (cure["text"], cure["costs"])]
        assert all(html.escape(part) in text for part in said), rule["kind"]
        assert "<code>" in text, f"{rule['kind']} has no words, recorded or as an example"
        links = re.findall(r'<a href="([^"]+)"', text)
        assert links == [reader.notebook(case) for case in rule["cases"]]
        assert all((errors_page.PAGE.parent / link).is_file() for link in links)


def test_each_recorded_message_about_dtypes_is_there_once():
    page = errors_page.page()
    known = [words for words in reader.evidence()[0] if reader.explain(words).recognised]
    assert len({rule["cause"] for rule in RULES}) == len(RULES), "a rule is told by its cause"
    for words in known:
        found = page.count(f"<code>{html.escape(words)}</code> <small>")
        assert found == 1, f"{words}: {found} times"
    assert page.count("</code> <small>") == len(known)


def test_it_asks_no_other_host_and_its_text_is_escaped(monkeypatch):
    assert not re.search(r"https?:|src=|@import|url\(", errors_page.page())
    rule = {**RULES[0], "kind": "<b>", "cause": "<i>&", "example": ["<script>x"]}
    text = errors_page.article(rule, (), "b")
    assert "<h2>&lt;b&gt;</h2>" in text and "<script" not in text and "<p>&lt;i&gt;&amp;" in text


@pytest.mark.browser
def test_it_is_searched_in_a_browser():
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no {CHROMIUM} on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 700, "height": 900})
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(errors_page.PAGE.as_uri())
        field = page.get_by_role("searchbox", name="Some words of your message")
        shown, status = page.locator("article:visible h2"), page.get_by_role("status")
        assert shown.count() == len(RULES)
        field.fill("LOSS nan")
        assert shown.all_text_contents() == ["activation-or-loss-overflow"]
        # A message as pasted: its numbers and the type before it are on no page.
        field.fill("ValueError: Attempting to unscale FP16 gradients 77.")
        assert shown.all_text_contents() == ["gradscaler-fp16-params"]
        assert "with 5 of your 7 words" in status.text_content()
        field.fill("xyzzy")
        assert shown.count() == 0 and "None" in status.text_content()
        field.fill("")
        assert shown.count() == len(RULES)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        plain = browser.new_context(java_script_enabled=False).new_page()
        plain.goto(errors_page.PAGE.as_uri())
        assert plain.locator("article:visible").count() == len(RULES)
        assert plain.locator("form").is_hidden()
        assert asked == [errors_page.PAGE.as_uri()]
        browser.close()
