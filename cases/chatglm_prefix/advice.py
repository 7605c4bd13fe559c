"""What the article on ChatGLM says of its half model, tried."""

import copy
import time

import torch
from torch import nn

from cases.chatglm_prefix import fixes
from cases.chatglm_prefix.case import CASE, VOCAB
from cases.chatglm_prefix.model import ChatGLM, set_precision, validate
from cases.lab.advice import advice, attempt, claim, difference, fact, harmless, not_shown, remedy
from cases.lab.case import Run
from cases.lab.numerics import show
from cases.lab.run import run

PHASES = ("train", "validate", "generate")
AMP = "https://docs.pytorch.org/docs/stable/amp.html"
MODULE = "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"


def with_fix(fix, device):
    """The report's program in each phase, without and with a fix; in phase train it learns."""
    for phase in PHASES:
        setting = {"phase": phase}
        yield remedy(phase, run(CASE, setting, (), device), run(CASE, setting, (fix,), device))


def percent_changed(new, old):
    """How many of the numbers are others now, in percent."""
    return round(100 * float((new.double() != old.double()).double().mean()))


class Gain(nn.Module):
    """A learned factor on each feature."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight


@advice(
    "C1",
    article="chatglm",
    claim="A half model given the default float32 input raises.",
    why="Layers with a product, a convolution or a fused kernel demand one dtype; arithmetic "
        "element by element promotes to float32, and autocast casts for the layers on its list.",
    instead="Cast the input where it comes in: x.to(next(model.parameters()).dtype); "
            "that nothing raised does not say that half was used.",
    source="https://docs.pytorch.org/docs/stable/tensor_attributes.html, torch.dtype, promotion; "
           "luosiallen/latent-consistency-model#46",
    notebook="02",
)
def feed_float32_to_a_half_layer(device):
    layers = {
        "Linear": nn.Linear(16, 16),
        "Conv1d": nn.Conv1d(4, 4, 3),
        "LSTM": nn.LSTM(16, 16),
        "MultiheadAttention": nn.MultiheadAttention(16, 2),
        "LayerNorm": nn.LayerNorm(16),
        "gain": Gain(16),
    }
    for name, layer in layers.items():
        x = torch.randn(4, 4, 16, device=device)
        inputs = (x, x, x) if name == "MultiheadAttention" else (x,)
        tried = attempt(layer.half().to(device), *inputs)
        yield fact(name, tried.error is not None, tried.said)
    with torch.autocast(device, torch.bfloat16):
        tried = attempt(layers["Linear"], x)
    yield fact("Linear under autocast", tried.error is not None, tried.said)


def forward_time(fix, device):
    """Seconds of the fastest of some forward passes of a wider ChatGLM with a fix, or its error."""
    width, rows = (128, 2) if device == "cpu" else (2048, 32)  # enough that products take the time
    model = set_precision(ChatGLM(width=width), torch.float16, "prefix", trained="prefix")
    program = Run({"phase": "validate"}, device, torch.float16, model.to(device), {}, validate)
    tokens = torch.randint(VOCAB, (rows, 64), device=device)
    fix(program)

    def timed():
        start = time.perf_counter()
        program.step(program.model, tokens).sum().item()  # waits for a GPU
        return time.perf_counter() - start

    return attempt(lambda: min(timed() for _ in range(5)))


@advice(
    "C5",
    article="chatglm",
    claim="Using float32 everywhere is the slowest and most stable cure.",
    why="It rounds least and learns, with twice the bytes; whether it is slow is the processor's "
        "affair: one without units for half multiplies float32 many times faster.",
    instead="On a CPU run float32, or measure first; on a GPU cast at the seam, "
            "past.to(base.dtype), and keep what is trained in float32.",
    source="pytorch/pytorch#146508; aten/src/ATen/native/CPUBlas.cpp, gemm",
    notebook="03",
)
def convert_everything_to_float32(device):
    others = [fix.name for fix in CASE.fixes if fix.origin == "article"]
    others.remove("whole_model_float32")
    for phase in PHASES:
        setting = {"phase": phase}
        ours = run(CASE, setting, ("whole_model_float32",), device)
        ran = [one for name in others
               if (one := run(CASE, setting, (name,), device, training=False)).status == "ran"]
        learns = not any(cost["kind"] == "no_learning" for cost in ours.costs)
        stable = ours.relative_error is not None and learns and all(
            one.relative_error is None or ours.relative_error <= one.relative_error for one in ran)
        theirs = ", ".join(f"{one.fixes[0]} {show(one.relative_error)}" for one in ran)
        shown = f"{ours.said}; the others: {theirs or 'none runs'}"
        yield fact(f"most stable, {phase}", stable, shown)
    full = forward_time(fixes.whole_model_float32, device)
    for rival in (fixes.autocast_float16, fixes.cast_prefix_output):
        scene, half = f"slower than {rival.__name__}", forward_time(rival, device)
        if half.error:
            yield not_shown(scene, f"the other does not run here: {half.said}")
        else:
            shown = f"float32 takes {full.value / half.value:.2g} times its time"
            yield fact(scene, full.value > half.value, shown, processor=True)


@advice(
    "C6",
    article="chatglm",
    claim="Wrapping the forward in autocast(dtype=float16) is the cure for production.",
    why="Autocast casts both operands of each product on its list, in every phase; the CPU knows "
        "it for float16 since torch 2.2 only, and what is not on the list still meets two dtypes.",
    instead="Cast at the seam, past.to(base.dtype), where you can change the code; if you train "
            "under float16 autocast, scale the loss; on an older CPU torch use bfloat16.",
    source=f"{AMP}, CPU Op-Specific Behavior; torch/amp/autocast_mode.py, autocast.__init__",
    notebook="03",
)
def wrap_the_forward_in_autocast(device):
    yield from with_fix("autocast_float16", device)
    for part in ("norm", "lm_head", "input"):
        setting = {"phase": "validate", "float32_part": part}
        yield remedy(f"validate, float32 {part}", run(CASE, setting, (), device),
                     run(CASE, setting, ("autocast_float16",), device))


def halved_by_loop(model):
    """The article's loop."""
    for _, parameter in model.named_parameters():
        parameter.data = parameter.data.half()
    return model


