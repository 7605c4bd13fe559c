"""The panel: toggles on the left, what the program then does on the right.

All logic is in methods that need no browser: `set` changes a choice, `text` says the outcome.
The widgets only call them.
"""

import html

import anywidget
import ipywidgets as widgets
import torch._dynamo  # noqa: F401  the first optimizer imports it: seconds, better spent here
import traitlets

from cases.halftruths.base import BadInput
from cases.lab import torches
from cases.lab.outcome import label_of, verdict_of
from cases.lab.run import ask, known_torches
from cases.notebook.palette import colour, letters
from cases.notebook.table import Table

STYLE = """<style>
.ht-panel {max-width: 900px; border: 1px solid var(--jp-border-color1, #bbb); padding: 8px 12px;
  overflow: hidden}
.ht-panel .widget-checkbox, .ht-panel .widget-dropdown {height: 26px; margin: 0}
.ht-panel .ht-head {font-weight: 600; margin: 0; line-height: 22px}
.ht-panel :is(input, select):focus {outline: 2px solid var(--jp-brand-color1, #0b63a5);
  outline-offset: 1px}
.ht-outcome {border-collapse: collapse; width: 100%; line-height: 1.3}
.ht-outcome th {text-align: left; vertical-align: top; padding: 3px 10px 3px 0; white-space: nowrap;
  font-weight: 600; width: 1%}
.ht-outcome td {text-align: left; vertical-align: top; padding: 3px 0; overflow-wrap: anywhere}
.ht-outcome caption {text-align: left; font-size: 150%; padding: 0 0 4px}
.ht-fails, .ht-moves, .ht-wrong {color: var(--jp-error-color1, #b00020)}
.ht-note {color: var(--jp-ui-font-color2, #595959); font-size: 90%; line-height: 1.3;
  margin: 8px 0 0}
</style>"""
NOTE = "If a click changes nothing, the kernel has stopped: run this cell again."


class Helper(anywidget.AnyWidget):
    """What ipywidgets cannot do: keep JupyterLab's keys off the controls, and announce results.

    In command mode JupyterLab takes D D, A, X and the arrows from a focused checkbox; the
    attribute that stops it can only be set on the elements. The live region must stay in the
    page while its text changes, else a screen reader says nothing.
    """

    _esm = """
    export default { render({ model, el }) {
      const guard = () => document.querySelectorAll('.ht-panel :is(input, select, button)')
        .forEach(e => e.setAttribute('data-lm-suppress-shortcuts', 'true'));
      guard();
      const watch = new MutationObserver(guard);
      watch.observe(document.body, { childList: true, subtree: true });
      el.setAttribute('role', 'status');
      el.style.cssText =
        'position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)';
      const say = () => { el.textContent = model.get('said'); };
      model.on('change:said', say);
      return () => watch.disconnect();
    } }"""
    said = traitlets.Unicode("").tag(sync=True)


