"""Advice: what a check says, the verdict that follows, where it holds, and how it is recorded."""

import importlib.util
import itertools
import re
import sys

import pytest
import torch

import cases
from cases import advice as catalogue
from cases.halftruths.base import BadInput
from cases.lab import advice, evidence, torches
from cases.lab.advice import EFFECTS, Answer, Place, Seen, Tried, judged
from cases.lab.case import Missing
from cases.lab.numerics import cost
from cases.notebook import advice_tables, figures

HERE = torches.current()


def some(*effects):
    return [Seen(f"scene {number}", effect, "…") for number, effect in enumerate(effects)]


# ------------------------------------------------------------------ effects to a verdict


@pytest.mark.parametrize("effects, verdict", [
    (["holds"], "holds"),
    (["harms"], "harms"),
    (["fails"], "fails"),
    (["no effect"], "no effect"),
    (["idle"], "no effect"),
    (["not shown"], "can't be shown here"),
    ([], "can't be shown here"),
    (["holds", "idle", "not shown"], "holds"),
    (["idle", "not shown"], "can't be shown here"),
    (["holds", "fails"], "holds here"),
    (["holds", "harms"], "holds here"),
    (["holds", "no effect"], "holds here"),
    (["harms", "fails"], "harms"),
    (["harms", "no effect"], "harms"),
    (["fails", "no effect", "not shown"], "fails"),
    (["no effect", "idle", "not shown"], "no effect"),
])
def test_the_verdict_follows_from_the_effects(effects, verdict):
    assert judged(some(*effects)) == verdict
    assert verdict in advice.VERDICTS


def test_every_mixture_has_a_verdict_that_no_order_and_no_repetition_changes():
    for size in range(len(EFFECTS) + 1):
        for effects in itertools.combinations(EFFECTS, size):
            verdict = judged(some(*effects))
            assert judged(some(*reversed(effects), *effects)) == verdict
            assert (verdict == "holds") == (set(effects) - {"idle", "not shown"} == {"holds"})
            assert (verdict == "holds here") == ("holds" in effects and verdict != "holds")


def test_an_unknown_effect_is_refused():
    with pytest.raises(ValueError, match="unknown effect 'cures'; allowed: holds, harms"):
        Seen("train", "cures", "…")


# ------------------------------------------------------------------ what a check says


def raising(message="expected Float", type_=RuntimeError):
    def function():
        raise type_(message)

    return advice.attempt(function)


def running(*kinds):
    return Tried(value=torch.ones(1), costs=tuple(cost(kind, f"{kind} lost") for kind in kinds))


@pytest.mark.parametrize("without, with_it, effect, shown", [
    (raising(), running(), "holds", "RuntimeError: expected Float becomes: float32"),
    (raising(), raising(), "no effect", "still RuntimeError: expected Float"),
    (raising("size 3 at 0x7f"), raising("size 4 at 0x8f"), "no effect",
     "still RuntimeError: size 4"),
    (raising(), raising("another"), "fails",
     "RuntimeError: expected Float becomes RuntimeError: another"),
    (raising(), raising(type_=TypeError), "fails", "becomes TypeError: expected Float"),
    (raising(), running("memory"), "harms", "float32, memory lost"),
    (running(), raising(), "harms", "ran, and now raises RuntimeError: expected Float"),
    (running(), running("memory"), "harms", "memory lost"),
    (running("error"), running("memory"), "harms", "memory lost"),
    (running("error"), running("error", "memory"), "harms", "memory lost"),
    (running("error"), running(), "holds", "float32, error lost becomes: float32"),
    (running("error", "memory"), running("memory"), "holds", "becomes: float32, memory lost"),
    (running("error"), running("error"), "no effect", "still float32, error lost"),
    (running("error"), raising(), "harms", "now raises"),
    (running(), running(), "idle", "nothing to cure: float32"),
])
def test_a_remedy_is_judged_by_what_it_cures_and_costs(without, with_it, effect, shown):
    seen = advice.remedy("train", without, with_it)
    assert (seen.scene, seen.effect) == ("train", effect)
    assert shown in seen.shown and "\n" not in seen.shown


