"""What two articles say of loading, placing and casting whole models, tried."""

import importlib.util
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from cases.lab.advice import advice, attempt, claim, difference, fact, harmless, not_shown, remedy
from cases.lab.case import Missing
from cases.lab.numerics import cost, show

LOADING = "https://huggingface.co/docs/transformers/main_classes/model"


# ------------------------------------------------------------------ where it is


@advice(
    "B7",
    article="c10half",
    claim="next(model.parameters()).device tells where the model is.",
    why="It tells where the first parameter is; a module's parameters may be on several devices, "
        "and it may have none.",
    instead="Ask for all: {p.device for p in model.parameters()}; and give each layer its input "
            "on that layer's own device.",
    source="pytorch/pytorch#7460",
    notebook="02",
)
def first_parameter_tells_the_device(device):
    def told(scene, model):
        said = attempt(lambda: next(model.parameters()).device.type).said.strip(": ")
        where = " and ".join(sorted({t.device.type for t in model.state_dict().values()}))
        return fact(scene, said == where, f"it says {said}; the model is on {where}")

    elsewhere = "meta" if device == "cpu" else "cpu"
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9)).to(device)
    yield told("on one device", model)
    model[2].to(elsewhere)
    yield told("its last layer moved", model)
    yield told("no parameters, one buffer", nn.BatchNorm1d(4, affine=False).to(device))


# ------------------------------------------------------------------ from_pretrained


def small_llama():
    """A LlamaForCausalLM of transformers, in float32, with random weights."""
    if importlib.util.find_spec("transformers") is None:
        raise Missing("transformers is not installed here")
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        vocab_size=32, pad_token_id=0))


def small_t5():
    """Likewise a T5ForConditionalGeneration."""
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2))


@contextmanager
def saved(model, noted=None):
    """A folder with what save_pretrained leaves. noted: a dtype that config.json shall claim."""
    with quiet(), tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if noted:
            file = Path(folder, "config.json")
            config = json.loads(file.read_text())
            config["dtype" if "dtype" in config else "torch_dtype"] = noted
            file.write_text(json.dumps(config))
        yield folder


