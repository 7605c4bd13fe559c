"""What the article on the vision failure says, tried."""

import copy

import torch
from torch import nn

from cases.halftruths.exceptions.answer import autopsy
from cases.lab.advice import advice, attempt, fact, not_shown, remedy
from cases.lab.numerics import allowed_error, cost, relative_error, show
from cases.lab.run import call, prepare, run
from cases.llama_vision.case import CASE
from cases.llama_vision.scenes import small_llava

AMP = "https://docs.pytorch.org/docs/stable/amp.html"
LOW = ("float16", "bfloat16")


def with_fixes(scene, device, *fixes, **setting):
    """The program without and with fixes, as a Seen."""
    return remedy(scene, run(CASE, setting, (), device), run(CASE, setting, fixes, device))


def on(device, inputs):
    """A dict of tensors, on a device."""
    return {name: tensor.to(device) for name, tensor in inputs.items()}


# ------------------------------------------------------------------ where it fails


@advice(
    "B3",
    article="c10half",
    claim="A half model fed by float32 image preprocessing fails in self-attention.",
    why="Float32 pixels fail at the first product with a weight in half: in self-attention where "
        "only the language model is in half, in the first convolution where all of it is, and "
        "nowhere where the model casts them itself.",
    instead="Let the traceback say which module failed: if vision_tower, cast the pixels; if "
            "self_attn, cast the image features where they join the text.",
    source="oobabooga/textgen#1520; haotian-liu/LLaVA#829; "
           "transformers/models/clip/modeling_clip.py, CLIPVisionEmbeddings.forward",
    notebook="02",
)
def where_float32_pixels_fail(device):
    def failed_in(scene, where):
        module = (where or {}).get("module") or "none"
        return fact(scene, "self_attn" in module, f"module that fails: {module}")

    for dtype in LOW:
        for phase in ("generate", "forward"):
            outcome = run(CASE, {"dtype": dtype, "phase": phase}, (), device)
            yield failed_in(f"{phase}, language model in {dtype}", outcome.where)
    outcome = run(CASE, {"dtype": "bfloat16"}, ("vision_tower_half",), device)
    yield failed_in("generate, all in bfloat16", outcome.where)

    model, inputs = small_llava()
    model.to(device, torch.bfloat16)
    where = None
    try:
        model(**on(device, inputs))  # with pixels in float32
    except Exception as error:
        where = autopsy(error).where
    yield failed_in("transformers' LLaVA, all in bfloat16", where)


# ------------------------------------------------------------------ remedies


@advice(
    "B8",
    article="c10half",
    claim="torch.cuda.empty_cache() and running again cures mismatches born of unexpected device "
          "moves.",
    why="It hands unused memory back to the GPU's driver; it moves no tensor and casts none.",
    instead="Find the tensor that is on the wrong device or of the wrong dtype, and move or cast "
            "it; empty_cache is about memory only.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.empty_cache.html",
    notebook="02",
)
def empty_cache_and_run_again(device):
    yield with_fixes("the vision failure", device, "empty_cache")

    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(device)
    model[1].to("meta" if device == "cpu" else "cpu")  # the unexpected move
    row = torch.ones(1, 4, device=device)

    def again():
        torch.cuda.empty_cache()
        return model(row)

    yield remedy("a layer on another device", attempt(model, row), attempt(again))
    if device == "cpu":
        yield not_shown("on a GPU", "there is none here, so there is no cache to empty")


@advice(
    "B11",
    article="c10half",
    claim="Wrapping generate() in autocast with an explicit float16 dtype cures the vision "
          "failure.",
    why="Autocast casts both operands of a product to its dtype; but the CPU's takes float16 from "
        "torch 2.2 on, and its torch.cat refuses bfloat16 beside float16.",
    instead="Cast the image features to model.dtype where they join the text; if it must be "
            "autocast, name model.dtype.",
    source=f"{AMP}, torch.autocast; aten/src/ATen/autocast_mode.h, prioritize",
    notebook="02",
)
def autocast_around_generate(device):
    def float16_named(program):
        step = program.step

        def wrapped(model, batch):
            with torch.autocast(device, dtype=torch.float16):
                return step(model, batch)

        program.step = wrapped

    for dtype in LOW:
        yield with_fixes(f"model in {dtype}", device, float16_named, dtype=dtype)