def test_a_remedy_takes_outcomes_of_cases_too():
    import cases
    from cases.lab.run import run

    case = cases.load("encoder_bf16")
    plain, cured = (run(case, None, fixes, training=False)
                    for fixes in ((), ("disable_nested_tensor",)))
    assert advice.remedy("validate", plain, cured).effect == "holds"
    assert advice.remedy("validate", plain, plain).effect == "no effect"
    assert advice.remedy("validate", cured, plain).effect == "harms"
    assert advice.remedy("validate", cured, cured).effect == "idle"


def test_a_claim_compares_what_is_said_with_what_is_measured():
    assert advice.claim("sum", torch.float32, torch.float32) == Seen("sum", "holds", "float32")
    assert advice.claim("sum", torch.float32, torch.float16) == Seen(
        "sum", "fails", "float16, not float32")
    assert advice.claim("sizes", (4, 8), (4, 2)).shown == "4, 2, not 4, 8"


def test_a_fact_a_loss_and_a_difference_go_both_ways():
    assert advice.fact("sum", True, "3").effect == "holds"
    assert advice.fact("sum", False, "2").effect == "fails"
    assert advice.harmless("sum", lost=True, shown="a half").effect == "harms"
    assert advice.harmless("sum", lost=False, shown="nothing").effect == "holds"
    assert advice.difference("sum", 1, 2) == Seen("sum", "holds", "1 → 2")
    assert advice.difference("sum", 2, 2) == Seen("sum", "no effect", "the same: 2")
    assert advice.difference("sum", 1, 2, "twice").shown == "twice"
    assert advice.not_shown("eight GPUs", "there is one").effect == "not shown"


def test_the_mark_of_a_processor_is_kept():
    for seen in (advice.claim("s", 1, 1, processor=True),
                 advice.fact("s", True, "…", processor=True),
                 advice.harmless("s", False, "…", processor=True),
                 advice.difference("s", 1, 2, processor=True)):
        assert seen.processor


def test_what_was_tried_is_told_in_one_line():
    assert advice.attempt(lambda: None).said == "runs"
    assert advice.attempt(torch.ones, 2).said == "float32"
    lost = advice.attempt(lambda: torch.float16, costs=lambda value: [cost("memory", "twice it")])
    assert lost.said == "float16, twice it"
    assert raising("first\nsecond").said == "RuntimeError: first"
    assert raising("").said == "RuntimeError: "
    with pytest.raises(KeyboardInterrupt):
        raising(type_=KeyboardInterrupt)


# ------------------------------------------------------------------ a small collection


