"""What the articles say of devices: where a tensor lives, and how fast half is there; tried."""

import functools
import time

import torch
from torch import nn
from torch.nn import functional as F

from cases.lab.advice import advice, attempt, claim, fact, not_shown

# What counts as a claimed gain, on a watch: the article's 342 ms to 189 ms are a ratio of 1.8, and
# half the bytes are a ratio of 2 at most, of which a busy machine may read 1.6. More is no less.
NEARLY_TWICE, TWICE = 1.7, 1.5


def other_than_cpu(device):
    """A device to move to: the GPU, or meta, which follows the same rules and has no memory."""
    return "meta" if device == "cpu" else device


@functools.cache
def extension():
    """Two ops of our own, as a C++ extension would register them. Kept, or the ops would go."""
    library = torch.library.Library("half_truths_devices", "DEF")
    library.define("for_the_cpu(Tensor x) -> Tensor")
    library.impl("for_the_cpu", lambda x: x + 1, "CPU")
    library.define("allocates(Tensor x) -> Tensor")
    library.impl("allocates", lambda x: torch.zeros(x.shape), "CompositeImplicitAutograd")
    return library, torch.ops.half_truths_devices


@advice(
    "B5",
    article="c10half",
    claim="Some PyTorch operations, custom C extensions above all, silently run on the CPU "
          "unless told the device.",
    why="An op runs where its tensors are, or raises; what has no tensor to go by, torch.zeros or "
        "an allocation inside an extension, is made on the default device, the CPU.",
    instead="Make new tensors by those at hand: x.new_zeros(…), torch.zeros_like(x), "
            "or with device=x.device.",
    source="https://docs.pytorch.org/docs/stable/generated/torch.set_default_device.html; "
           "https://docs.pytorch.org/docs/stable/library.html",
    notebook="05",
)
def see_where_results_live(device):
    x = torch.ones(4, 4, device=other_than_cpu(device))
    ops = (torch.mm, torch.add, torch.where, torch.cat, torch.softmax, torch.sort, torch.cumsum)
    given = ((x, x), (x, x), (x > 0, x, x), ([x, x],), (x, -1), (x,), (x, 0))
    results = [op(*inputs) for op, inputs in zip(ops, given, strict=True)]
    _, ours = extension()
    scenes = {
        "ops on a tensor": lambda: results,
        "a 0-dim CPU tensor added": lambda: x + torch.tensor(1.0),
        "zeros_like, new_zeros": lambda: [torch.zeros_like(x), x.new_zeros(4)],
        "zeros, arange, tensor, nn.Linear": lambda: [
            torch.zeros(4), torch.arange(4), torch.tensor([1.0]), nn.Linear(4, 4).weight],
        "custom op for the CPU": lambda: ours.for_the_cpu(x),
        "custom op that allocates": lambda: ours.allocates(x),
    }
    for scene, call in scenes.items():
        tried = attempt(lambda call=call: sorted(places(call())))
        yield fact(scene, tried.value == ["cpu"],
                   tried.said if tried.error else f"on {', '.join(tried.value)}")


def places(results):
    """The devices of tensors, of which some may be in tuples."""
    if isinstance(results, torch.Tensor):
        return {results.device.type}
    return set().union(*map(places, results))


@advice(
    "B6",
    article="c10half",
    claim=".to(device) keeps the dtype; .to(device=…, dtype=…) is needed.",
    why="Each argument of to() changes what it names; a module's to() casts its floating "
        "parameters and buffers only.",
    instead="Name both, x.to(device=…, dtype=…), or take both from a tensor: x.to(weight).",
    source="https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html; "
           "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html, to",
    notebook="05",
)
def move_with_and_without_a_dtype(device):
    there = other_than_cpu(device)
    x, model = torch.ones(4), nn.BatchNorm1d(4)

    def seen(tensor):
        return [tensor.device.type, tensor.dtype]

    yield claim("tensor.to(device)", [there, torch.float32], seen(x.to(there)))
    yield claim("tensor.to(device=…, dtype=…)", [there, torch.float16],
                seen(x.to(device=there, dtype=torch.float16)))
    yield claim("module.to(device)", [there, torch.float32], seen(model.to(there).weight))
    model.to(device=there, dtype=torch.float16)
    yield claim("module.to(device=…, dtype=…)", [there, torch.float16], seen(model.weight))
    yield claim("its integer buffer", [there, torch.int64], seen(model.num_batches_tracked))


