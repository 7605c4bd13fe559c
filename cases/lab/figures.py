"""Pictures drawn from measured roads, each with alternative text and a table of the same."""

import base64
import html
import io

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cases.lab.messages import dtypes_in
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


def road_picture(road, skip=(), joins=()):
    """Draw a Road from left to right: one stop a tensor, one height a dtype. Returns a Picture.

    skip: names of variables to leave out, such as a mask.
    joins: names of variables that are not made from the stop before; they meet it at the next.
    """
    stops = [stop for stop in road.once if stop.name not in skip]
    end = ending_of(road.outcome)
    levels = sorted({stop.dtype for stop in stops} | {*end["dtypes"], *end["inside"]},
                    key=lambda dtype: (dtype != "float32", dtype))
    height = {dtype: -index for index, dtype in enumerate(levels)}
    last, floor = len(stops), -len(levels)

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(8.4, 1.3 + 0.6 * len(levels)), facecolor="white")
        axes = figure.add_axes((0.06, 0.02, 0.93, 0.96))
        axes.set_axis_off()
        axes.set_xlim(-0.6, last + 0.7)
        axes.set_ylim(floor - 0.6, 0.75)

        def leg(x, dtype, to_x, to_dtype, **style):
            style = {"lw": 3, "ls": DASHES.get(to_dtype, "-"), "color": colour(to_dtype), **style}
            axes.plot([x, to_x], [height[dtype], height[to_dtype]], **style)

        room = min(15, 84 // (last + 1))  # letters between two stops

        def label(x, name, detail=""):
            axes.text(x, floor + 0.42, wrap(name, room), ha="center", va="top", weight="bold")
            axes.text(x, floor - 0.42, detail, ha="center", va="top", fontsize=8, color="#555555")

        for dtype in levels:
            axes.plot([-0.45, last + 0.5], [height[dtype]] * 2, color="#d5d5d5", lw=1, zorder=0)
            axes.text(-0.5, height[dtype], letters(dtype), color=colour(dtype), ha="right",
                      va="center", weight="bold", fontsize=11)
        waiting = []  # stops whose line goes on to the next one
        for x, stop in enumerate(stops):
            if stop.name not in joins:
                for before, dtype in waiting:
                    leg(before, dtype, x, stop.dtype)
                waiting = []
            waiting.append((x, stop.dtype))
        # An operand that has a stop of its own arrives from there, past the stops between.
        latest = {(stop.name, stop.dtype): x for x, stop in enumerate(stops)}
        waiting += [(latest[key], key[1]) for key in end["operands"]
                    if key in latest and (latest[key], key[1]) not in waiting]
        arriving = {dtype for _, dtype in waiting} & set(end["dtypes"])
        for dtype in end["dtypes"]:
            for x, before in waiting:
                if before == dtype or not arriving:
                    leg(x, before, last, dtype)
            axes.plot(last, height[dtype], "s", ms=9, color=colour(dtype))
            if len(end["dtypes"]) > 1:
                axes.text(last + 0.14, height[dtype] - 0.12, end["names"][dtype], fontsize=8,
                          color=colour(dtype), ha="left", va="top")
        for dtype in end["inside"]:
            leg(last, (end["dtypes"] or [dtype])[0], last, dtype, ls=":")
            axes.plot(last, height[dtype], "s", ms=9, mfc="white", mec=colour(dtype), mew=2)
            axes.text(last + 0.12, height[dtype] + 0.18, "made inside\nthe call", fontsize=7.5,
                      color=colour(dtype), va="bottom")
        for x, stop in enumerate(stops):
            axes.plot(x, height[stop.dtype], "o", ms=10, mfc="white", mec=colour(stop.dtype),
                      mew=2.5)
            label(x, stop.operation, stop.name)
        raised = road.outcome.status == "raised"
        axes.text(last, height[(end["dtypes"] or levels)[0]] + 0.2, "✗" if raised else "✓",
                  ha="center", va="bottom", fontsize=15, color="#b00020" if raised else "#00755a")
        label(last, end["name"])
    path = ", ".join(f"{stop.operation} {letters(stop.dtype)}" for stop in stops)
    inside = "".join(f", with {letters(d)} made inside the call" for d in end["inside"])
    alt = f"Road of the run, left to right: {path}; then {end['name']}{inside}: {end['said']}"
    rows = [(stop.name, letters(stop.dtype), f"{stop.file}:{stop.line}", stop.code)
            for stop in stops]
    dtypes = " and ".join(map(letters, end["dtypes"])) or "-"
    dtypes += "".join(f", inside {letters(dtype)}" for dtype in end["inside"])
    rows.append((end["name"], dtypes, end["module"], end["said"]))
    caption = "The road, stop by stop"
    if road.disturbed:
        caption += " (watched, the run ended otherwise than alone)"
    return Picture(figure, alt, Table(caption, ("tensor", "dtype", "where", "made by"), rows))


def history_picture(history, dtypes=("float16", "bfloat16"), across=12):
    """Draw which ops exist in which torch and dtype, one small square each. Returns a Picture.

    history: [{"label": "live", "provenance": {"torch", …}, "ops": [{"op", dtype: said}, …]}, …],
    oldest first. said: "runs", "absent" where the op itself is not there, or what was raised.
    Ops that run everywhere are only counted. across: squares side by side, so blocks of ops.
    """
    versions = [column["provenance"]["torch"].split("+")[0] for column in history]
    columns = [(version, dtype) for version in versions for dtype in dtypes]
    ops = {}
    for column in history:
        for row in column["ops"]:
            ops.setdefault(row["op"], []).extend(row[dtype] for dtype in dtypes)
    kinds = {}  # ops of one history together, the longest list first
    for op, said in ops.items():
        kinds.setdefault(tuple(map(sign_of, said)), []).append(op)
    kinds = dict(sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0])))
    drawn = [(op, signs) for signs, names in kinds.items() if set(signs) != {"✓"}
             for op in names]
    blocks = max(1, across // len(columns))
    deep = -(-len(drawn) // blocks)
    side, gap = 1.35, 0.5  # of a square, and between torches; names take 6.5
    wide = 7.2 + side * len(columns) + gap * (len(history) - 1)

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 8.5}):
        figure = Figure(figsize=(8.4, 0.45 + 0.185 * (deep + 2)), facecolor="white")
        axes = figure.add_axes((0.005, 0.01, 0.99, 0.98))
        axes.set_axis_off()
        axes.set_xlim(0, blocks * wide)
        axes.set_ylim(deep + 0.2, -2.6)
        for place, (op, signs) in enumerate(drawn):
            left, y = place // deep * wide, place % deep + 0.5
            axes.text(left + 6.5, y, op.replace("scaled_dot_product_", "sdp_"), ha="right",
                      va="center")
            for index, ((version, dtype), sign) in enumerate(zip(columns, signs, strict=True)):
                x = left + 7.4 + side * index + gap * (index // len(dtypes))
                runs = sign == "✓"
                axes.add_patch(Rectangle((x - 0.63, y - 0.42), 1.26, 0.84, lw=0.8,
                                         fc=colour(dtype) if runs else "white", ec=colour(dtype)))
                axes.text(x, y, sign, ha="center", va="center", fontsize=7.5,
                          color="white" if runs else "#b00020")
                if place % deep == 0:
                    axes.text(x, -0.15, letters(dtype), ha="center", va="bottom", fontsize=7.5,
                              color=colour(dtype), weight="bold")
                    if index % len(dtypes) == 0:
                        axes.text(x + side * (len(dtypes) - 1) / 2, -1.25, short(version),
                                  ha="center", va="bottom", weight="bold")
    counts = [sum(signs[i] == "✓" for signs, names in kinds.items() for _ in names)
              for i in range(len(columns))]
    heads = [f"{short(version)} {letters(dtype)}" for version, dtype in columns]
    rows = [(*signs, len(names), ", ".join(names)) for signs, names in kinds.items()]
    rows.append((*counts, len(ops), "run, of all"))
    alt = f"{len(ops)} ops, which of them run on the CPU. " + "; ".join(
        f"torch {head}: {count}" for head, count in zip(heads, counts, strict=True)
    ) + ". The table below the picture names them."
    labels = "; ".join(f"{column['label']}, torch {version}"
                       for column, version in zip(history, versions, strict=True))
    caption = f"Ops on the CPU: ✓ runs, ✗ refused, – not in that torch ({labels})"
    return Picture(figure, alt, Table(caption, (*heads, "ops", "which"), rows))


def sign_of(said):
    return {"runs": "✓", "absent": "–"}.get(said, "✗")


def short(version):
    return ".".join(version.split(".")[:2])


def wrap(name, width):
    """Break a name at its underscores."""
    lines = [""]
    for part in name.replace("_", "_ ").split():
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines[:3])


def ending_of(outcome):
    """What stands at the end of the road: the failing operation, or the output.

    operands: (name, dtype) of each. names: of the operands that have each dtype.
    inside: dtypes that the message names and no operand has; they arose within the call.
    """
    if outcome.status == "ran":
        return {"name": "output", "dtypes": [outcome.output_dtype], "operands": [],
                "names": {}, "inside": [], "module": "", "said": "runs"}
    where = outcome.where or {"op": "error", "operands": [], "module": ""}
    dtypes = sorted({o["dtype"] for o in where["operands"] if "float" in o["dtype"]},
                    key=lambda dtype: dtype != "float32")
    names = {d: "\n".join(o["name"] for o in where["operands"] if o["dtype"] == d) for d in dtypes}
    said = outcome.error["message"].splitlines()[0]
    inside = [d for d in dtypes_in(said) if d not in dtypes] if dtypes else []
    return {"name": where["op"].strip("_"), "dtypes": dtypes, "names": names, "inside": inside,
            "operands": [(o["name"], o["dtype"]) for o in where["operands"]],
            "module": where["module"] or "", "said": said}
