"""Pictures drawn from measured roads, each with alternative text and a table of the same."""

import base64
import html
import io
import textwrap

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cases.lab.palette import colour, letters
from cases.lab.table import Table

DASHES = {"float32": "-", "float16": (0, (5, 1.5)), "bfloat16": (0, (2, 1)), "float64": "-."}


class Picture:
    """A figure as an image with alternative text; in plain text, its table."""

    def __init__(self, figure, alt, table):
        out = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(out, format="png", dpi=144, metadata={"Software": None})
        self.png, self.alt, self.table = out.getvalue(), alt, table

    def __str__(self):
        return str(self.table)

    __repr__ = __str__

    def _repr_html_(self):
        data = base64.b64encode(self.png).decode()
        return (
            f'<img alt="{html.escape(self.alt)}" style="max-width:100%;width:760px" '
            f'src="data:image/png;base64,{data}"/>{self.table._repr_html_()}'
        )


def road_picture(road, stations=None):
    """Draw a Road from left to right: one stop a tensor, one height a dtype.

    stations: indices into road.once to draw; by default all. Returns a Picture.
    """
    stops = road.once if stations is None else [road.once[i] for i in stations]
    outcome = road.outcome
    names = [stop.name for stop in stops]
    dtypes = [stop.dtype for stop in stops]
    ending = ending_of(outcome)
    levels = sorted({*dtypes, *ending["dtypes"]}, key=lambda d: (d != "float32", d))
    height = {dtype: -index for index, dtype in enumerate(levels)}

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(8.4, 1.75 + 0.6 * len(levels)), facecolor="white")
        axes = figure.add_axes((0.09, 0.02, 0.89, 0.9))
        axes.set_axis_off()
        last = len(stops)
        axes.set_xlim(-0.6, last + 0.75)
        axes.set_ylim(-len(levels) - 0.75, 0.6)
        for dtype in levels:
            axes.plot([-0.5, last + 0.5], [height[dtype]] * 2, color="#d0d0d0", lw=1, zorder=0)
            axes.text(-0.62, height[dtype], letters(dtype), color=colour(dtype), ha="right",
                      va="center", weight="bold", fontsize=11)
        for index in range(len(stops) - 1):
            one, other = dtypes[index], dtypes[index + 1]
            axes.plot([index, index + 1], [height[one], height[other]], color=colour(other),
                      lw=3, ls=DASHES.get(other, "-"))
        if stops:
            for dtype in ending["dtypes"] or dtypes[-1:]:
                axes.plot([last - 1, last], [height[dtypes[-1]], height[dtype]],
                          color=colour(dtype), lw=3, ls=DASHES.get(dtype, "-"))
        for index, stop in enumerate(stops):
            y = height[stop.dtype]
            axes.plot(index, y, "o", ms=10, mfc="white", mec=colour(stop.dtype), mew=2.5)
            label = "\n".join(textwrap.wrap(stop.name, 14))
            axes.text(index, -len(levels) + 0.3, label, ha="center", va="top", weight="bold")
            axes.text(index, -len(levels) - 0.02, "\n".join(textwrap.wrap(shorten(stop.code), 16)[:3]),
                      ha="center", va="top", fontsize=6.5, color="#444444", family="DejaVu Sans Mono")
        top = max((height[d] for d in ending["dtypes"] or dtypes[-1:]), default=0)
        sign = "✗" if outcome.status == "raised" else "✓"
        axes.text(last, top + 0.22, sign, ha="center", va="bottom", fontsize=15,
                  color="#b00020" if outcome.status == "raised" else "#00755a")
        for dtype in ending["dtypes"]:
            axes.plot(last, height[dtype], "s", ms=9, color=colour(dtype))
        axes.text(last, -len(levels) + 0.3, "\n".join(textwrap.wrap(ending["name"], 16)),
                  ha="center", va="top", weight="bold")
    path = ", ".join(f"{name} {letters(dtype)}" for name, dtype in zip(names, dtypes))
    alt = f"Road of the run, left to right: {path}; then {ending['name']}: {ending['said']}"
    rows = [(s.name, letters(s.dtype), f"{s.file}:{s.line}", s.code) for s in stops]
    rows.append((ending["name"], " and ".join(map(letters, ending["dtypes"])) or "-",
                 ending["module"], ending["said"]))
    caption = "The road, stop by stop"
    if road.disturbed:
        caption += " (watched, the run ended otherwise than alone)"
    return Picture(figure, alt, Table(caption, ("tensor", "dtype", "where", "made by"), rows))


def shorten(code):
    """The right-hand side of an assignment, without its arguments if it is long."""
    right = code.split(" = ", 1)[-1]
    return right if len(right) <= 40 else right.split("(", 1)[0] + "(…)"


def ending_of(outcome):
    """What stands at the end of the road: the failing operation, or the output."""
    if outcome.status == "ran":
        return {"name": "output", "dtypes": [outcome.output_dtype], "module": "", "said": "runs"}
    where = outcome.where or {"op": "error", "operands": [], "module": ""}
    dtypes = sorted(
        {o["dtype"] for o in where["operands"] if "float" in o["dtype"]},
        key=lambda d: d != "float32",
    )
    return {"name": where["op"].strip("_"), "dtypes": dtypes, "module": where["module"] or "",
            "said": outcome.error["message"].splitlines()[0]}
