"""The kinds of failure: which one an exception is, and what is answered."""

import pytest
import torch
from torch import nn

from cases import halftruths


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
