"""Which operand is odd, and why: a row for each witness that can tell, and one where none can.

The reader is shown the why; so each row says it in full. `sure` is whether the witness is.
"""

import numpy as np
import pytest
import torch
from torch import nn

from cases.halftruths import autopsy

F16, F64 = torch.float16, torch.float64


class Net(nn.Module):
    def __init__(self, width=4, second=4):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, second)

    def forward(self, x):
        return self.second(self.first(x))


def model_against_its_input():
    model = Net().half()
    model(torch.ones(2, 4))


def small_part_converted():
    model = Net(second=3)  # 20 and 15 parameters: too few apart to be sure
    model.first.half()
    model(torch.ones(2, 4).half())


def more_tensors_of_one_dtype():
    a, b = torch.ones(2, 2, dtype=F16), torch.ones(2, 2, dtype=F16)
    wide = torch.ones(2, 2)
    return torch.mm(a + b, wide)


def numbers_of_numpy():
    weights = torch.from_numpy(np.ones((2, 2)))
    return torch.mm(torch.ones(2, 2), weights)


def float64_by_hand():
    weights = torch.ones(2, 2, dtype=F64)
    return torch.mm(torch.ones(2, 2), weights)


def two_of_three():
    q, (k, v) = torch.ones(1, 1, 2, 2), torch.ones(2, 1, 1, 2, 2, dtype=F16)
    beside = torch.ones(2)  # so that there are two tensors of each dtype in sight
    return nn.functional.scaled_dot_product_attention(q, k, v), beside


def written_into():
    cache, new = torch.zeros(4, 2, dtype=torch.bfloat16), torch.ones(2, 2, dtype=F16)
    cache[torch.tensor([0, 1])] = new


LOW, WIDE = torch.ones(2, 2, dtype=F16), torch.ones(2, 2)


def one_is_the_default():
    return torch.mm(LOW, WIDE)


def two_that_nobody_tells_apart():
    one, other = torch.ones(2, 2, dtype=F16), torch.ones(2, 2, dtype=torch.bfloat16)
    return torch.mm(one, other)


NUMPY = "because float64 rarely comes on purpose: it is NumPy's default"

ROWS = [
    (model_against_its_input, "input",
     "because 40 of 40 parameters of the model are float16", True),
    (small_part_converted, "input", "because a part of the model was converted to float16", False),
    (more_tensors_of_one_dtype, "wide",
     "because 2 of 3 tensors in the functions of this traceback are float16", False),
    (numbers_of_numpy, "weights", NUMPY, True),
    (float64_by_hand, "weights", NUMPY, False),
    (two_of_three, "q", "because 2 of 3 operands are float16", False),
    (written_into, "new", "because what it is written into is bfloat16", False),
    (one_is_the_default, "WIDE", "because float32 is the default, which comes unasked", False),
    (two_that_nobody_tells_apart, None,
     "Tensors in the functions of this traceback: 1 float16, 1 bfloat16.", False),
]


@pytest.mark.parametrize("scene, odd, why, sure", ROWS, ids=lambda part: getattr(
    part, "__name__", ""))
def test_the_witness(scene, odd, why, sure):
    with pytest.raises(RuntimeError) as caught:
        scene()
    found = autopsy(caught.value)
    assert (found.odd and found.odd["name"], found.why, found.sure) == (odd, why, sure)
