"""A weight was saved in float16; functools.partial binds it to a head that gets float32 features.

op = "linear"
odd = "weight float16"
how = "unknown"
sure = true
cure = true
"""
import io
from functools import partial

import torch
import torch.nn.functional as F


def published_checkpoint():
    weight = torch.linspace(-1, 1, 24).reshape(3, 8)
    file = io.BytesIO()
    torch.save({"weight": weight.to(torch.float16), "bias": torch.zeros(3)}, file)
    return io.BytesIO(file.getvalue())


def load_head(file):
    state = torch.load(file)  # enters
    return partial(F.linear, weight=state["weight"], bias=state["bias"])


def classify(images, head):
    features = images.flatten(1).tanh()
    return head(features).argmax(dim=-1)  # fails


torch.manual_seed(0)
head = load_head(published_checkpoint())
print(classify(torch.randn(5, 2, 2, 2), head))