TEXT = '''"""A small module of advice."""

from cases.lab.advice import advice, attempt, fact, not_shown

LIMIT = 3
UNUSED = 4


def value():
    """What it is about."""
    return LIMIT - 1


def other():
    return UNUSED


@advice("Z2", article="encoder", claim="It is small.", why="Why.", instead="Less.",
        source="here", notebook="05")
def small(device):
    yield fact("value", value() < LIMIT, f"{value()} on the CPU")
    yield not_shown("large", "too large")


@advice("Z10", article="c10half", claim="It is three.", why="Why.", instead="Less.",
        source="here", notebook="05")
def three(device):
    yield fact("value", LIMIT == 3, f"it is {LIMIT}")
'''


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Make the collection one module of this text, its evidence in a folder of its own."""
    monkeypatch.setattr(catalogue, "MODULES", ("cases.advice.small",))
    monkeypatch.setattr(advice.COLLECTION, "folder", tmp_path, raising=False)

    def load(text=TEXT):
        loaded = len(list(tmp_path.glob("small*.py")))
        path = tmp_path / f"small{loaded}.py"  # a new file: the lines of the old one are cached
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("cases.advice.small", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "cases.advice.small", module)
        spec.loader.exec_module(module)
        return {item.id: item for item in advice.COLLECTION.every}

    return load


def digests(items):
    return {id: item.digest for id, item in items.items()}


def test_ids_are_in_order_and_a_bad_one_is_named(small):
    assert list(small()) == ["Z2", "Z10"]
    assert [item.id for item in advice.COLLECTION.pick(["Z10"])] == ["Z10"]
    with pytest.raises(BadInput, match="unknown advice 'A1'; allowed: Z2, Z10"):
        advice.COLLECTION.pick(["A1"])
    with pytest.raises(BadInput, match="unknown advice"):
        advice.ask("A1")
    with pytest.raises(BadInput, match="unknown device 'tpu'"):
        advice.observe("Z2", "tpu")


def test_the_code_is_the_check_and_no_decorator(small):
    code = small()["Z2"].code
    assert code.startswith("def small(device):") and code.endswith('yield not_shown("large", '
                                                                   '"too large")')


def test_advice_beside_a_case_is_as_old_as_the_case(monkeypatch):
    [item] = advice.COLLECTION.pick(["A1"])
    before, case = item.digest, cases.load(item.case)
    assert item.case == "encoder_bf16"
    monkeypatch.setattr(type(case), "digest", property(lambda case: "another"))
    assert item.digest != before


@pytest.mark.parametrize("old, new, changed", [
    ('claim="It is small."', 'claim="It is tiny."', set()),
    ('source="here"', 'source="there"', set()),
    ("UNUSED = 4", "UNUSED = 5", set()),
    ('"""A small module of advice."""', '"""Another."""', set()),
    ("LIMIT - 1", "LIMIT - 2", {"Z2"}),
    ("LIMIT = 3", "LIMIT = 4", {"Z2", "Z10"}),
    ('"too large"', '"too wide"', {"Z2"}),
    ("LIMIT == 3", "LIMIT > 2", {"Z10"}),
])
def test_a_digest_changes_with_what_a_check_does_and_not_with_what_is_said_of_it(
        small, old, new, changed):
    before, whole = digests(small()), advice.COLLECTION.digest
    assert old in TEXT
    after = digests(small(TEXT.replace(old, new)))
    assert {id for id in before if before[id] != after[id]} == changed
    assert (advice.COLLECTION.digest != whole) == bool(changed)


def test_a_check_that_runs_a_script_is_as_old_as_the_script(small, monkeypatch, tmp_path):
    (tmp_path / "a_script.py").write_text("print(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = TEXT.replace("LIMIT = 3", 'LIMIT = 3\nSCRIPT = "a_script"')
    before = digests(small(text))
    (tmp_path / "a_script.py").write_text("print(2)\n")
    after = digests(small(text))
    assert all(before[id] != after[id] for id in before)


def test_a_check_leaves_the_random_state_and_repeats_itself(small):
    small(TEXT.replace('f"{value()} on the CPU"', 'f"{__import__(\'torch\').rand(1).item()}"'))
    torch.manual_seed(5)
    first = advice.observe("Z2")
    torch.manual_seed(6)
    state = torch.get_rng_state()
    assert advice.observe("Z2") == first
    assert bool((torch.get_rng_state() == state).all())


def test_a_missing_package_is_a_scene_that_cannot_be_shown(small, monkeypatch):
    items = small()

    def needs(device):
        raise Missing("needs transformers")
        yield

    monkeypatch.setitem(vars(items["Z2"]), "check", needs)
    monkeypatch.setattr(advice.COLLECTION, "pick", lambda ids: [items["Z2"]], raising=False)
    assert [Seen(**one) for one in advice.observe("Z2")] == [
        Seen("here", "not shown", "needs transformers")]


# ------------------------------------------------------------------ where it holds


def answer(item, **seen):
    """An Answer from {torch's version with _ for the point: [Seen, …]}, recorded on the CPU."""
    return Answer(item, [Place(f"torch-{version[1:].replace('_', '.')}", "cpu", "recorded", row)
                         for version, row in seen.items()])


def at(scene, effect, shown="…"):
    return Seen(scene, effect, shown)


def test_where_is_the_span_of_torches_if_the_effects_are_alike(small):
    item = small()["Z2"]
    rows = {"t2_0": [at("a", "holds")], "t2_1": [at("a", "holds"), at("b", "idle")],
            "t2_2": [at("a", "holds")]}
    assert answer(item, **rows).where == "torch 2.0 to 2.2, cpu"
    rows["t2_1"] = [at("a", "idle")]
    assert answer(item, **rows).where == "torch 2.0, 2.2, cpu"
    assert answer(item, t2_0=[at("a", "idle")], t2_1=[at("a", "idle")]).where == (
        "torch 2.0, 2.1, cpu")


def test_where_names_the_scenes_of_each_effect_and_their_torches(small):
    found = answer(small()["Z2"],
                   t2_0=[at("train", "holds"), at("eval", "fails"), at("x", "idle")],
                   t2_1=[at("train", "holds"), at("eval", "holds"), at("x", "not shown")])
    assert found.verdict == "holds here"
    assert found.where == ("holds: train; eval (torch 2.1, cpu). fails: eval (torch 2.0, cpu). "
                           "not shown: x (torch 2.1, cpu)")


def test_scenes_that_came_out_alike_are_one_line(small):
    found = answer(small()["Z2"], t2_0=[at("a", "holds", "1")], t2_1=[at("a", "holds", "1")],
                   t2_2=[at("a", "holds", "2")])
    assert found.scenes() == [
        {"scene": "a", "effect": "holds", "shown": "1", "where": "torch 2.0, 2.1, cpu"},
        {"scene": "a", "effect": "holds", "shown": "2", "where": "torch 2.2, cpu"}]
    assert "a: holds (torch 2.2, cpu). 2" in found.lines


def test_held_counts_scenes_on_torches_where_there_is_something_to_try(small):
    found = answer(small()["Z2"],
                   t2_0=[at("a", "holds"), at("b", "fails"), at("c", "idle")],
                   t2_1=[at("a", "holds"), at("b", "no effect"), at("c", "not shown")])
    assert found.held == (2, 4) and found.to_json()["held"] == [2, 4]
    assert answer(small()["Z2"], t2_0=[at("a", "idle")]).held == (0, 0)
    assert advice_tables.table([found]).rows[0][4] == "2 of 4"


def test_the_picture_says_in_words_what_it_draws(small):
    item = small()["Z2"]
    half = answer(item, t2_0=[at("a", "holds"), at("b", "fails")])
    none = answer(item, t2_0=[at("a", "not shown")])
    drawn = figures.advice_picture([none, half])
    assert "holds here: 1; " in drawn.alt and "can't be shown here: 1." in drawn.alt
    [row] = drawn.table.rows
    assert row == [item.article, "-", "Z2 50%", "-", "-", "-", "Z2"]
    assert drawn.png != figures.advice_picture([answer(item, t2_0=[at("a", "holds")])]).png


def test_devices_are_told_apart(small):
    found = answer(small()["Z2"], t2_0=[at("a", "holds")])
    found.places.append(Place("torch-2.0", "cuda", "recorded", [at("a", "harms")]))
    assert found.where == "holds: a (torch 2.0, cpu). harms: a (torch 2.0, cuda)"


def test_what_was_not_run_on_this_torch_has_no_verdict_here(small):
    item = small()["Z2"]
    assert answer(item, t9_9=[at("a", "holds")]).here is None
    both = answer(item, t9_9=[at("a", "holds")])
    both.places.append(Place(HERE, "cpu", "live", [at("a", "fails")]))
    assert (both.here, both.verdict) == ("fails", "holds here")
    assert both.label == f"live: torch {HERE[6:]}, cpu; recorded: torch 9.9, cpu"
    assert Answer(item, []).verdict == "can't be shown here"


# ------------------------------------------------------------------ recorded, and compared


def test_recorded_and_checked_in_a_round_trip(small, tmp_path):
    small()
    assert advice.check(HERE) == [f"advice: nothing is recorded for {HERE}, cpu"]
    counted = []
    [(path, rows)] = advice.record(HERE, each=lambda: counted.append(1))
    assert path == tmp_path / "evidence" / f"{HERE}-cpu.json" and rows == len(counted) == 2
    assert advice.check(HERE) == []
    known = advice.recorded(HERE)
    assert known["provenance"]["digest"] == advice.COLLECTION.digest
    assert known["seen"]["Z2"] == [Seen("value", "holds", "2 on the CPU"),
                                   Seen("large", "not shown", "too large")]
    [first, second] = advice.published()
    assert (first.verdict, first.where) == (
        "holds", "holds: value. not shown: large") and second.sign == "✓"
    assert advice.ask("Z2").places[0].provenance == "live"
    assert len(advice.ask("Z2").places) == 1  # this torch's record is not told beside it


def test_recorded_elsewhere_leaves_the_own_evidence_alone(small, tmp_path):
    small()
    [(path, _)] = advice.record(HERE, folder=tmp_path / "out")
    assert path == tmp_path / "out" / "advice" / f"{HERE}-cpu.json"
    assert advice.recorded(HERE) is None


def test_a_torch_that_is_not_here_is_read_from_its_evidence(small, monkeypatch):
    item = small()["Z2"]
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == HERE)
    with pytest.raises(evidence.NotRecorded, match="advice Z2 was not recorded on torch-2.0, cpu"):
        advice.place(item, "torch-2.0")
    with pytest.raises(BadInput, match="unknown torch 'torch-0.1'"):
        advice.place(item, "torch-0.1")
    [(path, _)] = advice.record(HERE)
    path.rename(path.with_name("torch-2.0-cpu.json"))
    found = advice.place(item, "torch-2.0")
    assert found.provenance == "recorded" and found.seen[0].effect == "holds"
    small(TEXT.replace('"Z2"', '"Z3"'))
    with pytest.raises(evidence.NotRecorded, match="advice Z3"):
        advice.place(advice.COLLECTION.pick(["Z3"])[0], "torch-2.0")