def scaled_step(model):
    """One training step under a GradScaler, all in the model's own dtype."""
    scaler = torch.amp.GradScaler(model.weight.device.type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(model(torch.ones_like(model.weight)).sum()).backward()
    scaler.step(optimizer)
    return model.weight


@advice(
    "C7",
    article="chatglm",
    claim="Looping over named_parameters and halving each one covers the model, "
          "embedding included.",
    why="Buffers are no parameters: the loop leaves rotary tables in float32; and it halves the "
        "weights that are being trained, in which AdamW's eps of 1e-8 is zero.",
    instead="Convert what is frozen with module.half(), buffers included, and keep what is "
            "trained in float32.",
    source=f"{MODULE}, half and named_buffers; torch/amp/grad_scaler.py, _unscale_grads_; "
           "zai-org/ChatGLM-6B#1000",
    notebook="03",
)
def halve_named_parameters(device):
    torch.manual_seed(0)
    whole, looped = ChatGLM().to(device).half(), ChatGLM().to(device)
    looped.lm_head.weight = looped.embedding.weight
    halved_by_loop(looped)
    yield claim("parameters", said=[torch.float16],
                measured=sorted({p.dtype for p in looped.parameters()}, key=str))
    yield fact("tied weights", looped.lm_head.weight is looped.embedding.weight
               and looped.lm_head.weight.dtype is torch.float16,
               f"still one tensor: {looped.lm_head.weight is looped.embedding.weight}")
    yield claim("buffers", said=[torch.float16],
                measured=sorted({b.dtype for b in looped.buffers()}, key=str))
    tokens = torch.arange(20, device=device).view(4, 5)
    by_half, by_loop = (attempt(validate, model, tokens) for model in (whole, looped))
    if by_half.error:
        yield not_shown("forward, float32 tables", f"model.half() raises too: {by_half.said}")
    else:
        yield fact("forward, float32 tables", by_loop.error is None, by_loop.said)
    yield from with_fix("parameters_half", device)
    if hasattr(torch.amp, "GradScaler"):
        whole, looped = nn.Linear(4, 4).to(device), halved_by_loop(nn.Linear(4, 4).to(device))
        yield remedy("step by a GradScaler", *(attempt(scaled_step, m) for m in (whole, looped)))
    else:
        yield not_shown("step by a GradScaler", "torch.amp.GradScaler comes with torch 2.3")


@advice(
    "C8",
    article="chatglm",
    claim="With gradient accumulation, set param.grad = param.grad.half() after each backward.",
    why="A gradient has its parameter's dtype already: for half weights the line changes nothing, "
        "and for float32 weights a half one is refused, or with grad_dtype=None by AdamW.",
    instead="Leave gradients alone; accumulate into float32 weights, and let autocast run the "
            "products in half.",
    source="torch/csrc/autograd/python_variable.cpp, THPVariable_set_grad; "
           "pytorch/pytorch#162815; "
           "https://docs.pytorch.org/docs/stable/notes/amp_examples.html, Gradient accumulation",
    notebook="03",
)
def halve_the_gradients(device):
    def accumulate(dtype, halve, autocast=False, free=False):
        weight = nn.Parameter(torch.full((1,), 0.1, device=device).to(dtype))
        if free:  # what newer torches' message points to; to older ones any attribute
            weight.grad_dtype = None
        for _ in range(2):
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                loss = (weight * 3).sum()
            loss.backward()
            if halve:
                weight.grad = weight.grad.half()
        if free:
            torch.optim.AdamW([weight]).step()
        return [weight.grad.dtype, *weight.grad.tolist()]

    for dtype in (torch.float32, torch.bfloat16):
        scene = f"{str(dtype)[6:]} weights"
        yield remedy(scene, attempt(accumulate, dtype, False), attempt(accumulate, dtype, True))
    yield remedy("float32 weights, autocast", attempt(accumulate, torch.float32, False, True),
                 attempt(accumulate, torch.float32, True, True))
    yield remedy("float32 weights, grad_dtype=None, AdamW",
                 attempt(accumulate, torch.float32, False, False, True),
                 attempt(accumulate, torch.float32, True, False, True))
    yield difference("half weights", accumulate(torch.float16, False),
                     accumulate(torch.float16, True))


def halved_state(model):
    """The article's dictionary."""
    return {name: tensor.half() for name, tensor in model.state_dict().items()}


@advice(
    "C9",
    article="chatglm",
    claim="Halving a state dict before load_state_dict avoids dtype conflicts.",
    why="load_state_dict copies into the tensors that are there, whose dtype stays; only "
        "assign=True, since torch 2.1, puts the tensors of the dict in their place.",
    instead="Convert the model, model.half(), before or after loading; or load with assign=True "
            "and make the optimizer afterwards.",
    source=f"{MODULE}, load_state_dict; pytorch/pytorch#102212",
    notebook="03",
)
def halve_the_state_dict(device):
    yield from with_fix("checkpoint_half", device)

    def loaded(halve, dtype=torch.float32, **options):
        torch.manual_seed(0)
        trained, model = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device, dtype)
        state = halved_state(trained) if halve else trained.state_dict()
        model.load_state_dict(state, **options)
        return model

    x = torch.randn(4, 8, device=device)
    half_input = [attempt(lambda h=halve: loaded(h)(x.half())) for halve in (False, True)]
    yield remedy("float32 model, half input", *half_input)
    before, after = loaded(False), loaded(True)
    share = percent_changed(after.weight, before.weight)
    yield harmless("float32 model, its weights", share > 0,
                   f"still {str(after.weight.dtype)[6:]}, {share}% of the weights rounded")
    one, other = (loaded(halve, torch.float16).weight for halve in (False, True))
    yield difference("half model", one.tolist(), other.tolist(),
                     f"{str(other.dtype)[6:]} either way, "
                     f"{percent_changed(other, one)}% of the weights differ")
    assigned = attempt(lambda: loaded(True, assign=True)(x.half()))
    yield remedy("float32 model, half input, assign=True", half_input[0], assigned)


