"""Pictures drawn from measured roads, each with alternative text and a table of the same."""

import base64
import html
import io
import math
import textwrap

import matplotlib
import matplotlib.colors
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from cases.halftruths.messages.words import dtypes_in
from cases.lab.advice import VERDICTS
from cases.lab.numerics import show
from cases.notebook.history import ANY
from cases.notebook.palette import LETTERS, colour, letters
from cases.notebook.table import Table

RAISED = "#b00020"
# Behind the letters of messages: neighbours differ, and a letter is read on any of them.
TINTS = ("#fbe1e5", "#fdecd2", "#ece0f5", "#fff7cc", "#dfeaf7", "#e9e9e9")
DASHES = {"float32": "-", "float16": (0, (5, 1.5)), "bfloat16": (0, (2, 1)), "float64": "-."}


class Picture:
    """A figure as an image with alternative text; in plain text, its table."""

    def __init__(self, figure, alt, table):
        figure.set_dpi(144)
        canvas, out = FigureCanvasAgg(figure), io.BytesIO()
        canvas.draw()
        image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
        # A quarter of the bytes in a notebook, and the eye sees no difference.
        image.convert("RGB").quantize(64).save(out, "png", optimize=True)
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
                  ha="center", va="bottom", fontsize=15, color=RAISED if raised else "#00755a")
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


def history_picture(signs, versions, meanings, caption):
    """Draw how each of many ops stands on each torch, one small square each. Returns a Picture.

    signs: {dtype: {op: one sign a torch, as a string}}. versions: the torches', as "2.13", oldest
    first.
    meanings: {sign: in two or three words}, the good one first. caption: of the table below it.
    Ops of one history share a row; the rows go by when the good sign came to stay.
    """
    dtypes, good, wide = list(signs), next(iter(meanings)), len(versions)
    kinds = {}
    for op in signs[dtypes[0]]:
        kinds.setdefault(tuple(signs[dtype][op] for dtype in dtypes), []).append(op)

    def order(kind):
        return [len(row.rstrip(good)) for row in kind], -len(kinds[kind]), kind

    kinds = {kind: kinds[kind] for kind in sorted(kinds, key=order)}
    totals = [[sum(len(ops) for kind, ops in kinds.items() if kind[block][place] == good)
               for place in range(wide)] for block in range(len(dtypes))]
    starts = [2.5 + block * (wide + 0.7) for block in range(len(dtypes))]  # x of the first squares
    text = starts[-1] + wide  # x of what stands to their right
    deep = len(kinds)

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 8.5}):
        figure = Figure(figsize=(8.4, 0.2 * (deep + 5.6)), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, 42)  # a unit is 0.2 inches, both ways: the squares are square
        axes.set_ylim(deep + 1.6, -4)
        for y, (kind, ops) in enumerate(kinds.items()):
            axes.text(1.7, y, len(ops), ha="right", va="center")
            axes.text(text, y, some(ops, room=int(2.9 * (42 - text))), va="center")
            for start, dtype, row in zip(starts, dtypes, kind, strict=True):
                for place, sign in enumerate(row):
                    square(axes, start + place, y, sign, good, colour(dtype))
        for start, dtype, counts in zip(starts, dtypes, totals, strict=True):
            axes.text(start - 0.45, -3.2, letters(dtype), color=colour(dtype), weight="bold",
                      fontsize=11, va="center")
            for place, (version, count) in enumerate(zip(versions, counts, strict=True)):
                for y, word, side in ((-0.7, version, "bottom"), (deep - 0.3, count, "top")):
                    axes.text(start + place, y, word, ha="center", va=side, rotation=90)
        axes.text(text, deep + 0.2, f"{good} of all {sum(map(len, kinds.values()))}", va="center")
        axes.text(1.7, -0.7, "ops", ha="right", va="bottom")
        for place, (sign, meaning) in enumerate(meanings.items()):
            x, y = text + 0.4 + place // 3 * 8, -3.2 + place % 3
            square(axes, x, y, sign, good, "#444444")
            axes.text(x + 0.8, y, meaning, va="center")
    heads = [f"{letters(dtype)}, torch {versions[0]} to {versions[-1]}"
             for dtype in dtypes]
    rows = [(*kind, len(ops), ", ".join(ops)) for kind, ops in kinds.items()]
    alt = f"How {sum(map(len, kinds.values()))} ops stand on the CPU. " + "; ".join(
        f"{letters(dtype)}: {good} {meanings[good]}, " + ", ".join(
            f"{count} on torch {version}"
            for version, count in zip(versions, counts, strict=True))
        for dtype, counts in zip(dtypes, totals, strict=True)
    ) + ". The table below the picture names them."
    return Picture(figure, alt, Table(caption, (*heads, "ops", "which"), rows))