@contextmanager
def quiet():
    """No bars and no warnings of transformers, meanwhile."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def dtypes(model):
    """The dtypes of all parameters, as text."""
    return " and ".join(sorted({str(p.dtype)[len("torch."):] for p in model.parameters()}))


@advice(
    "B14",
    article="c10half",
    claim="from_pretrained(…, torch_dtype=torch.float16) loads weights in half.",
    why="It does, but for parameters that a model's class keeps in float32, such as T5's wo; "
        "without it, transformers 4 loads float32, and 5 the dtype that was saved.",
    instead="Name the dtype (dtype=; torch_dtype= up to transformers 4.55), then look: "
            "{p.dtype for p in model.parameters()}.",
    source=f"{LOADING}, PreTrainedModel.from_pretrained; huggingface/trl#5457; "
           "transformers/models/t5/modeling_t5.py, _keep_in_fp32_modules",
    notebook="02",
)
def load_in_half(device):
    def loaded(folder, model, **named):
        return attempt(lambda: dtypes(type(model).from_pretrained(folder, **named))).said

    llama, t5 = small_llama(), small_t5()
    with saved(llama) as folder:
        for name in ("torch_dtype", "dtype"):
            yield claim(f"a Llama, {name}=", "float16",
                        loaded(folder, llama, **{name: torch.float16}))
    with saved(t5) as folder:
        yield claim("a T5, torch_dtype=", "float16", loaded(folder, t5, torch_dtype=torch.float16))
    with saved(llama.half()) as folder:
        yield difference("a Llama saved in half, without and with", loaded(folder, llama),
                         loaded(folder, llama, torch_dtype=torch.float16))


@advice(
    "B15",
    article="c10half",
    claim="The dtype in the saved config must agree with the one passed when loading.",
    why="The dtype that is passed wins, and each weight is cast once, from what was stored; the "
        "config's is a note, which older transformers (4.49 here) leave as it was.",
    instead="Pass the dtype you want, whatever the config says; afterwards ask the parameters, "
            "not config.dtype.",
    source=f"{LOADING}, PreTrainedModel.from_pretrained",
    notebook="02",
)
def disagree_with_the_config(device):
    llama, loaded = small_llama(), None
    for noted, passed in (("float16", "float32"), ("bfloat16", "float16"), ("float32", "float16")):
        dtype = getattr(torch, passed)
        with saved(llama, noted) as folder:
            loaded = attempt(lambda folder=folder, dtype=dtype: type(llama).from_pretrained(
                folder, torch_dtype=dtype))
        cast_once = not loaded.error and all(
            torch.equal(stored.to(dtype), weight) and weight.dtype == dtype for stored, weight in
            zip(llama.parameters(), loaded.value.parameters(), strict=True))
        yield fact(f"config {noted}, passed {passed}", not cast_once,
                   f"loads {passed}, what was stored cast once" if cast_once else loaded.said)
    if not loaded.error:
        config = loaded.value.config
        after = str(getattr(config, "dtype", None) or config.torch_dtype)[len("torch."):]
        yield fact("the config afterwards", after != passed, f"says {after}; loaded is {passed}")


# ------------------------------------------------------------------ to(bfloat16)


@advice(
    "C13",
    article="chatglm",
    claim="On an A100 convert model and inputs with .to(bfloat16).",
    why="Only floating inputs may be converted: token ids and labels must stay integers, a boolean "
        "mask becomes numbers that hide nothing, and positions above 256 coincide.",
    instead="Convert the model, and of the inputs only those with is_floating_point(), as "
            "transformers' BatchFeature.to does.",
    source="transformers/feature_extraction_utils.py, BatchFeature.to; "
           "transformers/tokenization_utils_base.py, BatchEncoding.to; "
           "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
    notebook="03",
)
def model_and_inputs_to_bfloat16(device):
    low, ids = torch.bfloat16, torch.arange(4, device=device)

    def tried(scene, model, given, costs=lambda value: ()):
        return remedy(scene, attempt(model, given, costs=costs),
                      attempt(model, given.to(low), costs=costs))

    rows = torch.randn(1, 4, 8, device=device)
    yield tried("features", nn.Linear(8, 4, device=device).to(low), rows)
    yield tried("token ids", nn.Embedding(9, 4, device=device).to(low), ids)
    logits = torch.randn(4, 9, device=device, dtype=low)
    yield tried("labels", lambda labels: nn.functional.cross_entropy(logits, labels), ids)
    attention = nn.MultiheadAttention(8, 1, batch_first=True, device=device).to(low)
    padding = torch.tensor([[False, False, True, True]], device=device)
    yield tried("a boolean mask", lambda mask: attention(*[rows.to(low)] * 3, mask)[1], padding,
                costs=leaks)
    left = len(torch.arange(4096, device=device).to(low).unique())
    yield harmless("positions", left < 4096, f"of 4096 different positions {left} are left")

    def batch(kind):
        import transformers

        with quiet():
            inputs = getattr(transformers, kind)({"pixels": rows, "ids": ids}).to(low)
        return inputs["pixels"].dtype, inputs["ids"].dtype

    for kind in ("BatchFeature", "BatchEncoding"):
        yield claim(f"transformers' {kind}", "bfloat16, int64", attempt(batch, kind).said)
    if device == "cpu" or "A100" not in torch.cuda.get_device_name():
        yield not_shown("on an A100", "there is none here")


def leaks(attention):
    """Attention to the last two of four words, which are masked, as a cost."""
    share = float(attention[..., 2:].sum(-1).max())
    return [cost("attention", f"{show(share)} of the attention is for padding")] if share else ()