@advice(
    "B17",
    article="c10half",
    claim="A defensive forward (cast any input to half, run the layer with autocast disabled) "
          "cures it.",
    why="Not every input may be cast: token ids must stay integers, a boolean mask in low "
        "precision is added to the scores and hides nothing, and half ends at 65504.",
    instead="Cast floating inputs only (if x.is_floating_point()), at the one seam where two "
            "dtypes meet.",
    source=f"{AMP}, torch.autocast; https://docs.pytorch.org/docs/stable/generated/"
           "torch.nn.MultiheadAttention.html, key_padding_mask",
    notebook="02",
)
def cast_any_input(device):
    for dtype in LOW:
        yield with_fixes(f"the vision failure, {dtype}", device, "safe_forward", dtype=dtype)

    def defensive(layer, *inputs):
        dtype = next(layer.parameters()).dtype
        with torch.autocast(device, enabled=False):
            return layer(*[tensor.to(dtype) for tensor in inputs])

    def tried(scene, layer, *inputs, costs=lambda value: ()):
        return remedy(scene, attempt(layer, *inputs, costs=costs),
                      attempt(defensive, layer, *inputs, costs=costs))

    embedding = nn.Embedding(9, 4, device=device).half()
    yield tried("token ids", embedding, torch.arange(4, device=device))

    linear, large = nn.Linear(2, 1, device=device).half(), torch.tensor([[7e4, 1]], device=device)
    yield tried("an input of 70000", linear, large, costs=infinities)

    attention = Attention(8, 1, batch_first=True, device=device).bfloat16()  # on any CPU
    words = torch.randn(1, 4, 8, device=device).bfloat16()
    padding = torch.tensor([[False, False, True, True]], device=device)
    yield tried("a boolean mask", attention, words, padding, costs=leaks)


class Attention(nn.MultiheadAttention):
    """Self-attention that returns how much of it each word gets from each."""

    def forward(self, words, padding):
        return super().forward(words, words, words, padding)[1]


def infinities(output):
    return () if output.isfinite().all() else [cost("not_finite", "the output is infinite")]


def leaks(attention):
    """Attention to the last two of four words, which are masked, as a cost."""
    share = float(attention[..., 2:].sum(-1).max())
    return [cost("attention", f"{show(share)} of the attention is for padding")] if share else ()


# ------------------------------------------------------------------ which parts in half


@advice(
    "B25",
    article="c10half",
    claim="Going to half one module at a time, with a test after each, finds the sensitive module.",
    why="A half Linear or convolution between float32 modules raises, sensitive or not; with casts "
        "at the doors the test is fair, but what fails only together is blamed on the last.",
    instead="Cast at each module's doors, try the modules in both orders, and where the answers "
            "differ look between the modules.",
    source="https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html, Extremal values; "
           "torch/nn/modules/module.py, register_forward_pre_hook",
    notebook="02",
)
def one_module_at_a_time(device):
    # In bfloat16, which any CPU has: half products came to the CPU with torch 2.2.
    setting = CASE.setting({"phase": "forward", "dtype": "bfloat16"})
    whole = run(CASE, setting, ("image_to_model_dtype", "vision_tower_half"), device)
    fine = whole.status == "ran" and not {"error", "not_finite"} & kinds(whole)
    for scene in ("a Llama as it is", "a Llama with casts at the doors"):
        program = prepare(CASE, setting, device, reference=True)
        if "casts" in scene:
            cast_at_the_doors(program.model)
        blamed = put_back(program.model, lambda p=program: call(p), torch.bfloat16)
        yield fact(scene, fine == (not blamed),
                   f"{len(parts(program.model))} tests blame {len(blamed)} modules; all in "
                   f"bfloat16: {'fine' if fine else whole.said}")

    one = torch.ones(4, device=device)
    chain = nn.Sequential(Gain(3), Gain(300), Gain(300), Gain(1e-4))
    both = Sum({"skip": Gain(4e4), "branch": Gain(4e4)})
    for scene, model in (("a value half cannot hold", chain), ("a sum half cannot hold", both)):
        found = []
        for order in (1, -1):
            twin = copy.deepcopy(model).to(device)
            found.append(put_back(twin, lambda m=twin: m(one), torch.float16, order))
        first, last = (" and ".join(names) or "none" for names in found)
        yield fact(scene, set(found[0]) == set(found[1]),
                   f"first to last blames {first}; last to first {last}")


