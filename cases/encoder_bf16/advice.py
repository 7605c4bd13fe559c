"""What the articles say on the encoder, tried."""

import copy

import torch
from torch import nn

from cases.encoder_bf16 import fixes as fix
from cases.encoder_bf16.case import CASE
from cases.lab.advice import Seen, advice, attempt, claim, fact, not_shown, remedy
from cases.lab.run import run

FAST_PATH = ("pytorch/pytorch#107663; torch/nn/modules/transformer.py, "
             "TransformerEncoder.forward and TransformerEncoderLayer.forward")
INSTEAD = ("torch.backends.mha.set_fastpath_enabled(False) while validating; before torch 2.3 run "
           "the encoder outside autocast.")
PHASES = ("validate", "train")


def hold_low(module, name, dtype):
    """Hold a parameter as a plain tensor in `dtype`, where it is no weight that a remedy lost."""
    low = getattr(module, name).detach().to(dtype)
    delattr(module, name)
    setattr(module, name, low)


def low_positions(run):
    """Add positions in the autocast dtype: then the embedding alone decides the input's dtype."""
    hold_low(run.model, "positions", run.dtype)


def low_embedding(run):
    """Look tokens up in a table in the autocast dtype."""
    hold_low(run.model.embedding, "weight", run.dtype)


def cast_encoder_input(run):
    """Cast all that the encoder is given, positions included, to the autocast dtype."""
    encode = run.model.encoder.forward
    run.model.encoder.forward = lambda src, **options: encode(src.to(run.dtype), **options)


def copy_encoder_bf16(run):
    """Use a copy of the encoder in the autocast dtype; the one that trains keeps float32."""
    run.model.low_encoder = copy.deepcopy(run.model.encoder).to(run.dtype)
    run.model.encoder.forward = run.model.low_encoder.forward


def float32_embedding_output(run):
    """Cast what nn.Embedding returns to float32."""
    embed = run.model.embedding.forward
    run.model.embedding.forward = lambda tokens: embed(tokens).float()


def outcome(device, *fixes, **setting):
    found = run(CASE, setting, fixes, device, training=False)
    if {low_positions, low_embedding} & set(fixes):
        # The case's rule on the output's dtype is for float32 positions and weights.
        found.costs = [cost for cost in found.costs if cost["kind"] != "output_dtype"]
    return found


def with_and_without(fix, device, around=(), also=""):
    """The program in each phase, without and with a fix. around: what both are changed by."""
    for phase in PHASES:
        yield remedy(phase + also, outcome(device, *around, phase=phase),
                     outcome(device, *around, fix, phase=phase))


@advice(
    "A1",
    article="encoder",
    claim="nn.Embedding returns float32 under bf16 autocast, because autocast does not touch it.",
    why="Autocast casts the inputs of the operations on its lists; a look-up is on none.",
    instead="Expect the dtype of its weights from nn.Embedding; the next Linear casts it.",
    source="https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference",
    notebook="01",
)
def embedding_returns_float32(device):
    tokens, got = torch.arange(4, device=device), {}
    for dtype in (torch.float32, torch.float64, torch.float16):
        with torch.autocast(device, torch.bfloat16):
            got[dtype] = nn.Embedding(81, 32, device=device, dtype=dtype)(tokens).dtype
    yield claim("float32 weights", said=torch.float32, measured=got.pop(torch.float32))
    yield claim("float64 and float16 weights", said=list(got), measured=list(got.values()))


@advice(
    "A2",
    article="encoder",
    claim="Casting the embedding's output to bfloat16 cures the encoder failure.",
    why="In validation on a CPU the fast path leads bfloat16 activations to the encoder's float32 "
        "weights, whatever comes in.",
    instead=INSTEAD,
    source=FAST_PATH,
    notebook="01",
)
def cast_embedding_output(device):
    yield from with_and_without(fix.cast_embedding_output, device)
    yield from with_and_without(fix.cast_embedding_output, device, (low_positions,),
                                ", bfloat16 positions")


@advice(
    "A3",
    article="encoder",
    claim="Creating or converting the embedding's weights in bfloat16 cures it.",
    why="In validation on a CPU the fast path leads bfloat16 activations to the encoder's float32 "
        "weights, whatever the embedding's are.",
    instead=INSTEAD,
    source=FAST_PATH,
    notebook="01",
)
def embedding_weights_bf16(device):
    yield from with_and_without(fix.embedding_weights_bf16, device)
    yield from with_and_without(fix.embedding_weights_bf16, device, (low_positions,),
                                ", bfloat16 positions")


