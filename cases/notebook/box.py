"""The box: a place to paste an error, a button, and below it what the message reader says.

All logic is in methods that need no browser: `set` gives a text to read, `text` says the answer.
The widget only calls them.
"""

import html

import anywidget
import traitlets

from cases.halftruths.base import BadInput
from cases.halftruths.messages.reader import LIMIT, explain, notebook
from cases.halftruths.pages import linked, page

# The answer's own style is inline; this is the form's, and room around the answer's cells.
STYLE = """<style>
.ht-box {max-width: 900px; box-sizing: border-box; padding: 10px 12px; line-height: 1.4;
  border: 1px solid var(--jp-border-color1, #bbb); font-size: var(--jp-ui-font-size1, 13px);
  color: var(--jp-ui-font-color1, CanvasText)}
.ht-box label {display: block; font-weight: 600}
.ht-box textarea {display: block; box-sizing: border-box; width: 100%; margin: 4px 0 8px;
  padding: 6px; resize: vertical; border: 1px solid var(--jp-border-color0, #767676);
  background: var(--jp-layout-color0, Canvas); color: inherit;
  font: 13px/1.35 var(--jp-code-font-family, monospace)}
.ht-box button {font: inherit; font-weight: 600; padding: 4px 18px; cursor: pointer; color: #fff;
  background: #0b63a5; border: 1px solid #0b63a5; border-radius: 3px}
.ht-box :is(textarea, button, a):focus-visible {outline: 2px solid var(--jp-brand-color1, #0b63a5);
  outline-offset: 2px}
.ht-box .ht-hint {color: var(--jp-ui-font-color2, #595959); margin-left: 8px}
.ht-box [role=status] {margin: 8px 0; font-weight: 600; overflow-wrap: anywhere}
.ht-box [role=status]:empty {display: none}
.ht-box .ht-answer {border-collapse: collapse; width: 100%; margin: 0 0 8px; font-size: inherit}
.ht-box .ht-answer caption {font-size: 115%; padding: 4px 0}
.ht-box .ht-answer :is(th, td) {padding: 3px 12px 3px 0; white-space: normal; background: none;
  overflow-wrap: anywhere; border-top: 1px solid var(--jp-border-color2, #ddd)}
.ht-box .ht-answer th {width: 8em; overflow-wrap: normal}
.ht-box a {color: var(--jp-content-link-color, #0b63a5); text-decoration: underline}
</style>"""
FORM = """<div class="ht-box">
<label>Your message, traceback or log, or what goes wrong in your own words
<textarea rows="6" spellcheck="false" autocomplete="off"></textarea></label>
<button type="button">Read</button><span class="ht-hint">or Ctrl+Enter</span>
<span class="ht-hint ht-long" hidden>Long: only the end is shown here, all of it is read.</span>
<div role="status"></div><div class="ht-said"></div></div>"""
SHOWN = 20_000  # characters shown; with many more JupyterLab's page stops for seconds a key
SENT = LIMIT + 1  # characters sent: too many to be read, and the connection bears them
SILENT = "No answer yet. If the kernel has stopped, copy your text and run this cell again."