def two_steps(device, there_and_back):
    """Two steps of AdamW on float32 weights; between them there and back, if so asked."""
    layer = nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(layer.parameters())
    for step in range(2):
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)
        optimizer.step()
        if step == 0 and there_and_back:
            layer.float()
            layer.half()
    return layer.weight


@advice(
    "C10",
    article="chatglm",
    claim="Validate with model.float() and go back with model.half() to restore training "
          "precision.",
    why="model.half() does not restore, it rounds: what was float32 before, as the weights in "
        "training should be, is half afterwards, while the optimizer's state is still float32.",
    instead="Leave the model as it is and validate under autocast, or validate a float32 copy: "
            "copy.deepcopy(model).float().",
    source=f"{MODULE}, half and float; aten/src/ATen/native/Lerp.cpp",
    notebook="03",
)
def validate_in_float_and_go_back(device):
    for scene, dtype, part in (("half weights", torch.float16, None),
                               ("float32 weights", torch.float32, None),
                               ("half base, float32 prefix", torch.float16, "prefix")):
        torch.manual_seed(0)
        model = set_precision(ChatGLM(), dtype, float32_part=part, trained="prefix").to(device)
        before = copy.deepcopy(model.prefix.embedding.weight)
        validate(model.float(), torch.arange(20, device=device).view(4, 5))
        after = model.half().prefix.embedding.weight
        share = percent_changed(after, before)
        yield harmless(scene, share > 0 or after.dtype is not before.dtype,
                       f"the prefix is {str(after.dtype)[6:]}, was {str(before.dtype)[6:]}; "
                       f"{share}% of its weights changed")
    yield remedy("float32 weights, AdamW's next step", attempt(two_steps, device, False),
                 attempt(two_steps, device, True))