def test_differences_are_of_effect_and_words_but_not_of_numbers(small):
    item = small()["Z2"]
    old = [at("a", "holds", "error 0.004"), at("b", "fails", "float16")]

    def lines(*new):
        return advice.differences(item, old, list(new))

    assert lines(*old) == []
    assert lines(*reversed(old)) == []
    assert lines(at("a", "holds", "error 3e-05"), old[1]) == []
    assert lines(at("a", "holds", "error 0.004"), at("b", "fails", "bfloat16")) == [
        "advice Z2, b: was fails (float16), is fails (bfloat16)"]
    assert lines(old[0]) == ["advice Z2, b: was fails (float16), is not there",
                             "advice Z2: the verdict here was 'holds here', is 'holds'"]
    assert lines(*old, at("c", "idle")) == ["advice Z2, c: was not there, is idle (…)"]
    assert lines(at("a", "harms", "error 0.004"), old[1]) == [
        "advice Z2, a: was holds (error 0.004), is harms (error 0.004)",
        "advice Z2: the verdict here was 'holds here', is 'harms'"]


def test_what_depends_on_the_processor_is_compared_on_its_own_kind_alone(small):
    item = small()["Z2"]

    def lines(effect, shown, same):
        old = [Seen("time", "holds", "twice as fast", processor=True), at("b", "holds")]
        new = [Seen("time", effect, shown, processor=True), at("b", "holds")]
        return advice.differences(item, old, new, same_processor=same)

    assert lines("holds", "a bit faster", same=True) == []
    assert lines("fails", "slower", same=False) == []
    assert lines("fails", "slower", same=True) == [
        "advice Z2, time: was holds (twice as fast), is fails (slower)",
        "advice Z2: the verdict here was 'holds', is 'holds here'"]


# ------------------------------------------------------------------ the real collection


def test_every_piece_of_advice_is_complete():
    every = advice.COLLECTION.every
    assert len({item.id for item in every}) == len(every)
    for item in every:
        assert item.article in advice.ARTICLES, item.id
        assert item.notebook in {f"{number:02}" for number in range(1, 9)}, item.id
        assert all((item.claim, item.why, item.instead, item.source)), item.id
        assert "\n" not in item.claim + item.why + item.instead + item.source, item.id


def test_what_is_recorded_is_one_line_a_scene_and_no_scene_comes_twice():
    for found in advice.published():
        for place in found.places:
            scenes = [seen.scene for seen in place.seen]
            assert scenes and len(set(scenes)) == len(scenes), (found.advice.id, place.torch_id)
            for seen in place.seen:
                assert seen.shown and not re.search(r"\n|0x[0-9a-f]{6}|/tmp|/home", seen.shown)