def versions_picture(history):
    """Draw a History: a row a setting, a column a torch. Returns a Picture with both its tables.

    A letter stands for what was raised; a filled cell runs, and names its output's dtype. Columns
    that are live here stand in a frame. A last, empty column says that no GPU was asked, if so.
    """
    dtypes = {letters: name for name, letters in LETTERS.items()}
    tints = {letter: TINTS[place % len(TINTS)] for place, letter in enumerate(history.messages)}
    heads = [c.torch_id.removeprefix("torch-") for c in history.columns]
    labels = [[textwrap.fill(value, 22) for value in chosen] for chosen, _ in history.rows]
    tall = [max([1] + [label.count("\n") + 1 for label in row]) for row in labels]
    wide = [0.105 * max(len(line) for row in [history.factors, *labels] for line in
                        row[place].split("\n")) + 0.12
            for place in range(len(history.factors))]
    left, side = sum(wide), 0.47
    grid = side * (len(heads) + (0 if history.on_gpu else 1))
    tops = [sum(0.16 * n + 0.11 for n in tall[:place]) for place in range(len(tall) + 1)]

    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 8.5}):
        figure = Figure(figsize=(left + grid + 0.1, tops[-1] + 0.62), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, left + grid + 0.1)
        axes.set_ylim(tops[-1] + 0.06, -0.56)
        starts = [sum(wide[:place]) + 0.06 for place in range(len(wide))]
        for start, name in zip(starts, history.factors, strict=True):
            axes.text(start, -0.08, name, va="bottom", color="#555555")
        for place, (column, head) in enumerate(zip(history.columns, heads, strict=True)):
            middle = left + side * (place + 0.5)
            axes.text(middle, -0.08, head, ha="center", va="bottom", weight="bold")
            above = "\n".join([column.device] * (column.device != "cpu") + ["live"] * column.live)
            axes.text(middle, -0.27, above, ha="center", va="bottom", fontsize=7, color="#555555")
        for top, bottom, label, (_, cells) in zip(
                tops[:-1], tops[1:], labels, history.rows, strict=True):
            middle, deep = (top + bottom) / 2, bottom - top
            axes.plot([0.04, left + side * len(heads)], [top] * 2, color="#e2e2e2", lw=0.8,
                      zorder=0)
            for start, value in zip(starts, label, strict=True):
                axes.text(start, middle, value, va="center",
                          color="#999999" if value == ANY else "black")
            for place, cell in enumerate(cells):
                ran = cell in dtypes
                fill = colour(dtypes[cell]) if ran else tints.get(cell, "white")
                axes.add_patch(Rectangle((left + side * place + 0.02, top + 0.02), side - 0.04,
                                         deep - 0.04, fc=fill, ec="none"))
                axes.text(left + side * (place + 0.5), middle, cell, ha="center", va="center",
                          weight="bold", fontsize=8 if ran else 9.5,
                          color="white" if ran else RAISED)
        for place, column in enumerate(history.columns):
            if column.live:
                axes.add_patch(Rectangle((left + side * place, -0.02), side, tops[-1] + 0.04,
                                         fill=False, ec="black", lw=1.2))
        if not history.on_gpu:
            start = left + side * len(heads)
            axes.text(start + side / 2, -0.08, "cuda", ha="center", va="bottom", weight="bold")
            axes.add_patch(Rectangle((start + 0.06, 0.02), side - 0.1, tops[-1] - 0.04, fc="none",
                                     ec="#bbbbbb", ls=(0, (3, 2)), lw=0.9))
            axes.text(start + side / 2, tops[-1] / 2, "not recorded yet", ha="center", va="center",
                      rotation=90, color="#777777", fontsize=8)
    alt = (f"A grid of {len(history.rows)} groups of settings by {len(heads)} torches, "
           f"{heads[0]} to {heads[-1]}: a letter for each of {len(history.messages)} messages, "
           "or the output's dtype. The tables below hold the same.")
    return Picture(figure, alt, history)


