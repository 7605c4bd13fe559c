"""The autopsy reads exceptions of every kind, and whatever is none."""

import sys
import time

import pytest
import torch
from scenes import (
    CALLS,
    HALF,
    MASK,
    THINGS,
    Net,
    OfMeta,
    batch,
    caught,
    finds,
    knows_no,
    read,
    step,
)
from torch import nn

from cases import halftruths


@pytest.fixture(autouse=True)
def nothing_was_called():
    """When a test begins; to collect it, pytest asks some of the objects."""
    CALLS.clear()


class Broken(RuntimeError):
    """Nothing about it can be asked."""

    def _raise(self, *args):
        CALLS.append("asked")
        raise ValueError("no answer")

    __eq__ = __bool__ = __len__ = __hash__ = __getattr__ = __contains__ = _raise
    __repr__ = __iter__ = __getitem__ = with_traceback = add_note = _raise
    __cause__ = __context__ = __traceback__ = __suppress_context__ = __notes__ = property(_raise)
    args = __class__ = property(_raise)


class Unspeakable(RuntimeError):
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


def test_no_exception_at_all():
    for thing in (None, 3, "RuntimeError: expected Half", ValueError, object(), [], Net(),
                  torch.ones(2), THINGS["object"](), THINGS["metaclass"](), OfMeta):
        knows_no(read(thing), "Give it an exception that was caught")


def test_an_exception_that_was_never_raised():
    found = read(RuntimeError("expected scalar type Half but found Float"))
    assert knows_no(found).where is None and found.asks


def test_exceptions_that_answer_nothing():
    def run(kind):
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            raise kind("odd") from error

    try:
        run(Broken)
    except BaseException as error:
        CALLS.clear()
        found = halftruths.autopsy(error)
    assert found.error["type"] == "Broken" and CALLS == []
    finds(found, cure=MASK)  # its cause, without asking it
    assert "stopped halfway" not in found.text()
    finds(read(caught(run, Unspeakable)), cure=MASK)
    try:
        run(Broken)
    except BaseException as error:
        broken = error

    def outer():
        try:
            raise broken
        except BaseException:
            raise ValueError("after") from None

    def other():
        try:
            raise broken
        except BaseException as error:
            raise ValueError("after") from error

    knows_no(read(caught(outer)))
    finds(read(caught(other)), cure=MASK)


@pytest.mark.parametrize("message", [
    "x" * 3_000_000, "expected scalar type Half but found Float " * 100_000,
    "\0\x1b[31m\ud800\u202e",
    "a\nb\nc" * 10_000, "<script>alert(1)</script>", "%s {0} {x!r}", "", " \n ", "é" * 600,
    "(" * 100_000, "Half" + " " * 500_000 + "Float",
], ids=lambda message: repr(message[:12]) + f" {len(message)}")
def test_messages_of_every_kind(message):
    def run(model, x):
        try:
            return model(x)
        except RuntimeError:
            raise RuntimeError(message) from None

    start = time.perf_counter()
    found = knows_no(read(caught(run, Net().half(), torch.ones(2, 4))))
    assert time.perf_counter() - start < 2, "a pattern that backtracks"
    assert len(found.text()) < 5_000
    assert len(found.error["message"]) <= 510


def test_exceptions_with_strange_arguments():
    for args in ((), (1, 2), (None,), (b"\xff",), (RuntimeError("in it"),), ({"a": 1},)):
        knows_no(read(caught(lambda args: (_ for _ in ()).throw(RuntimeError(*args)), args)))
    for fails in (lambda: {}["key"], lambda: open("/nowhere/at all"), lambda: b"\xff".decode(),
                  lambda: __import__("nowhere_at_all"), lambda: torch.load("/nowhere/at all")):
        knows_no(read(caught(fails)))
    knows_no(read(caught(lambda: compile("a = (", "<in memory>", "exec"))),
             "Python could not read the source")
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, MemoryError):
        def run(kind):
            raise kind

        knows_no(read(caught(run, kind)))


def test_a_chain():
    def run():
        try:
            step(Net().half(), torch.ones(2, 4, dtype=HALF))
        except RuntimeError as error:
            raise ValueError("bad step") from error

    found = finds(read(caught(run)), cure=MASK)
    assert found.error["type"] == "ValueError"
    assert found.road[0]["code"] == "mask = x.float()"

    def while_handling():
        try:
            step(Net().half(), batch())
        except RuntimeError:
            {}["no"]

    finds(read(caught(while_handling)), cure=MASK)

    def knot():
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            first = error
        second = ValueError("second")
        second.__cause__, first.__cause__ = first, second
        raise second

    finds(read(caught(knot)), cure=MASK)

    def long():
        error = None
        for number in range(300):
            try:
                raise ValueError(number) from error
            except ValueError as problem:
                error = problem
        raise error

    knows_no(read(caught(long)))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are Python 3.11's")
def test_groups_of_exceptions():
    def run():
        problems = []
        for dtype in (HALF, torch.bfloat16):
            try:
                step(Net().to(dtype), batch())
            except RuntimeError as error:
                problems.append(error)
        raise ExceptionGroup("two", [ExceptionGroup("inner", problems), ValueError("x")])  # noqa: F821

    # A group is not looked into.
    knows_no(read(caught(run)))
    noted = caught(step, Net().half(), batch())
    noted.add_note("<script>note</script>")
    noted.__notes__.append(3)
    finds(read(noted), cure=MASK)
    noted.__notes__ = 3
    finds(read(noted), cure=MASK)


def test_deep_recursion():
    def down(model, x, depth):
        return model(x) if depth == 0 else down(model, x, depth - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    try:
        error = caught(down, Net().half(), torch.ones(2, 4), 1_000)
        start = time.perf_counter()
        found = finds(read(error))
        assert time.perf_counter() - start < 1
        assert len(found.text()) < 20_000
        assert not found.sure and found.asks == ["The road was too long to follow to its end."]
    finally:
        sys.setrecursionlimit(limit)

    class Endless(nn.Module):
        def __getattr__(self, name):
            return getattr(self, name + "_")

    knows_no(read(caught(lambda: Endless().weight)))
    knows_no(read(caught(lambda model: model(torch.ones(2, 4)), Endless())))

    def endless(x):
        return endless(x.float())

    knows_no(read(caught(endless, torch.ones(1, dtype=HALF))), "Not about dtypes")


def test_with_no_stack_left():
    """Called at the bottom of a recursion: it may find nothing, and must not raise."""
    error = caught(step, Net().half(), batch())

    def down():
        try:
            return down()
        except RecursionError:
            return halftruths.autopsy(error)

    assert down() is not None