def seconds(call, tensors):
    start = time.perf_counter()
    call(*tensors)
    if tensors[0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


@torch.no_grad()
def speedup(call, *tensors):
    """Fastest time of a call in float32 over the fastest in half; tried in turn."""
    sides = tensors, [tensor.half() for tensor in tensors]
    times = [[seconds(call, side) for side in sides] for _ in range(15)]
    full, half = map(min, zip(*times, strict=True))
    return full / half


def faster(scene, least, call, *tensors):
    """A scene: is the call at least so many times as fast in half?"""
    tried = attempt(speedup, call, *tensors)
    if tried.error:
        return fact(scene, False, tried.said)
    return fact(scene, tried.value >= least, f"half is {tried.value:.2g} times as fast",
                processor=True)


@advice(
    "B27",
    article="c10half",
    claim="Half inference is nearly twice as fast (342 to 189 ms).",
    why="Half moves half the bytes, and GPUs have units for it; a CPU without such units converts "
        "each number, and multiplies matrices many times slower than in float32.",
    instead="Measure on the device you run on, at your sizes; on a CPU load in float32.",
    source="pytorch/pytorch#146508, #137918; aten/src/ATen/native/CPUBlas.cpp, gemm",
    notebook="04",
)
def time_inference_in_half(device):
    def layers(x, up, down):
        return F.linear(F.gelu(F.linear(x, up)), down)

    # One token is bound by memory, so its weights are larger than the caches. A prompt is bound
    # by products; on a GPU enough of them to take longer than their launch.
    wide, narrow, prompt = (4096, 512, 32) if device == "cpu" else (8192, 8192, 2048)
    for scene, tokens, width in (("one token", 1, wide), ("a prompt", prompt, narrow)):
        weights = torch.randn(2, width, width, device=device) / width**0.5
        x = torch.randn(tokens, width, device=device)
        yield faster(scene, NEARLY_TWICE, layers, x, *weights)


@advice(
    "C21",
    article="chatglm",
    claim="Half gives 2 to 8 times the throughput if all tensors share the dtype.",
    why="Half speeds up what is bound by memory (on the CPU since torch 2.1), and products where "
        "there are units for them; a CPU without those loses by products, and little gains little.",
    instead="Measure at your sizes; on a GPU make products large, on a CPU keep them in float32 "
            "(bfloat16 has the same trouble where the processor lacks units for it).",
    source="pytorch/pytorch#146508; https://pytorch.org/blog/"
           "what-every-user-should-know-about-mixed-precision-training-in-pytorch/",
    notebook="04",
)
def time_one_op_in_half(device):
    small, large, many = (16, 128, 2**20) if device == "cpu" else (64, 4096, 2**26)
    a, b = torch.randn(2, small, small, device=device)
    mixed = attempt(torch.mm, a, b.half())
    yield fact("product of two dtypes", mixed.error is not None, mixed.said)
    yield faster("product, small", TWICE, torch.mm, a, b)
    yield faster("product, large", TWICE, torch.mm, *torch.randn(2, large, large, device=device))
    yield faster("absolute values, few", TWICE, torch.abs, torch.randn(1000, device=device))
    yield faster("absolute values, many", TWICE, torch.abs, torch.randn(many, device=device))


# Read when this file is imported: on a GPU our own checks run with them switched off.
FLAGS = {"product": torch.backends.cuda.matmul.allow_tf32,
         "convolution": torch.backends.cudnn.allow_tf32}


def product(tf32, a, b):
    """a @ b with allow_tf32 set so, and put back."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, tf32
    try:
        return a @ b
    finally:
        matmul.allow_tf32 = before


@advice(
    "C12",
    article="chatglm",
    claim="30-series cards need allow_tf32 set by hand to use tensor cores.",
    why="The flag lets products of float32 round their inputs to TF32, and is off since torch "
        "1.12; float32 convolutions have their own, which is on, and half needs neither.",
    instead="Training in half or bfloat16 uses tensor cores as it is; for float32 products, "
            "torch.set_float32_matmul_precision(\"high\") if 10 bits of mantissa are enough.",
    source="https://docs.pytorch.org/docs/stable/notes/cuda.html, TensorFloat-32 (TF32) on "
           "Ampere (and later) devices",
    notebook="05",
)
def read_and_set_allow_tf32(device):
    for op, flag in FLAGS.items():
        yield fact(f"float32 {op}, default", not flag, f"allow_tf32 is {flag}")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        scene = f"{str(dtype)[6:]} product, set by hand"
        if device == "cpu" or torch.cuda.get_device_capability() < (8, 0):
            yield not_shown(scene, "needs a GPU of the 30 series or newer")
            continue
        a, b = torch.randn(2, 1024, 1024, device=device).to(dtype)
        same = torch.equal(product(False, a, b), product(True, a, b))
        yield fact(scene, not same, f"the flag changes {'nothing' if same else 'the result'}")
