"""Python 3.10 tells the line that failed, and not which of its calls: then the autopsy is not sure.

Later Pythons are made to forget the columns here, as they do under PYTHONNODEBUGRANGES.
"""

import traceback

import pytest
import torch
from scenes import HALF, Net, caught, finds, read
from torch import nn

from cases import halftruths
from cases.halftruths.exceptions import frames
from tests.halftruths.test_autopsies import SCRIPTS, run, truth

modules = {}


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    monkeypatch.setattr(frames, "positions", lambda tb: [None for _ in traceback.walk_tb(tb)])
    fused = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.set_default_dtype(torch.float32)
    torch.backends.mha.set_fastpath_enabled(fused)


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_nothing_wrong_is_told_for_sure_without_columns(path):
    source = path.read_text(encoding="utf-8")
    told, enters = truth(source)
    found = halftruths.autopsy(run(path, source)).to_json()
    road = found["road"]
    modules[path.stem] = "module" not in told or \
        (found["where"] or {}).get("module") == told["module"]
    if found["sure"]:
        assert f"{found['odd']['name']} {found['odd']['dtype']}" == told.get("odd") \
            if told.get("odd") else not found["odd"]
        assert not enters or road[0]["line"] == enters or told.get("how") == road[0]["how"] == \
            "parameter"


def test_every_module_is_found_without_columns():
    if set(modules) != {path.stem for path in SCRIPTS}:
        pytest.skip("needs the judgement of every script")
    assert all(modules.values()), [name for name, right in modules.items() if not right]


def test_one_call_on_a_line_is_as_sure_as_ever():
    def run(model, x):
        mask = x.float()
        return model(mask)

    found = finds(read(caught(run, Net().half(), torch.ones(2, 4, dtype=HALF))))
    assert found.sure and found.where["module"] == "body"
    assert found.cure["code"].strip() == "mask = x.to(torch.float16)"


def test_the_call_that_led_to_the_next_frame_is_known():
    def run(first, second, x):
        mask = x.float()
        return torch.relu(first(second(mask)))

    first, second = nn.Linear(4, 4).half(), nn.Identity()
    found = finds(read(caught(run, first, second, torch.ones(2, 4, dtype=HALF))))
    assert found.where["op"] == "linear" and "does not tell" not in found.text()


def test_several_calls_on_a_line_are_not_sure_and_it_says_why():
    def run(x, weight, other):
        x = x.float()
        return torch.matmul(torch.exp(x), weight) + torch.matmul(x, other)

    weight = torch.ones(4, 4)
    found = read(caught(run, torch.ones(2, 4), weight, weight.half()))
    assert not found.sure
    said = [ask for ask in found.asks if "does not tell which of 4 calls" in ask]
    assert len(said) == 1 and said[0].endswith("failed: split the line and run it again.")
    assert "4 calls on the line" in found.text()
