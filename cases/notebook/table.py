"""A table that reads the same as HTML, as plain text, and to a screen reader."""

import html
import textwrap

WIDTH = 100  # characters of a line of plain text


class Table:
    """Rows under headers, with a caption; each cell is text.

    Jupyter shows it as HTML; `print`, a terminal and stored outputs get aligned text.
    """

    def __init__(self, caption, headers, rows):
        self.caption = caption
        self.headers = [str(cell) for cell in headers]
        self.rows = [[str(cell) for cell in row] for row in rows]

    def __str__(self):
        """Columns as wide as their longest cell; the last one is wrapped."""
        lines = [self.headers] + self.rows
        widths = [max(len(row[column]) for row in lines) for column in range(len(self.headers))]
        left = sum(widths[:-1]) + 2 * (len(widths) - 1)
        room = max(30, WIDTH - left)
        text = [self.caption]
        for row in lines:
            cells = zip(row, widths[:-1], strict=False)
            start = "  ".join(cell.ljust(width) for cell, width in cells)
            start += "  " if len(row) > 1 else ""
            last = textwrap.wrap(row[-1], room, break_long_words=False) or [""]
            text.append(f"{start}{last[0]}".rstrip())
            text += [" " * left + more for more in last[1:]]
        return "\n".join(text)

    __repr__ = __str__

    def _repr_html_(self):
        # Inline, for Jupyter sets text flush right and strips style sheets from untrusted pages.
        left = 'style="text-align:left;vertical-align:top"'
        whole = left[:-1] + ';white-space:nowrap"'  # a short cell stays on one line

        def cells(row, first, rest):
            return "".join(
                f"<{tag} {whole if len(cell) < 14 else left}>{html.escape(cell)}</{tag[:2]}>"
                for cell, tag in zip(row, [first] + [rest] * len(row), strict=False)
            )

        head = cells(self.headers, 'th scope="col"', 'th scope="col"')
        body = "".join(f"<tr>{cells(row, 'th scope=row', 'td')}</tr>" for row in self.rows)
        return (
            f'<table class="ht-table"><caption style="text-align:left">'
            f"{html.escape(self.caption)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )
