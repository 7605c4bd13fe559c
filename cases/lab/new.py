"""A new case: its folder, a notebook of the right shape, and its name among the drafts.

What is written runs and fails as it stands: a low-precision layer that is fed float32. Replace it
by the failure that you have, piece by piece, and it keeps running.
"""

import json
import keyword
import re
from string import Template

from cases.halftruths.base import BadInput
from cases.lab.base import ROOT
from cases.lab.evidence import write_whole

INIT = Template('''\
"""$title: notebook $number.

Begin at model.py, then case.py.
"""
''')

MODEL = Template('''\
"""$title: what this program is, in a sentence or two.

Replace it by the program that failed: plain PyTorch, top to bottom, under about 60 lines.
"""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x)  # fails here


def step(model, batch):
    return model(batch["x"])


if __name__ == "__main__":  # the failure alone, as a script
    step(Model().bfloat16(), {"x": torch.randn(4, 16)})
''')

FIXES = Template('''\
"""Remedies for $name. Each changes a prepared run before its forward pass.

Write advice as people give it, even if you know better. The first line of a docstring says what
the fix does.
"""


def model_float32(run):
    """Keep the whole model in float32."""
    run.model.float()


def cast_batch(run):
    """Cast the batch to the dtype of the model."""
    run.batch["x"] = run.batch["x"].to(run.dtype)
''')

CASE = Template('''\
"""Case $name: in one line, what fails, where, and for whom (repository#issue)."""

import torch

from cases.$name import fixes as fix
from cases.$name.model import Model, step
from cases.lab.case import Case, Factor, Headline, Run, fixes


def prepare(setting, device, dtype):
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).to(device)
    return Run(
        setting=setting,
        device=device,
        dtype=dtype,
        model=Model().to(device, dtype),
        batch={"x": x.to(dtype) if setting["batch"] == "cast" else x},
        step=step,
    )


CASE = Case(
    name="$name",
    title="$title",
    notebook="$notebook",
    headline=Headline("RuntimeError", "must have the same dtype", ()),
    factors=(
        Factor("batch", ("float32", "cast"), "the dtype of the batch: float32, or the model's"),
        Factor("dtype", ("bfloat16", "float16"), "the dtype of the model"),
    ),
    fixes=fixes(article=(fix.model_float32,), ours=(fix.cast_batch,)),
    prepare=prepare,
    # Near programs that do not fail: an output dtype is judged by theirs.
    controls=lambda setting: [{**setting, "batch": "cast"}],
)
''')

# (kind, tags, source) of each cell; what stands in [brackets] is for you to write.
CELLS = (
    ("markdown", (), """\
# $number · $title

[What someone met: the message, or the wrong number, in their words. The public report, as
repository#issue. What they were told. Two or three short sentences each.]

[The cure in the reader's own code, before and after, what it costs, and where it fails.]"""),
    ("code", ("parameters",), 'device = "cpu"\ndtype = "bfloat16"\ntorch = "current"'),
    ("markdown", (), "## The program\n\n[What it does, in one sentence.]"),
    ("code", (), """\
import torch as pt

import cases
from cases.lab.run import run
from cases.notebook import exercise, figures, history, lesson
from cases.notebook.panel import Panel

case = cases.load("$name")
setting = lesson.parameters(case, device, dtype, torch)
lesson.model_source(case)"""),
    ("markdown", (), "## Predict, then run\n\n[A question whose answer the next cell shows.]"),
    ("code", (), "lesson.reproduce(case, setting, device)"),
    ("markdown", (), """\
## Where it happened

[How to read the message: which operand has which dtype.]"""),
    ("code", (), "lesson.where_table(run(case, setting, device=device))"),
    ("markdown", (), "## Find the cause: one factor at a time\n\n[Predict the rows.]"),
    ("code", (), """\
lesson.experiment(case, setting, [{"batch": "cast"}, {"dtype": "float16"}], device=device)"""),
    ("markdown", (), "## Toggle the fixes\n\n[Which of them will cure it? Which will cost?]"),
    ("code", (), """\
panel = Panel(case, setting, device, torch)
display(panel, lesson.each_fix(case, setting, device))
lesson.fix_source(case, *[fix.name for fix in case.fixes])"""),
    ("markdown", (), "## The same program on other torches\n\n[What changed, and when.]"),
    ("code", (), """\
display(figures.versions_picture(history.History(case)))
history.fixes_table(case, setting)"""),
    ("markdown", (), "## Your turn\n\n**Exercise 1.** [Cure the report, with one line.]"),
    ("code", ("exercise",), '''\
def my_fix(run):
    """Your line here."""

exercise.check(case, my_fix, **setting)'''),
    ("markdown", (), """\
<details><summary>A solution</summary>

```python
def my_fix(run):
    run.batch["x"] = run.batch["x"].to(run.dtype)
```

</details>

**Exercise 2.** [Other messages of the kind.] Which operand is float32?"""),
    ("code", ("exercise",), '''\
def answers():
    """Of the message: which operand is float32?"""
    return ("",)

low = pt.ones(2, 2, dtype=getattr(pt, dtype))
raised = [(lambda: pt.ones(2, 2) @ low, "RuntimeError", "dtype")]
lesson.diagnose(answers, raised, dtype="float32")'''),
    ("markdown", (), """\
<details><summary>A solution</summary>

```python
def answers():
    return ("input",)
```

</details>

## Remember

- [Two to four sentences to take home.]

Public threads: [repository#issue].

The last cell drives every toggle, for a regression test."""),
    ("code", (), "lesson.truth_table(panel)"),
)