def advice_picture(answers):
    """Draw each piece of advice as a square, a row an article, its verdicts side by side.

    What holds here and not there is filled up to the share of trials in which it held.
    answers: a list of cases.lab.advice.Answer. Returns a Picture; its table has the numbers.
    """
    articles = list(dict.fromkeys(answer.advice.article for answer in answers))
    longest = max(sum(a.advice.article == article for a in answers) for article in articles)
    figure = Figure(figsize=(8.2, 0.62 * len(articles) + 0.75))
    axes = figure.add_axes((0.085, 0, 0.915, 1))
    axes.set_xlim(-0.6, max(longest, 29) - 0.4)
    axes.set_ylim(len(articles) + 0.45, -0.6)
    axes.axis("off")
    rows = []
    for y, article in enumerate(articles):
        own = [answer for answer in answers if answer.advice.article == article]
        own.sort(key=lambda answer: (list(VERDICTS).index(answer.verdict), -share(answer)))
        axes.text(-0.8, y, article, ha="right", va="center", fontsize=9)
        for x, answer in enumerate(own):
            tile(axes, x, y, answer.verdict, answer.sign, filled=share(answer))
            axes.text(x, y + 0.2, answer.advice.id, ha="center", va="center", fontsize=6.5)
        rows.append((article, *(", ".join(named(a) for a in own if a.verdict == verdict) or "-"
                                for verdict in VERDICTS)))
    x = 0
    for verdict, sign in VERDICTS.items():
        tile(axes, x, len(articles), verdict, sign, high=0.28, up=0, filled=0.5)
        axes.text(x + 0.65, len(articles), verdict, ha="left", va="center", fontsize=8.5)
        x += 2.1 + 0.31 * len(verdict)
    counts = {verdict: sum(a.verdict == verdict for a in answers) for verdict in VERDICTS}
    alt = (f"{len(answers)} pieces of advice from {len(articles)} articles, a square each. What "
           "holds here and not there is filled up to the share of trials in which it held. "
           + "; ".join(f"{verdict}: {count}" for verdict, count in counts.items()) + ".")
    heads = ("article", *(f"{sign} {verdict}" for verdict, sign in VERDICTS.items()))
    return Picture(figure, alt, Table("Verdicts by article", heads, rows))


def share(answer):
    """The share of trials in which a piece of advice held; 0 where there were none."""
    held, tried = answer.held
    return held / max(tried, 1)


def named(answer):
    """The id, and of what holds here only, in how many percent of the trials."""
    percent = f" {share(answer):.0%}" if answer.verdict == "holds here" else ""
    return f"{answer.advice.id}{percent}"


# Soft, for the sign on each square says it anyway, in grey too.
SHADES = {"holds": "#bfe0cb", "holds here": "#ffffff", "no effect": "#ececec", "fails": "#f6c9a8",
          "harms": "#e79b93", "can't be shown here": "#ffffff"}


