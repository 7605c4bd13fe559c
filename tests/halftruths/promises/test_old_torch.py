"""The autopsy answers on the oldest torch too."""

import json

import pytest
from scenes import LIVE, at

import cases

OLD = """
import json
import torch
from torch import nn
import cases
from cases import halftruths
from cases.lab.run import call, fixed_run, steady

def caught(function, *args):
    try:
        function(*args)
    except Exception as error:
        found = halftruths.autopsy(error)
        assert "stopped halfway" not in found.text(), found.text()
        found._repr_html_()
        return json.loads(json.dumps(found.to_json()))
    raise AssertionError("nothing was raised")

def layer(model, x):
    return model(x)

def operator(x, weight):
    return x.transpose(0, 1) @ weight

def written(x, value):
    x[0] = value

def filled(x):
    return x.masked_fill(x > 0, -1e9)

answers = {
    "layer": caught(layer, nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4).double()),
    "operator": caught(operator, torch.ones(4, 2), torch.ones(4, 4).double()),
    "loss": caught(nn.functional.cross_entropy, torch.ones(2, 4), torch.ones(2).int()),
    "conv": caught(nn.Conv2d(1, 1, 1).double(), torch.ones(1, 1, 2, 2)),
    "put": caught(lambda x, i, v: x.index_put_((i,), v), torch.ones(4), torch.tensor([0]),
                  torch.ones(1).double()),
    "fill": caught(filled, torch.ones(4).half()),
    "lazy": caught(layer, nn.LazyLinear(4), torch.ones(2, 4).int()),
    "plain": caught(lambda: [][1]),
}
for name in cases.NAMES:
    case = cases.load(name)
    try:
        with steady():
            call(fixed_run(case, case.setting(), (), "cpu")[0])
    except Exception as error:
        found = halftruths.autopsy(error)
        assert "stopped halfway" not in found.text(), found.text()
        answers[name] = json.loads(json.dumps(found.to_json()))
print("ANSWERS" + json.dumps(answers))
"""


@pytest.fixture(scope="module", params=LIVE)
def answers(request, tmp_path_factory):
    """What the autopsy says on a torch: {name: Autopsy in JSON}."""
    said = at(request.param, OLD, tmp_path_factory.mktemp("old"))
    return request.param, json.loads(said.split("ANSWERS")[1])


def test_plain_failures_on_the_oldest_torch_too(answers):
    torch_id, answers = answers
    for name, odd, op in (("layer", "input", "linear"), ("conv", "input", "conv2d")):
        assert answers[name]["odd"]["name"] == odd and answers[name]["where"]["op"] == op
        assert answers[name]["odd"]["dtype"] == ("float64" if name == "layer" else "float32")
    assert answers["operator"]["where"]["op"] == "matmul"
    assert {o["dtype"] for o in answers["operator"]["where"]["operands"]} == {"float32", "float64"}
    assert answers["put"]["where"]["op"] == "index_put_"
    assert answers["plain"]["where"] is None and not answers["plain"]["sure"]


def test_the_cases_on_the_oldest_torch_too(answers):
    torch_id, answers = answers
    told = {name: answers[name]["case"] for name in cases.NAMES if name in answers}
    expected = {"encoder_bf16": "encoder_bf16", "llama_vision": "llama_vision",
                "chatglm_prefix": "chatglm_prefix"}
    if torch_id == "torch-1.13":  # half has no kernels there, and three end at their first
        expected |= {"chatglm_prefix": "cpu_half", "cpu_half": "cpu_half",
                     "mask_overflow": "cpu_half"}
        assert told.pop("grad_scaler") is None  # autocast itself refuses float16: no operation
    assert told == expected
    for name in told:
        assert answers[name]["where"] is not None, name
