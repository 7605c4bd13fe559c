"""The autopsy shows no value of a tensor, and no markup but its own."""

import linecache

import pytest
import torch
from scenes import HALF, MARK, Net, batch, caught, finds, imported, knows_no, leaves_open, read
from torch import nn


@pytest.fixture(name="imported")
def of_a_file(tmp_path):
    """Return (path, function) of a file that was run."""
    yield imported(tmp_path)
    linecache.clearcache()


def test_no_value_of_a_tensor_is_shown():
    """`read` looks for the mark in all that is said; here it is everywhere."""
    model = Net().half()
    model.register_buffer("scale", torch.tensor(MARK))
    model.plain = torch.tensor([MARK])
    number = MARK
    things = {"mask": batch(), "number": number, "list": [number] * 3}

    def run(model, things, scale=MARK):
        x = things["mask"] * things["number"] + number * scale
        return model(x.clamp(max=number), model.plain)

    finds(read(caught(run, model, things)),
          cure="return model(x.clamp(max=number).to(torch.float16), model.plain)")

    def writes(x, value):
        x[0] = value
        return x.masked_fill_(x > 0, value)

    # `x[0] = value` overflows without an error; the line after it does not.
    found = read(caught(writes, torch.ones(2, dtype=HALF), MARK * 10))
    assert found.sure and found.cure["code"].strip() == (
        "return x.masked_fill_(x > 0, torch.finfo(torch.float16).max)")
    found = read(caught(lambda x, value: x.masked_fill(x > 0, value), torch.ones(2, dtype=HALF),
                        MARK))
    assert found.sure and "x.masked_fill(x > 0, torch.finfo(torch.float16).max)" in (
        found.cure["code"])
    knows_no(read(caught(lambda x: x.masked_fill(x > 0, x), batch())), "Not about dtypes")
    found = finds(read(caught(lambda x: torch.nn.functional.cross_entropy(x, x[:, 0]), batch())),
                  "target")
    assert found.sure and "cross_entropy(x, x[:, 0].to(torch.int64))" in found.cure["code"]
    found = finds(read(caught(lambda x: x[x], batch())), "x")
    assert found.sure and "x.to(torch.int64)" in found.cure["code"]


EVIL = "<script>alert('1')</script><img src=x onerror=alert(1)>&lt;"


def test_markup_is_escaped_wherever_it_comes_from(imported):
    source = f"""
def run(model, batch):
    mask = batch["{EVIL}"]  # {EVIL}
    return model(mask, "{EVIL}")  # {EVIL}
"""
    _, run = imported(source, "<b onclick=1>&amp;.py")
    model = nn.ModuleDict({EVIL.replace(".", ""): Net()}).half()

    def outer(holder, batch):
        try:
            return run(holder[EVIL.replace(".", "")], batch)
        except RuntimeError as error:
            raise RuntimeError(f"{error} {EVIL}") from None

    # Without its traceback: a message alone shows no operand.
    found = knows_no(read(caught(outer, model, {EVIL: torch.ones(2, 4)})))
    shown = found._repr_html_()
    assert "<script" not in shown and "<img" not in shown and "<b " not in shown
    assert "&lt;script&gt;" in shown and "&amp;lt;" in shown
    assert EVIL in found.text()

    class Strange(Exception):
        pass

    Strange.__name__ = EVIL
    knows_no(read(caught(lambda: (_ for _ in ()).throw(Strange(EVIL)))))

    def matmul(batch, weight):
        return torch.matmul(batch[EVIL], weight)

    source = f"""
def run(batch, weight):
    return batch["{EVIL}"] @ weight
"""
    _, run = imported(source)
    found = leaves_open(read(caught(run, {EVIL: torch.ones(2, 4)},
                                    torch.ones(4, 4, dtype=HALF))), "float16", "float32")
    assert EVIL in found.where["operands"][0]["name"]
