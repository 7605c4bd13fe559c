"""A long table that clicks sort and menus filter; on paper, in an export, a plain table."""

import html
import re

import anywidget
import traitlets

from cases.halftruths.base import BadInput
from cases.notebook.table import Table

STYLE = """<style>
.ht-sortable {max-height: 400px; overflow: auto; display: inline-block; max-width: 100%}
.ht-sortable table {border-collapse: collapse; margin: 0; line-height: 1.3;
  font-size: var(--jp-ui-font-size1, 13px)}
.ht-sortable caption {text-align: left; padding-bottom: 4px}
.ht-sortable :is(th, td) {text-align: left; padding: 2px 8px; white-space: nowrap;
  font-weight: normal}
.ht-sortable thead th {position: sticky; top: 0; padding: 0;
  background: var(--jp-layout-color2, Canvas); color: var(--jp-ui-font-color1, CanvasText)}
.ht-sortable button {font: inherit; font-weight: 600; color: inherit; background: none; border: 0;
  padding: 4px 8px; cursor: pointer; width: 100%; text-align: left; white-space: nowrap}
.ht-sortable button:focus-visible {outline: 2px solid var(--jp-brand-color1, #0b63a5);
  outline-offset: -2px}
.ht-sortable [aria-sort=ascending] button::after {content: " ▲"}
.ht-sortable [aria-sort=descending] button::after {content: " ▼"}
.ht-sortable tbody tr:nth-child(even) {background: var(--jp-layout-color1, transparent)}
.ht-sortable:has(details) {display: block}
.ht-sortable:has(details) table {width: 100%}
.ht-sortable td:has(details) {white-space: normal; min-width: 260px}
.ht-sortable tr:has(details[open]) > * {vertical-align: top}
.ht-sortable summary {cursor: pointer}
.ht-sortable details div {padding: 2px 0 2px 14px}
.ht-filters {margin: 0 0 6px; font-size: var(--jp-ui-font-size1, 13px)}
.ht-filters label {margin-right: 14px; white-space: nowrap}
.ht-filters select {font: inherit; color: inherit; max-width: 180px;
  background: var(--jp-layout-color1, Canvas); border: 1px solid var(--jp-border-color1, #999)}
.ht-filters option {color: CanvasText; background: Canvas}
</style>"""


class Widget(anywidget.AnyWidget):
    """The table in the page. Orders are made in Python, so that `Sortable.sort` agrees with it.

    A button sorts on Enter and Space by itself, if JupyterLab does not take them first.
    """

    _esm = """
    export default { render({ model, el }) {
      el.innerHTML = model.get('content');
      const body = el.querySelector('tbody'), rows = [...body.rows];
      const heads = [...el.querySelectorAll('thead th')];
      heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
        const down = head.getAttribute('aria-sort') === 'ascending';
        const order = model.get(down ? 'falling' : 'rising')[column];
        heads.forEach(other => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        body.replaceChildren(...order.map(place => rows[place]));
      }));
      const choices = [...el.querySelectorAll('select')], count = el.querySelector('output');
      const filter = () => {
        rows.forEach(row => { row.hidden = choices.some(choice => {
          const cell = row.cells[choice.dataset.column];
          const text = (cell.querySelector('summary') ?? cell).textContent;
          return choice.value && text !== choice.value;
        }); });
        count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length} rows`;
      };
      choices.forEach(choice => choice.addEventListener('change', filter));
    } }"""
    content = traitlets.Unicode().tag(sync=True)
    rising = traitlets.List().tag(sync=True)
    falling = traitlets.List().tag(sync=True)