class Panel:
    """A case with its fixes as toggles and its factors, device and torch as choices.

    case: a Case. setting: {factor: value} to begin with. torch: id of the torch to begin with.
    """

    def __init__(self, case, setting=None, device="cpu", torch="current"):
        self.case = case
        self.setting = case.setting(setting)
        self.device, self.torch_id = device, torches.current() if torch == "current" else torch
        self.on = {fix.name: False for fix in case.fixes}
        self.errors, self.outcome, self.trouble, self.revision = [], None, "", 0
        self._known, self._controls = {}, {}
        self._answer = widgets.HTML()
        self._helper = Helper()
        self.view = self._build()
        self._update()

    # -- without a browser ---------------------------------------------------------------------

    def set(self, **choices):
        """Switch fixes on or off and choose factors, `device` or `torch`; return the panel.

        Raises BadInput for a name or value that the panel does not offer.
        """
        for name, value in choices.items():
            control = self._controls.get(name)
            if control is None:
                raise BadInput(
                    f"unknown control {name!r}; allowed: {', '.join(self._controls)}"
                )
            offered = getattr(control, "options", (True, False))
            if value not in offered:
                raise BadInput(f"unknown value {value!r} for {name}; allowed: "
                               f"{', '.join(map(str, offered))}")
        for name, value in choices.items():
            self._controls[name].value = value
        return self

    @property
    def fixes(self):
        """Names of the fixes that are on."""
        return [name for name, on in self.on.items() if on]

    @property
    def rows(self):
        """What the panel says, as (heading, text) pairs."""
        fixes = " + ".join(self.fixes) or "none"
        if self.outcome is None:
            return [("why", self.trouble), ("fixes on", fixes)]
        outcome = self.outcome
        if outcome.status == "raised":
            rows = [("error", f"{outcome.error['type']}: {outcome.error['message']}")]
            if outcome.where:
                odd = ", ".join(sorted({f"{o['dtype']}" for o in outcome.where["operands"]}))
                module = outcome.where["module"] or "the program itself"
                rows.append(("where", f"{module}, {outcome.where['op']}, operands: {odd}"))
        else:
            error = outcome.relative_error
            rows = [
                ("output", f"{outcome.output_dtype} ({letters(outcome.output_dtype)})"),
                ("relative error", "-" if error is None else f"{error:g} against float32"),
                ("costs", "; ".join(c["text"] for c in outcome.costs) or "none measured"),
            ]
        return rows + [("fixes on", fixes), ("label", label_of(outcome))]

    def text(self):
        """The outcome as plain text, one line a fact."""
        head = f"{self.case.name}: {self.head}"
        return "\n".join([head] + [f"{name}: {value}" for name, value in self.rows])

    def raise_errors(self):
        """Raise the first error that a callback kept, if there is one."""
        if self.errors:
            raise RuntimeError(f"the panel caught: {self.errors[0]}")

    # -- the widgets ---------------------------------------------------------------------------

    def _build(self):
        for fix in self.case.fixes:
            missing = fix.needs_gpu and not torch.cuda.is_available()
            box = widgets.Checkbox(
                description=f"{fix.name} (no GPU here)" if missing else fix.name,
                indent=False, value=False, tooltip=fix.help)
            self._controls[fix.name] = box
        for factor in self.case.factors:
            self._controls[factor.name] = widgets.Dropdown(
                description=factor.name, options=factor.values, value=self.setting[factor.name],
                tooltip=factor.help)
        self._controls["device"] = widgets.Dropdown(
            description="device", options=("cpu", "cuda"), value=self.device)
        self._controls["torch"] = widgets.Dropdown(
            description="torch", options=known_torches(self.case), value=self.torch_id)
        for name, control in self._controls.items():
            control.layout.width = "auto" if name in self.on else "200px"
            control.observe(self._changed, names="value")
        boxes = [self._controls[name] for name in self.on]
        choices = [c for name, c in self._controls.items() if name not in self.on]
        head = '<p class="ht-head">{}</p>'.format
        left = widgets.VBox([widgets.HTML(head("Fixes")), *boxes], layout=widgets.Layout(
            flex="0 0 auto", overflow="hidden", padding="0 14px 0 0"))
        middle = widgets.VBox([widgets.HTML(head("Factors")), *choices],
                              layout=widgets.Layout(
                                  flex="0 0 auto", overflow="hidden", padding="0 0 3px 0"))
        right = widgets.VBox([self._answer], layout=widgets.Layout(
            flex="1 1 300px", min_width="0", overflow="hidden", padding="0 0 0 14px"))
        right.add_class("ht-right")
        view = widgets.Box(
            [widgets.HTML(STYLE), left, middle, right, self._helper],
            layout=widgets.Layout(display="flex", flex_flow="row wrap", align_items="flex-start"),
        )
        view.add_class("ht-panel")
        return view

    def _changed(self, change):
        name = next(n for n, control in self._controls.items() if control is change["owner"])
        if name in self.on:
            self.on[name] = change["new"]
        elif name == "device":
            self.device = change["new"]
        elif name == "torch":
            self.torch_id = change["new"]
        else:
            self.setting = {**self.setting, name: change["new"]}
        self._update()

    def _update(self):
        """Show the outcome at once; then, where something is trained, what training costs."""
        self._show(training=False)
        if self.outcome and self.outcome.status == "ran" and self.setting.get("phase") == "train":
            self._show(training=True)

    def _show(self, training):
        key = (tuple(self.setting.items()), tuple(self.fixes), self.device, self.torch_id, training)
        try:
            if key not in self._known:
                self._known[key] = ask(self.case, self.setting, self.fixes, self.device,
                                       self.torch_id, training)
            self.outcome = self._known[key]
        except BadInput as error:  # a choice that cannot be had here: said, and no fault
            self.outcome, self.trouble = None, str(error)
        except Exception as error:  # kept, or it would vanish in the browser's log
            self.outcome, self.trouble = None, f"{type(error).__name__}: {error}"
            self.errors.append(self.trouble)
        self.revision += 1
        self._answer.value = self.html()
        self._helper.said = self.text()

    @property
    def head(self):
        return verdict_of(self.case, self.outcome) if self.outcome else "no outcome"

    def html(self):
        """The outcome as the HTML table that the panel shows."""
        dtype = self.outcome.output_dtype if self.outcome else None
        cells = ""
        for name, value in self.rows:
            style = f' style="color:{colour(dtype)};font-weight:600"' if name == "output" else ""
            cells += (f'<tr><th scope="row">{html.escape(name)}</th>'
                      f"<td{style}>{html.escape(value)}</td></tr>")
        return (f'<table class="ht-outcome" data-rev="{self.revision}">'
                f'<caption class="ht-{self.head.split()[-1]}">{html.escape(self.head)}</caption>'
                f"<tbody>{cells}</tbody></table>"
                f'<p class="ht-note">{NOTE}</p>')

    def table(self):
        """The outcome as a Table: what stays when the notebook is saved or exported."""
        return Table(f"{self.case.name}: {self.head}", ("fact", "measured"), self.rows)

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = dict(self.view._repr_mimebundle_())
        bundle["text/html"] = self.table()._repr_html_()
        bundle["text/plain"] = self.text()
        return bundle
