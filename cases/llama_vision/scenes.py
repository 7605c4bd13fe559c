"""Scenes beside the case, for its notebook: other models, the bytes of 7B, the words."""

import torch
from torch import nn

from cases.halftruths.dtypes import dtype_name

# Figures quoted in the article for a 7B model: GB in float32 and in half.
QUOTED = {"float32": 28.7, "float16": 14.2}


def attempt(function, *args):
    """Return what `function(*args)` returns, or the exception that it raised."""
    try:
        return function(*args)
    except Exception as error:
        return error


def sequences(setting, device="cpu"):
    """Give one forward pass of the language model four sequences of embeddings.

    Returns [(sequence, dtype of its embeddings, what the model did), …]: text alone, picture
    alone, both joined, and both joined and then cast to the model's dtype.
    """
    from cases.llama_vision.case import PICTURE, TOKENS
    from cases.llama_vision.model import embed, load_model

    torch.manual_seed(0)
    model = load_model(getattr(torch, setting["dtype"]), setting["attention"]).to(device)
    tokens = torch.tensor([TOKENS], device=device)

    def logits(row):
        return model(inputs_embeds=row).logits

    with torch.no_grad():
        both = embed(model, PICTURE, tokens)
        rows = {
            "text alone": embed(model, None, tokens),
            "picture alone": both[:, : -len(TOKENS)],
            "picture and text": both,
            "both, then cast": both.to(model.dtype),
        }
        return [(name, dtype_name(row.dtype), said(attempt(logits, row)))
                for name, row in rows.items()]


def said(result):
    """Say in one line what `attempt` returned: a tensor or an exception."""
    if isinstance(result, Exception):
        return f"{type(result).__name__}: {result}"
    return f"runs, output {dtype_name(result.dtype)}"


def small_llava():
    """Return today's LlavaForConditionalGeneration, small, random, float32, and its inputs.

    The inputs are a dict: input_ids (1, 8) with four image tokens, pixel_values (1, 3, 28, 28)
    in float32.
    """
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2}
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(LlavaConfig(
        vision_config=CLIPVisionConfig(**sizes, image_size=28, patch_size=14),
        text_config=LlamaConfig(**sizes, vocab_size=128, pad_token_id=0),
        image_token_index=127, image_seq_length=4,
    )).eval()
    ids = torch.tensor([[1, 127, 127, 127, 127, 5, 9, 2]])
    return model, {"input_ids": ids, "pixel_values": torch.randn(1, 3, 28, 28)}


def newer_library():
    """Give float32 pixels to today's LLaVA, whole in half, then with only its language model.

    Returns {"all_half": tensor (1, 8, vocabulary) or exception, "language_half": likewise}.
    The library casts pixel values itself; a language model alone in half fails at its far end.
    """
    model, inputs = small_llava()
    with torch.no_grad():
        model.model.language_model.half()
        language = attempt(lambda: model(**inputs).logits)
        model.half()
        whole = attempt(lambda: model(**inputs).logits)
    return {"all_half": whole, "language_half": language}


def norms_in_float32():
    """Give text alone to a Llama in half whose normalisation weights are kept in float32.

    Returns {"nn.LayerNorm": how many the model has, "RMSNorm": likewise, "error": the exception
    or None}: half times a float32 weight is float32, and the next Linear is in half.
    """
    from cases.llama_vision.model import answer, load_model

    model = load_model(torch.float16, "eager")
    norms = [m for m in model.modules() if "RMSNorm" in type(m).__name__]
    for norm in norms:
        norm.float()
    result = attempt(lambda: answer(model, None, torch.tensor([[1, 17, 42]]), generate=False))
    return {
        "nn.LayerNorm": sum(isinstance(m, nn.LayerNorm) for m in model.modules()),
        "RMSNorm": len(norms),
        "error": result if isinstance(result, Exception) else None,
    }


def llama2_bytes():
    """Count the parameters of Llama-2-7B exactly, from its public sizes, on the meta device.

    Returns {"parameters": count, "float32": bytes, "float16": bytes}. No weight is held.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).float()

    def size():
        return sum(p.numel() * p.element_size() for p in model.parameters())

    counted = {"parameters": sum(p.numel() for p in model.parameters()), "float32": size()}
    model.half()
    return {**counted, "float16": size()}


def words(device="cpu"):
    """Give half to four products with float32 weights; return {name: message}.

    On the CPU "mat1 and mat2" is a Linear with bias. "m1 and m2" is any other product of two
    matrices, and also a Linear with bias whose (batch, length, width) input is transposed: its
    product and its bias are then two steps.
    """
    half = torch.zeros(2, 4, dtype=torch.float16, device=device)
    transposed = half.reshape(1, 4, 2).mT
    products = {
        "matmul": lambda: half @ torch.zeros(4, 4, device=device),
        "Linear without bias": lambda: nn.Linear(4, 4, bias=False).to(device)(half),
        "Linear with bias": lambda: nn.Linear(4, 4).to(device)(half),
        "the same, input transposed": lambda: nn.Linear(4, 4).to(device)(transposed),
    }
    return {name: str(attempt(product)).splitlines()[0] for name, product in products.items()}
