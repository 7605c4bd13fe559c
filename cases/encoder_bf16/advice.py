"""What the article on the encoder says, tried."""

import torch
from torch import nn

from cases.encoder_bf16.case import CASE
from cases.lab.advice import advice, claim, remedy
from cases.lab.run import run

NESTED = "pytorch/pytorch#132613; torch/nn/modules/transformer.py, TransformerEncoder.forward"


def with_fix(fix, device):
    """The program in each phase, without and with a fix."""
    for phase in ("validate", "train"):
        setting = {"phase": phase}
        yield remedy(phase, run(CASE, setting, (), device), run(CASE, setting, (fix,), device))


@advice(
    "A1",
    article="encoder",
    claim="nn.Embedding returns float32 under bf16 autocast, because autocast does not touch it.",
    why="Autocast casts the inputs of the operations on its lists; a look-up in a table is on none.",
    instead="Expect float32 from nn.Embedding under autocast; the next Linear casts it.",
    source="https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference",
    notebook="01",
)
def embedding_returns_float32(device):
    embedding = nn.Embedding(81, 32, device=device)
    with torch.autocast(device, torch.bfloat16):
        output = embedding(torch.arange(4, device=device))
    yield claim("embedding in float32", said=torch.float32, measured=output.dtype)


@advice(
    "A2",
    article="encoder",
    claim="Casting the embedding's output to bfloat16 cures the encoder failure.",
    why="The encoder's fast path meets float32 weights whatever comes in.",
    instead="Build the encoder with enable_nested_tensor=False.",
    source=NESTED,
    notebook="01",
)
def cast_embedding_output(device):
    yield from with_fix("cast_embedding_output", device)
