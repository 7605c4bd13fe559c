"""The rows on autocast: their verdicts here, and that each can come out otherwise."""

import functools
import os

import pytest
import torch
from advice_rows import effects, verdict

from cases.advice import autocast
from cases.lab.advice import COLLECTION, observe

VERDICTS = {"B9": "holds here", "B10": "holds here", "B12": "holds here", "B13": "fails",
            "B29": "holds here", "C4": "can't be shown here", "C23": "holds here"}
OF_A_PRODUCT = "{} of a product, cpu autocast in bfloat16"


@pytest.mark.parametrize("id", VERDICTS)
def test_verdict_here(id):
    assert verdict(id) == VERDICTS[id]


def test_every_row_of_the_module_is_tried():
    own = [item.id for item in COLLECTION.every if item.check.__module__ == autocast.__name__]
    assert sorted(own) == sorted(VERDICTS)


def test_a_softmax_in_float32_shows(monkeypatch):
    softmax = torch.nn.functional.softmax
    monkeypatch.setattr(torch.nn.functional, "softmax",
                        functools.partial(softmax, dtype=torch.float32))
    assert effects("B9")[OF_A_PRODUCT.format("softmax")] == "holds"


def test_a_log_in_float32_shows(monkeypatch):
    log = torch.Tensor.log
    monkeypatch.setattr(torch.Tensor, "log", lambda x: log(x.float()))
    found = effects("B10")
    assert found[OF_A_PRODUCT.format("log")] == "holds"
    assert found[OF_A_PRODUCT.format("exp")] == "fails"


def test_bytes_are_measured(monkeypatch):
    monkeypatch.setattr(autocast, "peak_bytes", lambda model, x, mode, lowered: 4096)
    assert set(effects("B12").values()) == {"no effect"}


def test_bytes_are_those_of_the_tensors_made():
    x = torch.randn(256, 64)
    peak = functools.partial(autocast.peak_bytes, x=x, mode=torch.no_grad, lowered=False)
    assert peak(lambda x: x.relu()) == 256 * 64 * 4
    assert peak(lambda x: x.relu().relu().relu()) == 2 * 256 * 64 * 4
    assert peak(lambda x: x.half().half()) == 256 * 64 * 2


def test_the_profiler_leaves_standard_error_as_it_was(capfd):
    autocast.peak_bytes(torch.relu, torch.ones(4), torch.no_grad, False)
    os.write(2, b"still here")
    assert capfd.readouterr().err == "still here"


def test_a_call_that_lowers_and_does_not_warn_shows(monkeypatch):
    monkeypatch.setattr(torch.cuda.amp, "autocast", functools.partial(torch.autocast, "cpu"))
    assert set(effects("B13").values()) == {"holds", "not shown"}


def test_tasks_are_compared_both_ways(monkeypatch):
    monkeypatch.setattr(autocast.Reader, "continued",
                        lambda self, prompts, count: torch.zeros(len(prompts), count))
    monkeypatch.setattr(autocast, "learned", lambda start, target, x, lr, dtype: (
        start, 0.5 if lr == 1e-3 and dtype == torch.bfloat16 else 1.0))
    answer, training, _ = effects("B29").values()
    assert (answer, training) == ("fails", "holds")


def test_what_is_refused_is_counted(monkeypatch):
    monkeypatch.setattr(autocast, "MIXED", {"add": torch.add, "dot": lambda a, b: a[0].dot(b[0])})
    assert "1 of 2 mixes are refused under autocast: dot;" in observe("C4")[1]["shown"]


def test_gradients_that_do_not_vanish_need_no_scaling(monkeypatch):
    gradients = autocast.gradients
    monkeypatch.setattr(autocast, "gradients", lambda output, weights, target, scale, size:
                        gradients(output, weights, target, 65536, size))
    assert set(effects("C23").values()) == {"fails"}