def tile(axes, x, y, verdict, sign, high=0.42, up=0.17, filled=1.0):
    """One square with a verdict's sign, `up` above its middle; high: half its height.

    filled: of what holds here only, the share that is filled, from below.
    """
    corner, wide, high = (x - 0.46, y - high), 0.92, 2 * high
    axes.add_patch(Rectangle(corner, wide, high, facecolor=SHADES[verdict]))
    if verdict == "holds here":
        axes.add_patch(Rectangle((corner[0], corner[1] + high * (1 - filled)), wide, high * filled,
                                 facecolor=SHADES["holds"]))
    axes.add_patch(Rectangle(corner, wide, high, fill=False, edgecolor="#555555", linewidth=0.6))
    axes.text(x, y - up, sign, ha="center", va="center", fontsize=10,
              fontfamily="DejaVu Sans")


def weights_picture(grids, caption):
    """Draw who looks at whom: a grid of attention weights a program. Returns a Picture.

    grids: dicts of title, names (of the tokens), keep (False at padding), allowed (rows of bools)
    and weights (rows of numbers). A row is who looks, a column who is looked at. What may not be
    looked at has no frame; a weight there, at a row that is kept, is a leak.
    """
    rows, side, gap = [], 0.2, 0.62
    wide = [side * len(grid["names"]) for grid in grids]
    deep = max(wide)
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 7.5}):
        figure = Figure(figsize=(sum(wide) + gap * len(grids) + 0.1, deep + 0.95),
                        facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, sum(wide) + gap * len(grids) + 0.1)
        axes.set_ylim(deep + 0.42, -0.53)
        for place, grid in enumerate(grids):
            left = sum(wide[:place]) + gap * (place + 1) - 0.1
            axes.text(left, -0.1, grid["title"], va="bottom", weight="bold", fontsize=8.5)
            for at, name in enumerate(grid["names"]):
                shade = "black" if grid["keep"][at] else "#8a8a8a"
                axes.text(left - 0.05, side * (at + 0.5), name, ha="right", va="center",
                          color=shade)
                axes.text(left + side * (at + 0.5), deep + 0.05, name, ha="center", va="top",
                          rotation=90, color=shade)
            for y, x in ((y, x) for y in range(len(grid["names"]))
                         for x in range(len(grid["names"]))):
                weight, allowed = grid["weights"][y][x], grid["allowed"][y][x]
                leak = weight > 0.01 and not allowed and grid["keep"][y]
                nan = weight != weight
                axes.add_patch(Rectangle(
                    (left + side * x + 0.01, side * y + 0.01), side - 0.02, side - 0.02,
                    fc=TINTS[0] if nan else (*matplotlib.colors.to_rgb(
                        RAISED if leak else colour("float32")), weight),
                    ec="#bbbbbb" if allowed else "none", lw=0.7))
                if nan or leak:
                    axes.text(left + side * (x + 0.5), side * (y + 0.5), "×" if nan else "!",
                              ha="center", va="center", color=RAISED if nan else "white",
                              weight="bold", fontsize=8.5)
            nan = [any(w != w for w in line) for line in grid["weights"]]
            lost = max([0.0] + [w for y, line in enumerate(grid["weights"]) if grid["keep"][y]
                                for x, w in enumerate(line) if not grid["allowed"][y][x]
                                and w == w])
            padding, kept = (sum(n for n, k in zip(nan, grid["keep"], strict=True) if k == of)
                             for of in (False, True))
            rows.append((grid["title"].replace("\n", " "), padding, kept, f"{lost:.1g}"))
    alt = "Grids of attention weights, a row for each token that looks. " + "; ".join(
        f"{title}: {padding} rows of padding and {kept} kept rows are NaN, the largest weight of "
        f"a kept row on what it may not see is {lost}" for title, padding, kept, lost in rows) + "."
    heads = ("weights", "NaN rows at padding", "NaN rows kept", "largest weight on what is masked")
    return Picture(figure, alt, Table(caption, heads, rows))


