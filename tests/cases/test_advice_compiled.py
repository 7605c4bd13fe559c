"""Advice on torch.compile, torch.jit and several processes: the verdicts here, and their faults."""

import logging
import os
import signal
import time

import pytest
import torch

from cases.advice import compiled, distributed, two_ranks
from cases.lab.advice import judged
from cases.lab.run import steady


def seen(advice):
    """{scene: Seen} of a piece of advice, in this torch."""
    with steady():
        return {one.scene: one for one in advice.check("cpu")}


def effects(advice):
    return {scene: one.effect for scene, one in seen(advice).items()}


def test_compiling_names_shapes_and_refuses_branches():
    found = seen(compiled.check_by_compiling)
    assert {scene: one.effect for scene, one in found.items()} == {
        "attention": "holds", "attention, fullgraph or not": "no effect", "Linear": "no effect",
        "float16 + float32": "no effect", "a branch on a value": "harms"}
    assert "size=(1, 2, 4), dtype=torch.float16" in found["attention"].shown
    assert judged(found.values()) == "holds here"


def test_nothing_of_the_compiler_is_left():
    """The log speaks again after the check, even if it is given up half-way."""
    check = compiled.check_by_compiling.check("cpu")
    next(check)
    check.close()
    assert logging.root.manager.disable == logging.NOTSET


def test_a_compiler_that_adds_nothing_has_no_effect(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    found = effects(compiled.check_by_compiling)
    assert set(found.values()) == {"no effect", "idle"} and found["attention"] == "no effect"


def test_an_option_that_existed_would_hold(monkeypatch):
    assert effects(compiled.dynamic_dtype_option) == {
        "inductor": "fails", "backend eager": "no effect"}
    monkeypatch.setattr(torch, "compile", lambda model, **options: model.half().float())
    assert effects(compiled.dynamic_dtype_option)["inductor"] == "holds"
    monkeypatch.setattr(torch, "compile", lambda model, **options: lambda x: model(x).half())
    assert effects(compiled.dynamic_dtype_option)["backend eager"] == "holds"


def test_without_torch_compile_it_cannot_be_shown(monkeypatch):
    monkeypatch.delattr(torch, "compile")
    for check in (compiled.check_by_compiling, compiled.dynamic_dtype_option):
        found = seen(check)
        assert judged(found.values()) == "can't be shown here"
        assert all("no attribute 'compile'" in one.shown for one in found.values())


def test_a_trace_pins_what_was_read_and_no_more():
    assert effects(compiled.trace_and_freeze) == {
        "weights cast after the freeze": "holds", "a dtype that the code reads": "holds",
        "an input of another dtype": "fails", "the same into a Linear": "no effect",
        "run under autocast": "fails", "traced under autocast": "harms",
        "traced under autocast, no cache": "holds"}


def test_without_the_freeze_the_trace_pins_less(monkeypatch):
    monkeypatch.setattr(compiled, "frozen", lambda module, x: module)
    found = effects(compiled.trace_and_freeze)
    assert found["a dtype that the code reads"] == "fails"
    assert found["weights cast after the freeze"] == "fails"
    assert found["traced under autocast"] != "harms"


# ------------------------------------------------------------------ two ranks


RIGHT = {scene: [3.0] * 4 if function is two_ranks.all_reduce
         else [1.5] * 4 if function is two_ranks.autocast_on_rank_0 else [1.0] * 4 + [1.5] * 4
         for scene, (function, _, _) in two_ranks.SCENES.items()}


def ranks_say(monkeypatch, **changed):
    """Both ranks end up with the right numbers in all scenes, but for those changed."""
    said = {scene: [{"value": right}] * 2 for scene, right in RIGHT.items()}
    monkeypatch.setattr(distributed, "two_ranks", lambda device: {**said, **changed})


def test_ranks_that_all_come_out_right(monkeypatch):
    """Then a rank may have any dtype: the claim fails wherever dtypes differ."""
    ranks_say(monkeypatch)
    found = effects(distributed.dtypes_of_two_ranks)
    assert len(found) == len(two_ranks.SCENES)
    assert {scene for scene, effect in found.items() if effect == "holds"} == {
        "float16 on both", "DDP, no if", "DDP, no if, DETAIL"}
    assert found["DDP, if/else"] == "no effect"
    assert found["float16 and bfloat16"] == "fails"


def test_one_rank_that_comes_out_wrong_is_enough(monkeypatch):
    wrong = [{"value": [3.0] * 4}, {"value": [32.0] * 4}]
    ranks_say(monkeypatch, **{"float16 and bfloat16": wrong, "float16 on both": wrong})
    found = seen(distributed.dtypes_of_two_ranks)
    assert found["float16 and bfloat16"].effect == "holds"
    assert found["float16 on both"].effect == "fails"
    assert found["float16 on both"].shown == "rank 0: 3; 1: 32"


def test_an_if_else_that_changes_the_numbers_has_an_effect(monkeypatch):
    ranks_say(monkeypatch, **{"DDP, if/else": [{"ended_by": "SIGABRT"}] * 2})
    found = seen(distributed.dtypes_of_two_ranks)["DDP, if/else"]
    assert found.effect == "holds" and "both: ended by SIGABRT" in found.shown


def test_no_answer_is_not_shown(monkeypatch):
    monkeypatch.setattr(distributed, "two_ranks", lambda device: {})
    found = seen(distributed.dtypes_of_two_ranks)
    assert len(found) == len(two_ranks.SCENES)
    assert judged(found.values()) == "can't be shown here"


def test_nothing_that_differs_from_run_to_run_is_shown():
    lost = "[../gloo/transport/tcp/pair.cc:598] Read error [127.0.0.1]:29608: reset. More."
    assert distributed.told([{"error": {"type": "RuntimeError", "message": lost}}] * 2) == (
        "both: RuntimeError: connection lost")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_scene_that_ends_its_process_or_hangs_is_told(monkeypatch):
    """In a process of its own, which the system ends: the rank itself goes on."""
    monkeypatch.setattr(two_ranks, "SCENE_LIMIT", 1)
    plays = {"SIGKILL": lambda *scene: os.kill(os.getpid(), signal.SIGKILL),
             "SIGALRM": lambda *scene: time.sleep(30), "itself": lambda *scene: os._exit(0)}
    own = signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's
    try:
        for end, play in plays.items():
            monkeypatch.setattr(two_ranks, "play", play)
            assert two_ranks.play_apart("any") == {"ended_by": end}
    finally:
        signal.signal(signal.SIGALRM, own)
    monkeypatch.setattr(two_ranks, "play", lambda *scene: {"value": [1.0]})
    assert two_ranks.play_apart("any") == {"value": [1.0]}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_two_ranks_here():
    """Each rank answers in each scene, and what differs goes wrong."""
    found = effects(distributed.dtypes_of_two_ranks)
    assert set(found) == set(two_ranks.SCENES) and "not shown" not in found.values()
    assert found["float16 on both"] == found["DDP, no if"] == "holds"
    assert found["float16 and bfloat16"] == found["float32 and float16"] == "holds"
    assert found["DDP, autocast on rank 0"] == "fails" and found["DDP, if/else"] == "no effect"