def kinds(outcome):
    return {item["kind"] for item in outcome.costs}


def parts(model):
    """The modules that hold parameters themselves, with their names."""
    return [(name, module) for name, module in model.named_modules()
            if list(module.parameters(recurse=False))]


def put_back(model, answer, dtype, order=1):
    """Convert one part after the other; return the names of those that fail the test.

    The test: `answer()` still is what it was in float32, as near as `dtype` can be. What fails it
    goes back to float32.
    """
    def near(reference):
        error = relative_error(answer(), reference)
        return error is not None and error <= allowed_error(dtype)

    reference, found = answer(), []
    for name, module in parts(model)[::order]:
        weights = copy.deepcopy(module.state_dict())
        module.to(dtype)
        if not attempt(near, reference).value:
            found.append(name)
            module.float().load_state_dict(weights)
    return found


def cast_at_the_doors(model):
    """Let each part cast what comes in to its own dtype, and what goes out to float32."""
    def door(module, inputs):
        dtype = module.weight.dtype
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)

    for _, module in parts(model):
        module.register_forward_pre_hook(door)
        module.register_forward_hook(lambda module, inputs, output: output.float())


class Gain(nn.Module):
    """A layer scale that casts what comes in to its own dtype, so that nothing raises."""

    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), float(value)))

    def forward(self, x):
        return x.to(self.weight.dtype) * self.weight


class Sum(nn.ModuleDict):
    """What a residual connection does."""

    def forward(self, x):
        return self["skip"](x) + self["branch"](x)


@advice(
    "B26",
    article="c10half",
    claim="A 7B model takes 28.7 GB in float32 and 14.2 GB in half.",
    why="Llama-2-7B has 6,738,415,616 parameters: 26.95 GB in float32 and 13.48 GB in half; and no "
        "number of parameters takes both of the article's figures.",
    instead="Count it: sum(p.numel() * p.element_size() for p in model.parameters()), 4 bytes a "
            "parameter in float32, 2 in half; activations and caches come on top.",
    source="https://huggingface.co/docs/transformers/model_doc/llama, LlamaConfig; "
           "https://huggingface.co/docs/transformers/model_doc/llava, LlavaConfig",
    notebook="02",
)
def bytes_of_7b(device):
    for model, shapes in (("Llama-2-7B", LLAMA_2_7B), ("LLaVA-1.5-7B", LLAMA_2_7B + CLIP_L_336)):
        for unit, size in (("GB", 1e9), ("GiB", 2**30)):
            whole, half = (weights(shapes, dtype) / size for dtype in (torch.float32, torch.half))
            right = f"{whole:.1f} and {half:.1f}" == "28.7 and 14.2"
            yield fact(f"{model}, {unit}", right, f"{whole:.2f} and {half:.2f} {unit}")
    fewest, most = max(28.65 / 4, 14.15 / 2), min(28.75 / 4, 14.25 / 2)
    yield fact("one model for both", fewest <= most, f"billions of parameters: {28.7 / 4:.3f} for "
               f"the first figure, {14.2 / 2:.3f} for the second")


