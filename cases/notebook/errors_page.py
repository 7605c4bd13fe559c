"""The page of all errors: every kind that the message reader knows, to search, print or link to.

    python -m cases.notebook.errors_page        writes notebooks/errors.html

Made from rules.toml and the evidence alone; needs no torch.
"""

import html
import os
import re

from cases.halftruths.base import spans
from cases.halftruths.messages.reader import evidence, explain, ids_of, notebook, rules
from cases.lab.base import ROOT

PAGE = ROOT / "notebooks" / "errors.html"

# Dark and light as the reader's system is. Without a script all is shown, and there is no field.
TEMPLATE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Half Truths: find your error</title>
<style>
:root { color-scheme: light dark; background: Canvas; color: CanvasText; --soft: #595959;
  --line: #bbb; --code: #f2f2f2; --link: #0b63a5 }
@media (prefers-color-scheme: dark) {
  :root { --soft: #b4b4b4; --line: #555; --code: #262626; --link: #8ab8e6 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem }
form { position: sticky; top: 0; background: Canvas; padding: .5rem 0; border-bottom: 1px solid
  var(--line) }
label { font-weight: 600; display: block }
input { font: inherit; width: 100%; box-sizing: border-box; padding: .4rem; border: 1px solid
  var(--soft); background: Canvas; color: inherit }
a { color: var(--link) }
:is(a, input):focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
[role=status] { color: var(--soft); min-height: 1.5em; margin: .25rem 0 0 }
article { border-top: 1px solid var(--line); padding: .5rem 0; scroll-margin-top: 7rem }
article[hidden] { display: none }
h2 { font-size: 1.25rem; margin: .5rem 0; overflow-wrap: anywhere }
h3 { font-size: 1rem; margin: .75rem 0 .25rem }
p, ul, ol { margin: .25rem 0 }
ul, ol { padding-left: 1.5rem }
code { font-size: .875em; background: var(--code); padding: 0 .2em; overflow-wrap: anywhere }
small { font-size: .875em; color: var(--soft) }
.many { columns: 24rem; column-gap: 2.5rem }
@media print { form { display: none } article { break-inside: avoid-page } }
</style>
</head>
<body>
<main>
<h1>Find your error</h1>
<p>PyTorch's errors and symptoms about dtypes, by kind: @kinds of them. <em>Recorded</em> means that
a program of the notebook named raised the words, on the torches named, on the CPU if it does not
say cuda; <code>#</code> is any number there. The other words are as people meet them, or put
them.</p>
<p>To have a whole traceback read, with its operands and what else it may be, take the box in
<a href="00_start_here.ipynb" target="_blank">00_start_here.ipynb</a>, or
<code>python -m cases explain -</code>.</p>
<form role="search" hidden>
<label for="words">Some words of your message, or what goes wrong</label>
<input id="words" type="search" autocomplete="off" spellcheck="false">
<p role="status"></p>
</form>
@articles
</main>
<script>
const form = document.querySelector('form'), field = document.querySelector('input');
const status = document.querySelector('[role=status]');
const articles = [...document.querySelectorAll('article')];
const texts = articles.map(article => article.textContent.toLowerCase());
// Those that have most of the words, so that one odd word does not hide all.
function search() {
  const words = [...new Set(field.value.toLowerCase().match(/[\\p{L}\\p{N}_]+/gu) ?? [])];
  const counts = texts.map(text => words.filter(word => text.includes(word)).length);
  const most = Math.max(...counts);
  articles.forEach((article, place) => {
    article.hidden = words.length > 0 && (most === 0 || counts[place] < most);
  });
  const shown = articles.filter(article => !article.hidden).length;
  const have = most < words.length ? `${most} of your ${words.length} words` : 'all your words';
  status.textContent = !words.length ? `All ${articles.length} kinds.`
    : most ? `${shown} of ${articles.length} kinds: with ${have}.` : 'None has any of these words.';
}
form.hidden = false;
form.addEventListener('submit', event => event.preventDefault());
field.addEventListener('input', search);
search();
// A Jupyter server gives a file's text at /files/; the notebook itself is to be opened.
for (const link of document.querySelectorAll('a[href$=".ipynb"]')) {
  link.href = link.href.replace('/files/', '/lab/tree/');
}
</script>
</body>
</html>
"""


def words_by_rule():
    """Return {place of a rule: [recorded words, ...]}: of the rule that reads them first."""
    causes = [rule["cause"] for rule in rules()]
    found = {}
    for words in sorted(evidence()[0], key=str.casefold):
        for reading in explain(words).readings[:1]:
            found.setdefault(causes.index(reading.cause), []).append(words)
    return found


def where(words):
    """Say which notebook's program raised recorded words, and on which torches."""
    parts = {}
    for case, torch_id, device in evidence()[0][words]:
        parts.setdefault((notebook(case)[:2], device), set()).add(torch_id)
    return "; ".join(
        f"{number} on torch {spans(ids, ids_of(device))}" + ", cuda" * (device == "cuda")
        for (number, device), ids in sorted(parts.items()))


def listed(items, tag="ul", many=False):
    several = ' class="many"' if many else ""
    return f"<{tag}{several}>\n" + "\n".join(f"<li>{item}</li>" for item in items) + f"\n</{tag}>"


def article(rule, words, identity):
    """One rule as HTML. words: those recorded; identity: its id in the page."""
    escape = html.escape
    parts = [f'<article id="{identity}">', f"<h2>{escape(rule['kind'])}</h2>"]
    if words:
        said = [f"<code>{escape(text)}</code> <small>{escape(where(text))}</small>"
                for text in words]
        parts += ["<h3>Recorded</h3>", listed(said, many=len(said) > 9)]
    if others := rule.get("example"):
        parts += ["<h3>As people meet it</h3>",
                  listed(f"<code>{escape(text)}</code>" for text in others)]
    parts += ["<h3>Cause</h3>", f"<p>{escape(rule['cause'])}</p>",
              "<h3>Check first</h3>", listed(map(escape, rule["checks"]), "ol"), "<h3>Cures</h3>",
              listed(f"{escape(cure['text'])} <small>Costs: {escape(cure['costs'])}.</small>"
                     for cure in rule["cures"])]
    if rule["cases"]:
        links = ", ".join(f'<a href="{name}" target="_blank">{name}</a>'
                          for name in map(notebook, rule["cases"]))
        parts += ["<h3>Notebook</h3>", f"<p>{links}</p>"]
    return "\n".join([*parts, "</article>"])


def page():
    """Return the whole page as text; the same rules and evidence give the same text."""
    recorded, parts, names = words_by_rule(), [], set()
    for place, rule in enumerate(rules()):
        name = re.sub(r"\W+", "-", rule["kind"]).strip("-")
        while name in names:  # a kind may have two rules, with a cause each
            name += "-2"
        names.add(name)
        parts.append(article(rule, recorded.get(place, ()), name))
    return TEMPLATE.replace("@kinds", str(len(parts))).replace("@articles", "\n".join(parts))


def write(path=PAGE):
    """Write the page whole, by way of a temporary file beside it."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(page(), encoding="utf-8", newline="\n")
    os.replace(temporary, path)


if __name__ == "__main__":
    write()
    print(PAGE.relative_to(ROOT).as_posix())