def losses_picture(curves, caption):
    """Draw losses by step, one line a training, on a logarithmic scale. Returns a Picture.

    curves: {name: (dtype, [loss, …])}, at least two trainings of as many steps. The first is what
    the others are held against: it is drawn broad, below them.
    """
    losses = {name: values for name, (_, values) in curves.items()}
    steps = len(next(iter(losses.values())))
    low, high = (pick(map(pick, losses.values())) for pick in (min, max))
    # The names stand at the ends of their lines, from the lowest up, none above another.
    heights, room = {}, math.log10(high / low) * 0.085
    for name in sorted(losses, key=lambda name: losses[name][-1]):
        heights[name] = max([math.log10(losses[name][-1])] + [y + room for y in heights.values()])
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(7.2, 2.9), facecolor="white")
        axes = figure.add_axes((0.1, 0.16, 0.6, 0.8))
        for place, (name, (dtype, values)) in enumerate(curves.items()):
            broad = {"lw": 7, "alpha": 0.35, "zorder": 0} if place == 0 else {"lw": 2}
            axes.plot(range(1, steps + 1), values, color=colour(dtype),
                      ls=("-", "-", (0, (5, 1.5)), (0, (2, 1)))[place % 4], **broad)
            axes.annotate(f"{letters(dtype)} {name}", (steps, values[-1]),
                          (steps + 0.9, 10 ** heights[name]), color=colour(dtype), va="center",
                          weight="bold", annotation_clip=False,
                          arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "lw": 0.8})
        axes.set_yscale("log")
        axes.set_xlim(1, steps)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        axes.spines[["top", "right"]].set_visible(False)
    rows = [(name, dtype, *(show(values[at - 1]) for at in (1, 2, steps // 2, steps)))
            for name, (dtype, values) in curves.items()]
    alt = f"The loss over {steps} steps. " + "; ".join(
        f"{name} in {dtype}: from {first} to {last}" for name, dtype, first, *_, last in rows) + "."
    heads = ("training", "dtype", *(f"step {at}" for at in (1, 2, steps // 2, steps)))
    return Picture(figure, alt, Table(caption, heads, rows))


def lines_picture(lines, across, up, alt, table, log=False, level=None):
    """Draw one line a dtype, its letters at its end. Returns a Picture.

    lines: {dtype: (numbers across, numbers up)}. across, up: what the axes are.
    log: powers of two across, of ten up. level: (a number up, what it is), drawn straight across.
    """
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "font.size": 9}):
        figure = Figure(figsize=(7.2, 3.0), facecolor="white")
        axes = figure.add_axes((0.11, 0.16, 0.8, 0.8))
        if log:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}" if x >= 1 else f"1/{1 / x:g}")
        for dtype, (x, y) in lines.items():
            axes.plot(x, y, color=colour(dtype), ls=DASHES[dtype], lw=2.5, drawstyle="steps-post")
            axes.annotate(letters(dtype), (x[-1], y[-1]), (6, 0), textcoords="offset points",
                          color=colour(dtype), va="center", weight="bold", fontsize=11,
                          annotation_clip=False)
        if level:
            axes.axhline(level[0], color="black", lw=1)
            axes.annotate(level[1], (0.01, level[0]), (0, 3), textcoords="offset points",
                          xycoords=axes.get_yaxis_transform())
        axes.set_xlim(min(x[0] for x, _ in lines.values()), max(x[-1] for x, _ in lines.values()))
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.spines[["top", "right"]].set_visible(False)
    return Picture(figure, alt, table)


def square(axes, x, y, sign, good, colour):
    """A filled square for the good sign, a grey one for what is wrong, else an empty one."""
    fill, ink = {good: (colour, "white"), "≠": ("#c9c9c9", "black"), "→": ("white", colour),
                 "–": ("white", "#777777")}.get(sign, ("white", RAISED))
    edge = {"–": "white", "≠": "black"}.get(sign, colour)
    axes.add_patch(Rectangle((x - 0.45, y - 0.42), 0.9, 0.84, lw=0.8, fc=fill, ec=edge))
    axes.text(x, y, sign, ha="center", va="center", fontsize=7.5, color=ink)


def some(names, room):
    """As many names, the shortest first, as fit into `room` letters; "…" if not all do."""
    text = ", ".join(sorted(names, key=len))
    return text if len(text) <= room else text[: text.rindex(",", 0, room - 1)] + ", …"


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