def weights(shapes, dtype):
    """Bytes of weights, on the meta device: none is held."""
    tensors = ((torch.empty(shape, dtype=dtype, device="meta"), many) for many, shape in shapes)
    return sum(many * one.numel() * one.element_size() for one, many in tensors)


# How many weights of which shape, from the public configurations.
LLAMA_2_7B = [
    (2, (32000, 4096)),  # embed_tokens, lm_head
    (32 * 4, (4096, 4096)),  # q, k, v, o
    (32 * 3, (11008, 4096)),  # gate, up, down
    (32 * 2 + 1, (4096,)),  # norms
]
CLIP_L_336 = [  # the vision tower of LLaVA-1.5, and its projector
    (1, (1024, 3, 14, 14)), (1, (577, 1024)), (1, (1024,)),  # patches, positions, class
    (24 * 4, (1024, 1024)), (24 * 4, (1024,)),  # q, k, v, o
    (24 * 2, (4096, 1024)), (24, (4096,)), (24, (1024,)),  # fc1, fc2
    (24 * 4 + 4, (1024,)),  # norms
    (1, (4096, 1024)), (1, (4096, 4096)), (2, (4096,)),  # projector
]


@advice(
    "B28",
    article="c10half",
    claim="A template that turns the model to half and keeps every nn.LayerNorm in float32 works "
          "for vision-language models.",
    why="It casts no pixels, a Llama's norms are no nn.LayerNorm, and on the way through half the "
        "weights it keeps have lost their bits.",
    instead="Load all of the model in one low dtype, and cast the pixels to it.",
    source="pytorch/pytorch#135969; NVIDIA/apex#1635; aten/src/ATen/native/cpu/mixed_data_type.h; "
           "transformers/models/llama/modeling_llama.py, LlamaRMSNorm",
    notebook="02",
)
def half_with_layernorm_in_float32(device):
    yield with_fixes("the vision failure", device, "keep_layernorm_float32")
    yield with_fixes("the vision failure, pixels cast", device, "image_to_model_dtype",
                     "keep_layernorm_float32")

    norm = nn.LayerNorm(8)
    nn.init.normal_(norm.weight)
    kept = torch.equal(norm.weight, template(norm, torch.float16).weight)
    yield fact("a LayerNorm's own weights", kept, "kept" if kept else "rounded to half's")

    llava, inputs = small_llava()
    norms = [module.weight.dtype for module in template(llava, torch.float16).modules()
             if "Norm" in type(module).__name__]
    kept = norms.count(torch.float32)
    yield fact("all norms of a LLaVA", kept == len(norms), f"{kept} of {len(norms)} in float32")

    inputs = on(device, inputs)
    for name in LOW:
        yield works(f"a LLaVA, {name}", llava.to(device), getattr(torch, name),
                    lambda model: model(**inputs).logits)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().to(device)
    rows = torch.randn(1, 4, 8, device=device)
    yield works("an nn.TransformerEncoder, bfloat16", encoder, torch.bfloat16,
                lambda model: model(rows.to(model.layers[0].linear1.weight.dtype)))
    if device == "cpu":
        yield not_shown("on a GPU", "there is none here; its nn.LayerNorm has a kernel of its own")


def template(model, dtype):
    """The article's: a copy of the model in low precision, but each nn.LayerNorm in float32."""
    model = copy.deepcopy(model).to(dtype)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    return model


def works(scene, model, dtype, answer):
    """Whether the model runs by the template, as near to float32 as its dtype can be."""
    def error(model):
        with torch.no_grad():
            return relative_error(answer(model), reference)

    with torch.no_grad():
        reference = answer(model)
    by_template = attempt(error, template(model, dtype))
    plain = attempt(error, copy.deepcopy(model).to(dtype))
    said = [f"relative error {show(tried.value)}" if not tried.error else tried.said
            for tried in (by_template, plain)]
    near = by_template.value is not None and by_template.value <= allowed_error(dtype)
    return fact(scene, near, f"{said[0]}; without the template {said[1]}")