def create(name, root=ROOT):
    """Write a draft of case `name` into a checkout; return the paths written or changed.

    Raises BadInput, and writes nothing, for a name that cannot be a case's or is taken.
    """
    taken = sorted(path.name for path in (root / "cases").iterdir()
                   if path.is_dir() and not path.name.startswith(("_", ".")))
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise BadInput(f"{name!r} cannot be a case's name; allowed: lower-case letters and digits, "
                       "words joined by _, as in kv_cache")
    if name in taken:
        raise BadInput(f"there is a folder cases/{name}; not allowed: {', '.join(taken)}")
    catalogue = root / "cases" / "__init__.py"
    listed = catalogue.read_text(encoding="utf-8")
    drafts = re.search(r"^DRAFTS = \((.*?)\)", listed, flags=re.MULTILINE | re.DOTALL)
    number = f"{1 + max(numbers(root), default=0):02}"
    about = {"name": name, "number": number, "title": name.replace("_", " ").capitalize(),
             "notebook": f"{number}_{name}.ipynb"}
    folder = root / "cases" / name
    with_it = listed[:drafts.start(1)] + with_another(drafts[1], name) + listed[drafts.end(1):]
    texts = {
        folder / "__init__.py": INIT.substitute(about),
        folder / "model.py": MODEL.substitute(about),
        folder / "fixes.py": FIXES.substitute(about),
        folder / "case.py": CASE.substitute(about),
        root / "notebooks" / about["notebook"]: notebook(about),
        # Last: where something above could not be written, no case is listed that is not there.
        catalogue: with_it,
    }
    return [write_whole(path, text) for path, text in texts.items()]


def with_another(names, name):
    """The inside of a tuple of names in Python's text, with one more name in it."""
    every = [*re.findall(r'"(\w+)"', names), name]
    return ", ".join(f'"{one}"' for one in every) + "," * (len(every) == 1)


def numbers(root):
    """The numbers that the notebooks' names begin with."""
    return [int(path.name[:2]) for path in (root / "notebooks").glob("[0-9][0-9]_*.ipynb")]


def notebook(about):
    """The skeleton's text, as Jupyter stores a notebook; nothing in it was run."""
    cells = []
    for place, (kind, tags, source) in enumerate(CELLS):
        source = Template(source).substitute(about).splitlines(keepends=True)
        cell = {"cell_type": kind, "id": f"cell-{place:02}", "source": source,
                "metadata": {"tags": list(tags)} if tags else {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    metadata = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python",
                               "name": "python3"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5},
                      ensure_ascii=False, indent=1) + "\n"