class Sortable:
    """A Table that can be sorted by each of its columns, and filtered by some.

    table: a notebook.table.Table. Numbers in a cell count as numbers: 2.9 comes before 2.13, as
    versions do. Rows that are alike in a column stay as they were.
    filters: heads of columns, each with a menu of the values in it.
    details: for each row a list of lines, or None; they are folded under the row's last cell.
    Raises BadInput for a filter that is no column.
    """

    def __init__(self, table, filters=(), details=None):
        self.table, self.filters, self.details = table, tuple(filters), details
        for column in self.filters:
            self.place(column)

    def place(self, column):
        """Place of a column, from its head; raises BadInput if there is none."""
        if column not in self.table.headers:
            raise BadInput(f"unknown column {column!r}; allowed: {', '.join(self.table.headers)}")
        return self.table.headers.index(column)

    def values(self, column):
        """The different cells of a column, in the order in which they come."""
        place = self.place(column)
        return list(dict.fromkeys(row[place] for row in self.table.rows))

    def order(self, column, falling=False):
        """Return the places of the rows, sorted by a column, as a list of integers.

        Raises BadInput for a column that the table does not have.
        """
        place = self.place(column)
        return sorted(range(len(self.table.rows)), reverse=falling,
                      key=lambda row: natural(self.table.rows[row][place]))

    def sort(self, column, falling=False):
        """The table sorted by a column, as text: what a click shows; with `falling`, a second."""
        rows = [self.table.rows[place] for place in self.order(column, falling)]
        return str(Table(self.table.caption, self.table.headers, rows))

    def only(self, **chosen):
        """The rows that have these cells, as text: what a choice in the menus shows.

        Raises BadInput for a column without a menu, or a value that no row has.
        """
        for column, value in chosen.items():
            if column not in self.filters:
                raise BadInput(f"unknown filter {column!r}; allowed: {', '.join(self.filters)}")
            if value not in self.values(column):
                raise BadInput(f"unknown value {value!r} for {column}; allowed: "
                               f"{', '.join(self.values(column))}")
        rows = [row for row in self.table.rows
                if all(row[self.place(column)] == value for column, value in chosen.items())]
        return str(Table(self.table.caption, self.table.headers, rows))

    def __str__(self):
        return str(self.table)

    __repr__ = __str__

    def html(self, live=False):
        """What stands in the <table>, small: no styles in cells. live: its heads are buttons."""
        heads = [html.escape(head) for head in self.table.headers]
        if live:
            heads = [f'<button type="button" data-lm-suppress-shortcuts="true">{head}</button>'
                     for head in heads]
        head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
        body = "".join(
            f"<tr><th scope=row>{html.escape(row[0])}</th>"
            + "".join(f"<td>{cell}</td>" for cell in self.cells(place, row[1:], live)) + "</tr>"
            for place, row in enumerate(self.table.rows)
        )
        return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"

    def cells(self, place, cells, live):
        """The cells of a row as HTML; the last one holds the row's details."""
        cells = [html.escape(cell) for cell in cells]
        if self.details and self.details[place]:
            lines = "".join(f"<div>{html.escape(line)}</div>" for line in self.details[place])
            quiet = ' data-lm-suppress-shortcuts="true"' if live else ""
            cells[-1] = f"<details><summary{quiet}>{cells[-1]}</summary>{lines}</details>"
        return cells

    def menus(self):
        """The filters as HTML: a menu each, and how many rows are left."""
        if not self.filters:
            return ""
        menus = []
        for column in self.filters:
            options = "".join(f'<option value="{html.escape(value)}">{html.escape(value)}</option>'
                              for value in self.values(column))
            menus.append(f'<label>{html.escape(column)} <select data-lm-suppress-shortcuts="true" '
                         f'data-column="{self.place(column)}"><option value="">all</option>'
                         f"{options}</select></label>")
        rows = len(self.table.rows)
        return f'<p class="ht-filters">{"".join(menus)}<output>{rows} of {rows} rows</output></p>'

    def widget(self):
        """The table as a widget, each row's place kept, however it is sorted."""
        caption = html.escape(self.table.caption)
        return Widget(
            content=f'{STYLE}{self.menus()}<div class="ht-sortable" tabindex="0" role="region" '
                    f'aria-label="table"><table><caption>{caption}. Click on a head to sort by it.'
                    f"</caption>{self.html(live=True)}</table></div>",
            rising=[self.order(column) for column in self.table.headers],
            falling=[self.order(column, True) for column in self.table.headers],
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle, metadata = self.widget()._repr_mimebundle_()
        # Folded, for a page without a kernel has no box that scrolls.
        caption = html.escape(self.table.caption)
        bundle["text/html"] = (f"<details><summary>{caption}</summary><table>{self.html()}"
                               "</table></details>")
        bundle["text/plain"] = str(self)
        return bundle, metadata


def natural(text):
    """A key to sort by: the numbers in a text count as numbers, and come before words."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part]