@advice(
    "A4",
    article="encoder",
    claim="Moving the boolean padding mask to the input's device avoids hidden conversions that "
          "cause it.",
    why="A move to a device changes no dtype, and a mask that is already there is not even copied.",
    instead=INSTEAD,
    source=f"{FAST_PATH}; torch.Tensor.to in the documentation",
    notebook="01",
)
def mask_to_device(device):
    yield from with_and_without(fix.mask_to_device, device)
    if device == "cpu":
        yield not_shown("validate, mask left on the CPU", "the input is on the CPU too")
        return

    def leave_mask(run):
        run.batch["mask"] = run.batch["mask"].cpu()

    yield remedy("validate, mask left on the CPU", outcome(device, leave_mask),
                 outcome(device, leave_mask, fix.mask_to_device))


@advice(
    "A5",
    article="encoder",
    claim="Converting all parameters of the encoder to bfloat16 cures it.",
    why="Weights and activations then agree on the fast path, but the float32 weights that "
        "training needs are gone, and on a CPU training needs a bfloat16 input too.",
    instead=INSTEAD,
    source=f"{FAST_PATH}; https://docs.pytorch.org/docs/stable/amp.html, Autocasting",
    notebook="01",
)
def encoder_weights_bf16(device):
    yield from with_and_without(fix.encoder_weights_bf16, device)
    yield from with_and_without(fix.encoder_weights_bf16, device, (cast_encoder_input,),
                                ", bfloat16 input")
    yield remedy("validate, a converted copy", outcome(device), outcome(device, copy_encoder_bf16))


@advice(
    "A6",
    article="encoder",
    claim="Keeping the whole path of the tokens inside the autocast block cures it.",
    why="Look-up and encoder were inside already, and it is inside that the fast path fails.",
    instead=INSTEAD,
    source=FAST_PATH,
    notebook="01",
)
def autocast_everything(device):
    yield from with_and_without(fix.autocast_everything, device)


@advice(
    "A7",
    article="encoder",
    claim="The embedding is what makes the token path fail where the spectrum path works.",
    why="In validation both ways fail, or both run, if both have the mask or both lack it; the "
        "dtype that comes in decides in training alone, and on torch 1.13 to 2.1.",
    instead="Change one factor at a time: give the spectrum the mask, or take it from the tokens.",
    source=f"{FAST_PATH}; torch/nn/functional.py, _canonical_mask",
    notebook="01",
)
def swap_source_and_mask(device):
    for scene, positions, setting in (
        ("validate, both masked", (), {}),
        ("validate, neither masked", (), {"mask": "off"}),
        ("train, both masked", (), {"phase": "train"}),
        ("train, both masked, bfloat16 positions", (low_positions,), {"phase": "train"}),
    ):
        tokens, spectrum = (outcome(device, *positions, source=source, **setting)
                            for source in ("tokens", "spectrum"))
        shown = f"tokens: {tokens.said}; spectrum: {spectrum.said}"
        if tokens.error or spectrum.error:
            yield fact(scene, bool(tokens.error and not spectrum.error), shown)
        else:
            yield Seen(scene, "idle", shown)


@advice(
    "A8",
    article="encoder",
    claim="If the encoder wants float32, casting the embedding's output to float32 cures it.",
    why="The encoder's linear layers make bfloat16 of a float32 input under autocast; without "
        "autocast a float32 encoder does want float32.",
    instead=f"Without autocast, cast to the encoder's dtype; with it, {INSTEAD}",
    source=f"{FAST_PATH}; https://docs.pytorch.org/docs/stable/amp.html, Autocast Op Reference",
    notebook="01",
)
def cast_embedding_output_to_float32(device):
    yield from with_and_without(float32_embedding_output, device)
    yield from with_and_without(float32_embedding_output, device, (low_positions, low_embedding),
                                ", bfloat16 embedding")
    layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, device=device)
    embedding = nn.Embedding(81, 32, device=device, dtype=torch.bfloat16)
    x = embedding(torch.arange(8, device=device).view(2, 4))
    yield remedy("no autocast, bfloat16 embedding", attempt(layer, x), attempt(layer, x.float()))


@advice(
    "B23",
    article="c10half",
    claim="Such a hook only looks: the program behaves as before.",
    why="From torch 2.6 on, of those tried, nn.TransformerEncoderLayer leaves its fast path where "
        "it sees a hook.",
    instead="Ask the exception's own traceback: python -m cases autopsy SCRIPT.",
    source="torch/nn/modules/transformer.py, TransformerEncoderLayer.forward, "
           "why_not_sparsity_fast_path",
    notebook="01",
)
def hooks_only_look(device):
    for scene, setting in (("validate", {}), ("validate, no mask", {"mask": "off"}),
                           ("train", {"phase": "train"})):
        before, after = outcome(device, **setting), outcome(device, fix.debug_hooks, **setting)
        same = before.said == after.said
        yield fact(scene, same, before.said if same else f"{before.said} → {after.said}")
