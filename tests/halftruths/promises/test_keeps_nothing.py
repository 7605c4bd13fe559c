"""The autopsy keeps nothing alive: what it returns is text."""

import gc
import weakref

import pytest
import torch
from scenes import MASK, Net, batch, caught, finds, read, step

from cases import halftruths
from cases.halftruths.exceptions import answer as reader


@pytest.fixture
def no_collector():
    """Reference counts alone must free it: a cycle would wait for the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def watched(*things):
    return [weakref.ref(thing) for thing in things]


def alive(references):
    return [type(seen()).__name__ for seen in references if seen() is not None]


def test_nothing_is_kept_once_the_exception_is_gone(no_collector):
    model, x = Net().half(), batch()
    seen = watched(model, x, model.body, model.body.weight)
    try:
        step(model, x)
    except RuntimeError as error:
        found = halftruths.autopsy(error)
    del model, x
    assert alive(seen) == [] and found.odd


def test_nothing_is_kept_when_the_reading_fails(no_collector, monkeypatch):
    def fault(self, *args, **kwargs):
        held = self
        raise ZeroDivisionError(held)

    monkeypatch.setattr(reader.Reader, "to_where", fault)
    model, x = Net().half(), batch()
    seen = watched(model, x, model.body)
    try:
        step(model, x)
    except RuntimeError as error:
        found = halftruths.autopsy(error)
    del model, x
    assert alive(seen) == []
    assert "stopped halfway (ZeroDivisionError)" in found.text() and not found.sure


def test_a_running_function_can_let_go(no_collector):
    def run():
        model, x = Net().half(), batch()
        seen = watched(model, x)
        try:
            step(model, x)
        except RuntimeError as error:
            found = halftruths.autopsy(error)
        del model, x
        assert alive(seen) == []
        return found

    assert run().odd


def test_a_generator_and_a_closure_can_let_go(no_collector):
    def stream(seen):
        model, x = Net().half(), batch()
        seen += watched(model, x)

        def inner(more):
            return step(model, x)  # noqa: F821

        try:
            inner(3)
        except RuntimeError as error:
            halftruths.autopsy(error)
        del inner, model, x
        yield alive(seen)

    source = stream([])
    assert next(source) == []


def test_a_module_can_let_go(no_collector):
    space = {"torch": torch, "halftruths": halftruths, "step": step, "Net": Net, "watched": watched}
    exec("model, x = Net().half(), torch.ones(2, 4)\nseen = watched(model, x)\n"
         "try:\n    step(model, x)\nexcept RuntimeError as error:\n    halftruths.autopsy(error)\n"
         "del model, x", space)
    assert alive(space["seen"]) == []


def test_a_frame_that_is_still_held_lets_go_of_what_it_dropped(no_collector):
    """The exception is kept, and with it its frames; but not what they had deleted before."""
    seen = []

    def run(model):
        x = batch()
        seen.extend(watched(x))
        y = x.double()
        del x
        return model(y)

    error = caught(run, Net().half())
    finds(read(error), dtype="float64", cure="y = x.to(torch.float16)")
    assert alive(seen) == []


def test_a_chain_and_a_backward_are_let_go(no_collector):
    model, x = Net().half(), batch()
    seen = watched(model, x)
    try:
        try:
            step(model, x)
        except RuntimeError as error:
            raise ValueError("bad step") from error
    except ValueError as problem:
        halftruths.autopsy(problem)
    del model, x
    assert alive(seen) == []


def test_many_autopsies_leave_no_objects_behind():
    """Of one autopsy after another nothing is left: a reader that hoards fails here."""
    def once():
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            halftruths.autopsy(error)

    for _ in range(5):
        once()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(30):
        once()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_nothing_is_held_but_text():
    found = finds(read(caught(step, Net().half(), batch())), cure=MASK)
    waiting, seen = [vars(found)], set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        assert type(thing) in (dict, list, tuple, str, int, bool, float, type(None)), thing
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple)):
            waiting += thing
