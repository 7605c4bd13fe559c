"""What nbval does not compare: only where another torch's outcome comes from, nothing else."""

import configparser
import re

import pytest

from cases.lab.outcome import Outcome, label_of
from cases.notebook.history import Column, provenance
from cases.notebook.runner import SANITIZE


def sanitized(text):
    rules = configparser.RawConfigParser()
    rules.read(SANITIZE, encoding="utf-8")
    for name in rules.sections():
        text = re.sub(rules.get(name, "regex"), rules.get(name, "replace"), text)
    return text


def label(provenance, torch):
    recorded = {"date": "2026-11-30"} if provenance == "recorded" else None
    return label_of(Outcome("cpu_half", {}, [], "cpu", torch, "ran", provenance=provenance,
                            recorded=recorded))


@pytest.mark.parametrize("form", ["label: {}", "Each fix alone ({}). Smallest sets: none."])
def test_another_torch_may_be_live_or_recorded(form):
    for torch in ("1.13.0a0", "2.0.1+cu117", "2.1.2", "2.9.1+cpu", "2.14.1"):
        live, recorded = (form.format(label(how, torch)) for how in ("live", "recorded"))
        assert live != recorded and sanitized(live) == sanitized(recorded)


def test_in_a_history_too():
    one, other = (provenance([Column(f"torch-{head}", "cpu", head in live) for head in
                              ("1.13", "2.6", "2.13")])
                  for live in (("1.13", "2.13"), ("2.13",)))
    assert one != other and sanitized(one) == sanitized(other)


def test_a_picture_is_compared_by_its_text_and_table():
    one, other = (f'<img alt="Road: x f32" src="data:image/png;base64,iVBO{end}="/>'
                  for end in ("Rw0/", "AAA+"))
    assert sanitized(one) == sanitized(other)
    assert sanitized(one) != sanitized(other.replace("f32", "f16"))


@pytest.mark.parametrize("text", [
    "torch-2.13 (live)", "live, torch 2.13.0, cpu", "the answer is live", "✗ fails",
    "live, torch 2.130.0", "Live here: all of it",
])
def test_nothing_else_is_replaced(text):
    assert sanitized(text) == text