class Widget(anywidget.AnyWidget):
    """The form in the page, its own elements: ipywidgets has no keys, and no live region.

    `pasted` is what Python puts into the area, and in the page what stands there or is too long to
    stand there. It comes back only when asked, and then by a message, so that it is sent once.
    """

    _esm = """
    export default { render({ model, el }) {
      el.innerHTML = model.get('form');
      const area = el.querySelector('textarea'), button = el.querySelector('button');
      const status = el.querySelector('[role=status]'), said = el.querySelector('.ht-said');
      let waiting = null;
      // JupyterLab takes no key from these: D D would delete the cell.
      const guard = () => el.querySelectorAll('textarea, button, a')
        .forEach(e => e.setAttribute('data-lm-suppress-shortcuts', 'true'));
      const ask = () => {
        status.textContent = 'Reading \\u2026';
        clearTimeout(waiting);
        waiting = setTimeout(() => {
          status.textContent = model.get('silent');
          said.textContent = '';
        }, 5000);
        model.send({ text: model.get('pasted').slice(-model.get('most')) });
      };
      const answer = () => {
        clearTimeout(waiting);
        status.textContent = model.get('said');
        said.innerHTML = model.get('answer');
        said.dataset.rev = model.get('revision');
        guard();
      };
      const show = () => {
        const text = model.get('pasted'), end = text.slice(-model.get('end'));
        if (area.value !== end) area.value = end;
        el.querySelector('.ht-long').hidden = end === text;
      };
      button.addEventListener('click', ask);
      area.addEventListener('keydown', event => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          ask();
        }
      });
      area.addEventListener('input', () => model.set('pasted', area.value));
      area.addEventListener('paste', event => {
        const text = event.clipboardData.getData('text');
        if (text.length > model.get('end')) {
          event.preventDefault();
          model.set('pasted', text);
        }
      });
      model.on('change:pasted', show);
      model.on('change:revision', answer);
      show();
      answer();
      return () => clearTimeout(waiting);
    } }"""
    form = traitlets.Unicode(STYLE + FORM).tag(sync=True)
    silent = traitlets.Unicode(SILENT).tag(sync=True)
    end = traitlets.Int(SHOWN).tag(sync=True)
    most = traitlets.Int(SENT).tag(sync=True)
    pasted = traitlets.Unicode("").tag(sync=True)
    said = traitlets.Unicode("").tag(sync=True)
    answer = traitlets.Unicode("").tag(sync=True)
    revision = traitlets.Int(0).tag(sync=True)


class Box:
    """A text area whose text the message reader reads, by a button, by Ctrl+Enter, or by `set`.

    text: what it begins with; nothing is read while it is empty.
    """

    def __init__(self, text=""):
        self.errors, self.answer, self.trouble, self._read = [], None, "", ""
        self.widget = Widget()
        self.widget.on_msg(self._asked)
        if text:
            self.set(text)

    # -- without a browser ---------------------------------------------------------------------

    def set(self, text):
        """Put a text into the area and read it; return the box. Bad input is said in the box."""
        self.widget.pasted = text[-SENT:] if isinstance(text, str) else ""
        self.widget.send_state("pasted")  # also where only the page's text has changed
        self._answer(text)
        return self

    def text(self):
        """The answer as plain text, or the line that says why there is none."""
        return self.answer.text() if self.answer else self.trouble or "Nothing was read yet."

    def raise_errors(self):
        """Raise the first error that a callback kept, if there is one."""
        if self.errors:
            raise RuntimeError(f"the box caught: {self.errors[0]}")

    # -- the widget ----------------------------------------------------------------------------

    def _asked(self, widget, content, buffers):
        self._answer(content.get("text"))

    def _answer(self, text):
        try:
            self.answer, self.trouble = explain(text), ""
        except BadInput as error:  # said, and no fault
            self.answer, self.trouble = None, f"Not read: {error}."
        except Exception as error:  # kept, or it would vanish in the browser's log
            self.answer, self.trouble = None, f"{type(error).__name__}: {error}"
            self.errors.append(self.trouble)
        self._read = text if self.answer else ""
        with self.widget.hold_sync():
            self.widget.said, self.widget.answer = self.head, self.html()
            self.widget.revision += 1

    @property
    def head(self):
        """The answer in a line: what a screen reader is told."""
        if not self.answer:
            return self.trouble
        if not self.answer.recognised:
            return "Not recognised."
        kinds = [reading.kind for reading in self.answer.readings]
        others = f" It may also be: {', '.join(kinds[1:])}." if kinds[1:] else ""
        return f"Read as {kinds[0]}.{others}"

    def html(self):
        """The answer as HTML, with a link to its notebook; empty where there is none."""
        if not self.answer:
            return ""
        shown = self.answer._repr_html_()
        for case in [reading.case for reading in self.answer.readings[:1] if reading.case]:
            name = notebook(case)  # it lies beside the one that the box is in
            address = linked(page(name))
            shown = shown.replace(address, f'<a href="{name}">{name}</a>, {address}')
        return shown

    def _repr_mimebundle_(self, include=None, exclude=None):
        """The widget, and what stays of it when the notebook is saved or exported."""
        bundle, metadata = self.widget._repr_mimebundle_()
        read = f"<pre>{html.escape(self._read[:1000])}</pre>"
        bundle["text/html"] = read + self.html() if self.answer else html.escape(self.text())
        bundle["text/plain"] = self.text()
        return bundle, metadata
