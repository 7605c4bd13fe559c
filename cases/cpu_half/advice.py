"""What the article on c10::Half says of half on the CPU, tried."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from cases.lab.advice import advice, attempt, fact, not_shown, remedy

# {what for: {op: (function of one tensor, its shape)}}; each is called and its gradient taken.
OPS = {
    "transformer": {
        "linear": (lambda x: F.linear(x, x), (16, 16)),
        "layer_norm": (lambda x: F.layer_norm(x, (16,)), (4, 16)),
        "softmax": (lambda x: x.softmax(-1), (4, 16)),
        "gelu": (F.gelu, (4, 16)),
        "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (2, 2, 8, 16)),
    },
    "vision": {
        "conv2d": (lambda x: F.conv2d(x, x[:, :, :3, :3]), (4, 4, 8, 8)),
        "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (8, 4)),
        "max_pool2d": (lambda x: F.max_pool2d(x, 2), (2, 3, 8, 8)),
        "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    },
    "losses": {
        "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(4)), (4, 16)),
        "mse_loss": (lambda x: F.mse_loss(x, x.detach() + 1), (4, 16)),
        "ctc_loss": (lambda x: F.ctc_loss(x.log_softmax(-1)[:, None], torch.ones(1, 2).long(),
                                          (8,), (2,)), (8, 4)),
    },
    "linear algebra": {
        "inv": (torch.linalg.inv, (4, 4)),
        "svd": (torch.linalg.svdvals, (4, 4)),
        "qr": (lambda x: torch.linalg.qr(x).R, (4, 4)),
    },
    "Fourier, statistics": {
        "rfft": (lambda x: torch.fft.rfft(x).abs(), (4, 16)),
        "quantile": (lambda x: x.quantile(0.9, dim=-1), (4, 16)),
        "cdist": (lambda x: torch.cdist(x, x[:2] + 1), (4, 16)),
    },
}


def forward_and_backward(function, shape, dtype):
    """What happens in one dtype on the CPU: a Tried."""
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).requires_grad_()
    return attempt(lambda: function(x).float().sum().backward())


@advice(
    "B4",
    article="c10half",
    claim="Half support on the CPU is limited.",
    why="Each op needs a kernel of its own: those of transformers came with torch 2.1 to 2.3, "
        "most of linear algebra and Fourier transforms have none in 2.14 either.",
    instead="On the CPU ask this torch: run the model once in half; cast around the op that "
            "raises, op(x.float()).to(x.dtype).",
    source="pytorch/pytorch#99498, #74625; aten/src/ATen/native/BatchLinearAlgebra.cpp",
    notebook="04",
)
def call_ops_in_half_on_the_cpu(device):
    for group, ops in OPS.items():
        there = {op: spec for op, spec in ops.items()
                 if not forward_and_backward(*spec, torch.float32).error}
        refused = [op for op, spec in there.items()
                   if forward_and_backward(*spec, torch.float16).error]
        yield fact(group, bool(refused), f"{len(refused)} of {len(there)} raise in half"
                                         f"{': ' if refused else ''}{', '.join(refused)}")


@advice(
    "B19",
    article="c10half",
    claim="Moving the tensor to the GPU in half cures \"addmm_impl_cpu_\".",
    why="The kernel that is missing is the CPU's, and the GPU has one; but the weights must go "
        "with the tensor, and since torch 2.2 the CPU has the kernel too.",
    instead="Move model and input together, model.to(\"cuda\") and x.to(\"cuda\"); "
            "without a GPU use float32, or torch 2.2 or newer.",
    source="aten/src/ATen/native/LinearAlgebra.cpp, addmm_impl_cpu_; pytorch/pytorch#99498",
    notebook="04",
)
def move_to_the_gpu(device):
    layer, x = nn.Linear(16, 16).half(), torch.randn(4, 16).half()
    on_the_cpu = attempt(layer, x)
    for scene, moved in (("model and input", layer), ("input alone", None)):
        if device == "cpu":
            yield not_shown(scene, "needs a GPU")
            continue
        there = copy.deepcopy(moved).to(device) if moved else layer
        yield remedy(scene, on_the_cpu, attempt(there, x.to(device)))


@advice(
    "B20",
    article="c10half",
    claim="With autocast disabled, layer(input.float()).half() cures \"addmm_impl_cpu_\".",
    why="The message comes of two half operands; with the input cast alone, weights in half meet "
        "an input in float32, and a product does not promote.",
    instead="Convert the layer too: layer.float()(x.float()).half(), at the price of its bytes; "
            "or use torch 2.2 or newer.",
    source="aten/src/ATen/native/LinearAlgebra.cpp, addmm_impl_cpu_; "
           "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html, float",
    notebook="04",
)
def cast_the_input_with_autocast_disabled(device):
    def cast(layer, x):
        with torch.autocast(device, enabled=False):
            return layer(x.float()).half()

    x = torch.randn(32, 16, device=device).half()
    for scene, layer in (
        ("half layer", nn.Linear(16, 16).to(device).half()),
        ("float32 layer", nn.Linear(16, 16).to(device)),
        ("product without weights", lambda x: x @ x.T),
    ):
        yield remedy(scene, attempt(layer, x), attempt(cast, layer, x))
