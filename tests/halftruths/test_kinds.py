"""The kinds of failure: which one an exception is, and what is answered."""

from pathlib import Path

import pytest
import torch
from torch import nn

from cases import halftruths
from cases.halftruths.exceptions import wording
from cases.halftruths.messages import reader

# What the message reader calls a kind that the reader of exceptions tells by the words alone.
# "mismatch" is no such kind: there the words say only that it is about dtypes.
SAME = {
    "scaler": {"gradscaler-fp16-params", "gradscaler-protocol"},
    "overflow": {"mask-constant-overflow"},
    "result": {"type-promotion-surprise", "two-input-op-not-promoted"},
    "indices": {"label-dtype"},
    "refused": {"cpu-half-not-implemented", "op-lacks-low-precision-kernel (gpu/other)",
                "quantised-tensor-dtype", "gradscaler-bf16", "sdpa-qkv-or-mask-dtype"},
    "hook": set(),
}
TEXTS = [line.split("|", 1)[1] for line in (Path(__file__).parent / "explain_texts.txt").read_text(
    encoding="utf-8").splitlines() if "|" in line and not line.startswith("#")]


class TensorImage(torch.Tensor):
    """A subclass of data alone, as fastai's and torchvision's are."""


class Logged(torch.Tensor):
    """A subclass that hands each call on by itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Unwrapped(torch.Tensor):
    """One that calls the function itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            return func(*args, **(kwargs or {}))


class Halving(torch.Tensor):
    """One that gives the function other tensors than it was given: here the op is to be told."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [arg.as_subclass(torch.Tensor) for arg in args]
        with torch._C.DisableTorchFunction():
            return torch.matmul(plain[0].half(), plain[1])


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, image):
        return self.body(image)


def raised(function, *args):
    with pytest.raises((RuntimeError, TypeError)) as caught:
        function(*args)
    return caught.value


@pytest.mark.parametrize("kind", [torch.Tensor, TensorImage, Logged, Unwrapped])
def test_a_tensor_subclass_gets_the_answer_of_a_tensor(kind):
    def classify(model):
        image = torch.ones(2, 4).as_subclass(kind)
        return model(image)

    found = halftruths.autopsy(raised(classify, Stem().half()))
    assert found.where["module"] == "body" and found.where["op"] == "linear"
    assert found.odd == {"name": "input", "dtype": "float32"}
    assert "dtype=torch.float16" in found.cure["code"] and "as_subclass" in found.cure["code"]
    assert found.road[0]["how"] == "made" and found.case == "llama_vision"
    assert found.sure and found.asks == []


@pytest.mark.parametrize("kind", [TensorImage, Logged, Unwrapped])
def test_an_operator_of_a_tensor_subclass(kind):
    def scores(keys, kind):
        query = torch.ones(2, 4).as_subclass(kind)
        weights = [torch.ones(4), torch.ones(4), torch.ones(4)]
        return query @ keys, weights

    keys = torch.ones(4, 4, dtype=torch.float64)
    plain, found = (halftruths.autopsy(raised(scores, keys, made)).to_json()
                    for made in (torch.Tensor, kind))
    assert found == plain
    assert found["where"]["op"] == "matmul" and found["where"]["module"] is None
    assert found["odd"] == {"name": "keys", "dtype": "float64"}


def test_what_a_subclass_does_itself_is_told_at_its_own_line():
    error = raised(lambda: torch.ones(2, 4).as_subclass(Halving) @ torch.ones(4, 4))
    found = halftruths.autopsy(error)
    assert "backward" not in found.said
    assert found.where["op"] == "matmul"
    assert any("plain" in o["name"] for o in found.where["operands"]), found.text()


@pytest.mark.parametrize("kind", [torch.Tensor, TensorImage])
def test_a_failed_backward_is_still_one(kind):
    def train(kind):
        model = nn.Linear(4, 1)
        price = torch.ones(2, 1, dtype=torch.float64).as_subclass(kind)
        guess = model(torch.ones(2, 4))
        loss = nn.functional.huber_loss(guess, price)
        loss.backward()

    found = halftruths.autopsy(raised(train, kind))
    assert found.said == "huber_loss met float64 in `price` beside float32.", found.text()
    assert found.odd == {"name": "price", "dtype": "float64"}


def test_the_argument_is_cured_and_not_the_result_of_the_call_that_raised():
    def probe(model):
        return model(torch.ones(2, 4, dtype=torch.bfloat16).view(2, 4))

    found = halftruths.autopsy(raised(probe, nn.Linear(4, 4)))
    assert found.sure
    assert found.cure["code"].strip() == (
        "return model(torch.ones(2, 4, dtype=torch.bfloat16).view(2, 4).to(torch.float32))")


def test_the_two_readers_agree_on_the_kind():
    known = set()
    for text in [*TEXTS, *(f"RuntimeError: {words}" for words in reader.evidence()[0])]:
        kind, readings = wording.kind_of(text), reader.explain(text).readings
        if kind in SAME and readings:
            assert readings[0].kind in SAME[kind], text
            known.add(kind)
    assert known >= {"scaler", "overflow", "result", "indices", "refused"}


@pytest.mark.parametrize("kind", sorted(SAME))
def test_no_kind_is_told_by_the_words_of_another(kind):
    """An example of a rule that only one kind has is never of another kind."""
    for rule in reader.rules():
        if [k for k in SAME if rule["kind"] in SAME[k]] == [kind]:
            told = {wording.kind_of(text) for text in rule.get("example", ())} - {None, "mismatch"}
            assert told <= {kind}, rule["kind"]


def test_half_scores_are_no_places():
    """On old torches a loss takes no half scores; its labels are right as they are."""
    assert wording.kind_of("\"nll_loss_out_frame\" not implemented for 'Half'") == "refused"
    assert wording.kind_of("\"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for "
                           "'Half'") == "indices"
