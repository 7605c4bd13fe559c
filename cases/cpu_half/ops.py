"""The op sweep: what each op of a long list does in half, forward and backward.

Every op is called on the same small inputs in each dtype: made once in float64, rounded to the
dtype, and for the reference widened again. So an error is the op's own, not the rounding of its
inputs. Needs torch alone.
"""

import copy
import functools
import itertools
import math
import zlib

import torch
from torch import nn

from cases.lab.numerics import show
from cases.lab.run import check_device, steady

F = nn.functional
DTYPES = ("float16", "bfloat16")
DIRECTIONS = ("forward", "backward")
COLUMNS = tuple((dtype, direction) for dtype in DTYPES for direction in DIRECTIONS)
RUNS, ABSENT, NO_GRADIENT, WRONG = "runs", "absent", "no gradient", "wrong"
RANDOM = "random"  # the group of the ops that draw: each dtype draws other numbers
# An op is wrong if a tensor that it returns, or a gradient, is further from float64's than this
# many times the epsilon of its dtype: |found - exact| / |exact|, Euclidean norms. Both start from
# the same rounded inputs, so only the op's own steps count. An op may round at each of them, and
# of some tens of steps the errors add up like a random walk, to less than 10. Nothing hangs on
# the number: on ten torches, 1.13 to 2.14, no error was between 6 and 19 epsilons.
WRONG_FACTOR = 10


# ------------------------------------------------------------------ inputs, made in float64


def x(*shape):
    """Values around 0, of size 1."""
    return functools.partial(torch.randn, shape, dtype=torch.float64)


def between(*shape):
    """Values from 0.1 to 0.9: probabilities, and what log and erfinv take."""
    return lambda: 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64)


def above(*shape):
    """Values from 1.1 to 1.9: away from the zeros of what is computed of them."""
    return lambda: 1.1 + 0.8 * torch.rand(shape, dtype=torch.float64)


def apart(*shape):
    """Distinct values that every dtype holds exactly, so that their order has no ties."""

    def make():
        count = math.prod(shape)
        return ((torch.randperm(count) - count // 2).double() / 8).reshape(shape)

    return make


def square():
    """Matrices that are symmetric and well conditioned, as solvers like them."""
    a = 0.3 * torch.randn(2, 4, 4, dtype=torch.float64)
    return torch.eye(4, dtype=torch.float64) + a @ a.transpose(1, 2)


def near(*shape, by=0.01):
    """Two sets of points, each point `by` away from its neighbour in the other set, stacked."""

    def make():
        points = torch.randn(shape, dtype=torch.float64)
        return torch.stack([points, points + by * torch.randn(shape, dtype=torch.float64)])

    return make


def times(factor, maker):
    return lambda: factor * maker()


def plus(offset, maker):
    return lambda: offset + maker()


def index(*shape):
    """Integers from 0 to 3."""
    return lambda: torch.arange(math.prod(shape)).reshape(shape) % 4


def order(*shape):
    """A permutation in each row."""
    return lambda: torch.rand(shape).argsort(-1)


def layer(kind, *sizes, **options):
    """A module; its parameters are inputs too."""
    return functools.partial(kind, *sizes, **options, dtype=torch.float64)


def call(module, *inputs):
    return module(*inputs)


def first(module, *inputs):
    """A recurrent layer's outputs, without its state."""
    return module(*inputs)[0]


def clipped(*gradients):
    """The gradients after their norm was cut to 1."""
    weights = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_(weights, 1.0)
    return [weight.grad for weight in weights]


def stepped(optimizer):
    """The weight after one step of the optimizer."""

    def step(weight, gradient):
        weight = nn.Parameter(weight.clone())
        weight.grad = gradient.clone()
        optimizer([weight], lr=0.1).step()
        return weight.detach()

    return step


# {group: {op: (function, inputs …)}}. Tiny (or small) and large are two entries where torch takes
# two roads. What the oldest torch lacks stands in a lambda, to be looked up when it is called.
GROUPS = {
    "products": {
        "mm": (torch.mm, x(16, 16), x(16, 16)),
        "addmm": (torch.addmm, x(16, 16), x(16, 16), x(16, 16)),
        "mv": (torch.mv, x(16, 16), x(16)),
        "addmv": (torch.addmv, x(16), x(16, 16), x(16)),
        "dot": (torch.dot, x(16), x(16)),
        "outer": (torch.outer, x(8), x(8)),
        "bmm (tiny)": (torch.bmm, x(2, 4, 4), x(2, 4, 4)),
        "bmm": (torch.bmm, x(2, 16, 16), x(2, 16, 16)),
        "baddbmm (tiny)": (torch.baddbmm, x(2, 4, 4), x(2, 4, 4), x(2, 4, 4)),
        "baddbmm": (torch.baddbmm, x(2, 16, 16), x(2, 16, 16), x(2, 16, 16)),
        "matmul": (torch.matmul, x(2, 8, 16), x(16, 8)),
        "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), x(2, 8, 16), x(2, 16, 8)),
        "cross": (torch.linalg.cross, x(4, 3), x(4, 3)),
        "linear": (F.linear, x(4, 16), x(8, 16), x(8)),
        "bilinear": (F.bilinear, x(4, 3), x(4, 5), x(2, 3, 5), x(2)),
        "sparse.mm": (lambda a, b: torch.sparse.mm(a.to_sparse(), b), x(4, 4), x(4, 4)),
        "scaled_dot_product_attention": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
            x(2, 2, 8, 16), x(2, 2, 8, 16), x(2, 2, 8, 16),
        ),
        "scaled_dot_product_attention (causal)": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            x(2, 2, 8, 16), x(2, 2, 8, 16), x(2, 2, 8, 16),
        ),
        "multi_head_attention": (
            lambda m, a: m(a, a, a)[0], layer(nn.MultiheadAttention, 16, 2), x(4, 2, 16)),
        "encoder layer": (call, layer(nn.TransformerEncoderLayer, 16, 2, 32, dropout=0.0),
                          x(4, 2, 16)),
        "lstm": (first, layer(nn.LSTM, 8, 8), x(3, 2, 8)),
        "lstm cell": (first, layer(nn.LSTMCell, 8, 8), x(2, 8)),
        "gru": (first, layer(nn.GRU, 8, 8), x(3, 2, 8)),
        "rnn": (first, layer(nn.RNN, 8, 8), x(3, 2, 8)),
    },
    "convolution": {
        "conv1d": (F.conv1d, x(2, 3, 8), x(4, 3, 3), x(4)),
        "conv2d": (F.conv2d, x(2, 3, 8, 8), x(4, 3, 3, 3), x(4)),
        "conv2d (depthwise)": (
            lambda a, w: F.conv2d(a, w, groups=4), x(2, 4, 8, 8), x(4, 1, 3, 3)),
        "conv2d (dilated)": (
            lambda a, w: F.conv2d(a, w, dilation=2), x(2, 3, 8, 8), x(4, 3, 3, 3)),
        "conv3d": (F.conv3d, x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2), x(3)),
        "conv_transpose1d": (F.conv_transpose1d, x(2, 3, 8), x(3, 4, 3), x(4)),
        "conv_transpose2d": (F.conv_transpose2d, x(2, 3, 8, 8), x(3, 4, 3, 3), x(4)),
        "conv_transpose3d": (F.conv_transpose3d, x(1, 2, 4, 4, 4), x(2, 3, 2, 2, 2), x(3)),
        "unfold": (lambda a: F.unfold(a, 2), x(2, 3, 4, 4)),
        "fold": (lambda a: F.fold(a, (4, 4), 2), x(2, 12, 9)),
    },
    "pooling, sampling": {
        "max_pool1d": (lambda a: F.max_pool1d(a, 2), x(2, 3, 8)),
        "max_pool2d": (lambda a: F.max_pool2d(a, 2), x(2, 3, 8, 8)),
        "max_pool3d": (lambda a: F.max_pool3d(a, 2), x(1, 2, 4, 4, 4)),
        "avg_pool1d": (lambda a: F.avg_pool1d(a, 2), x(2, 3, 8)),
        "avg_pool2d": (lambda a: F.avg_pool2d(a, 2), x(2, 3, 8, 8)),
        "avg_pool3d": (lambda a: F.avg_pool3d(a, 2), x(1, 2, 4, 4, 4)),
        "adaptive_avg_pool2d": (lambda a: F.adaptive_avg_pool2d(a, 3), x(2, 3, 8, 8)),
        "adaptive_max_pool2d": (lambda a: F.adaptive_max_pool2d(a, 3), x(2, 3, 8, 8)),
        "lp_pool2d": (lambda a: F.lp_pool2d(a, 2.0, 2), between(2, 3, 8, 8)),
        "interpolate nearest": (lambda a: F.interpolate(a, scale_factor=2), x(2, 3, 4, 4)),
        "interpolate linear": (
            lambda a: F.interpolate(a, scale_factor=2, mode="linear"), x(2, 3, 8)),
        "interpolate bilinear": (
            lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), x(2, 3, 4, 4)),
        "interpolate antialias": (
            lambda a: F.interpolate(a, size=(3, 3), mode="bilinear", antialias=True),
            x(2, 3, 8, 8)),
        "interpolate bicubic": (
            lambda a: F.interpolate(a, scale_factor=2, mode="bicubic"), x(2, 3, 4, 4)),
        "interpolate trilinear": (
            lambda a: F.interpolate(a, scale_factor=2, mode="trilinear"), x(1, 2, 4, 4, 4)),
        "grid_sample": (
            lambda a, g: F.grid_sample(a, g, align_corners=False),
            x(1, 2, 8, 8), between(1, 4, 4, 2)),
        "grid_sample (3d)": (
            lambda a, g: F.grid_sample(a, g, align_corners=False),
            x(1, 2, 4, 4, 4), between(1, 2, 2, 2, 3)),
        "affine_grid": (
            lambda a: F.affine_grid(a, (2, 1, 4, 4), align_corners=False), x(2, 2, 3)),
        "pixel_shuffle": (lambda a: F.pixel_shuffle(a, 2), x(2, 4, 4, 4)),
        "pad (constant)": (lambda a: F.pad(a, (1, 1)), x(2, 3, 8)),
        "pad (reflect)": (lambda a: F.pad(a, (1, 1, 1, 1), mode="reflect"), x(2, 3, 4, 4)),
        "pad (replicate)": (lambda a: F.pad(a, (1, 1, 1, 1), mode="replicate"), x(2, 3, 4, 4)),
        "pad (circular)": (lambda a: F.pad(a, (1, 1, 1, 1), mode="circular"), x(2, 3, 4, 4)),
    },
    "normalisation": {
        "layer_norm": (lambda a, w, b: F.layer_norm(a, (16,), w, b), x(4, 16), x(16), x(16)),
        "rms_norm": (lambda a, w: F.rms_norm(a, (16,), w), x(4, 16), x(16)),
        "group_norm": (lambda a, w, b: F.group_norm(a, 2, w, b), x(2, 4, 8), x(4), x(4)),
        "batch_norm": (call, layer(nn.BatchNorm1d, 4), x(8, 4)),
        "batch_norm (eval)": (lambda m, a: m.eval()(a), layer(nn.BatchNorm1d, 4), x(8, 4)),
        "instance_norm": (F.instance_norm, x(2, 4, 8)),
        "local_response_norm": (lambda a: F.local_response_norm(a, 2), x(2, 4, 8)),
        "normalize": (F.normalize, x(4, 16)),
        "weight_norm": (lambda v, g: torch._weight_norm(v, g, 0), x(4, 8), x(4, 1)),
        "renorm": (lambda a: torch.renorm(a, 2, 0, 1.0), x(4, 16)),
    },
    "activation": {
        "softmax": (lambda a: F.softmax(a, -1), x(4, 16)),
        "softmax (dim 0)": (lambda a: F.softmax(a, 0), x(4, 16)),
        "log_softmax": (lambda a: F.log_softmax(a, -1), x(4, 16)),
        "relu": (F.relu, x(4, 16)),
        "leaky_relu": (F.leaky_relu, x(4, 16)),
        "prelu": (F.prelu, x(4, 3, 8), x(3)),
        "elu": (F.elu, x(4, 16)),
        "gelu": (F.gelu, x(4, 16)),
        "gelu (tanh)": (lambda a: F.gelu(a, approximate="tanh"), x(4, 16)),
        "silu": (F.silu, x(4, 16)),
        "mish": (F.mish, x(4, 16)),
        "hardswish": (F.hardswish, x(4, 16)),
        "hardtanh": (F.hardtanh, x(4, 16)),
        "softplus": (F.softplus, x(4, 16)),
        "softshrink": (F.softshrink, x(4, 16)),
        "logsigmoid": (F.logsigmoid, x(4, 16)),
        "glu": (F.glu, x(4, 16)),
    },
    "element by element": {
        "add": (torch.add, x(4, 16), x(4, 16)),
        "mul": (torch.mul, x(4, 16), x(4, 16)),
        "div": (torch.div, x(4, 16), above(4, 16)),
        "remainder": (torch.remainder, x(4, 16), above(4, 16)),
        "fmod": (torch.fmod, x(4, 16), above(4, 16)),
        "pow": (lambda a: torch.pow(a, 2.5), between(4, 16)),
        "pow (tensors)": (torch.pow, between(4, 16), above(4, 16)),
        "sqrt": (torch.sqrt, between(4, 16)),
        "rsqrt": (torch.rsqrt, between(4, 16)),
        "reciprocal": (torch.reciprocal, above(4, 16)),
        "abs": (torch.abs, x(4, 16)),
        "exp": (torch.exp, x(4, 16)),
        "exp2": (torch.exp2, x(4, 16)),
        "expm1": (torch.expm1, x(4, 16)),
        "log": (torch.log, between(4, 16)),
        "log1p": (torch.log1p, between(4, 16)),
        "sin": (torch.sin, x(4, 16)),
        "cos": (torch.cos, x(4, 16)),
        "tan": (torch.tan, between(4, 16)),
        "acos": (torch.acos, between(4, 16)),
        "atan": (torch.atan, x(4, 16)),
        "atan2": (torch.atan2, x(4, 16), above(4, 16)),
        "tanh": (torch.tanh, x(4, 16)),
        "sigmoid": (torch.sigmoid, x(4, 16)),
        "logit": (torch.logit, between(4, 16)),
        "erf": (torch.erf, x(4, 16)),
        "erfinv": (torch.erfinv, between(4, 16)),
        "lgamma": (torch.lgamma, between(4, 16)),
        "digamma": (torch.digamma, between(4, 16)),
        "i0": (torch.i0, x(4, 16)),
        "sinc": (torch.sinc, between(4, 16)),
        "xlogy": (torch.xlogy, x(4, 16), between(4, 16)),
        "logaddexp": (torch.logaddexp, x(4, 16), x(4, 16)),
        "clamp": (lambda a: torch.clamp(a, -1, 1), x(4, 16)),
        "floor": (torch.floor, x(4, 16)),
        "round": (torch.round, x(4, 16)),
        "nan_to_num": (torch.nan_to_num, x(4, 16)),
        "maximum": (torch.maximum, x(4, 16), x(4, 16)),
        "lerp": (lambda a, b: torch.lerp(a, b, 0.3), x(4, 16), x(4, 16)),
        "addcmul": (torch.addcmul, x(4, 16), x(4, 16), x(4, 16)),
        "addcdiv": (torch.addcdiv, x(4, 16), x(4, 16), above(4, 16)),
        "where": (lambda a, b: torch.where(a > 0, a, b), x(4, 16), x(4, 16)),
        "lt": (torch.lt, x(4, 16), x(4, 16)),
        "isclose": (torch.isclose, x(4, 16), x(4, 16)),
        "view_as_complex": (torch.view_as_complex, x(4, 2)),
    },
    "sums, scans": {
        "sum": (lambda a: a.sum(-1), x(4, 16)),
        "sum (long)": (lambda a: a.sum(-1), between(4096)),
        "mean": (lambda a: a.mean(-1), x(4, 16)),
        "prod": (lambda a: a.prod(-1), above(4, 8)),
        "var": (lambda a: a.var(-1), x(4, 16)),
        "var (far from 0)": (lambda a: a.var(-1), plus(100, x(4, 16))),
        "std": (lambda a: a.std(-1), x(4, 16)),
        "norm": (lambda a: torch.linalg.vector_norm(a, dim=-1), x(4, 16)),
        "norm (large values)": (
            lambda a: torch.linalg.vector_norm(a, dim=-1), times(300, x(4, 16))),
        "norm (p=3)": (lambda a: torch.linalg.vector_norm(a, 3, dim=-1), x(4, 16)),
        "logsumexp": (lambda a: torch.logsumexp(a, -1), x(4, 16)),
        "cumsum": (lambda a: torch.cumsum(a, -1), x(4, 16)),
        "cumsum (long)": (lambda a: torch.cumsum(a, -1), between(4096)),
        "cumprod": (lambda a: torch.cumprod(a, -1), above(4, 8)),
        "logcumsumexp": (lambda a: torch.logcumsumexp(a, -1), x(4, 16)),
        "cummax": (lambda a: torch.cummax(a, -1), apart(4, 16)),
        "diff": (torch.diff, x(4, 16)),
        "cov": (torch.cov, x(4, 16)),
    },
    "order, counts": {
        "max": (lambda a: torch.max(a, -1), apart(4, 16)),
        "amax": (lambda a: torch.amax(a, -1), apart(4, 16)),
        "aminmax": (lambda a: torch.aminmax(a, dim=-1), apart(4, 16)),
        "argmax": (lambda a: torch.argmax(a, -1), apart(4, 16)),
        "sort": (lambda a: torch.sort(a), apart(4, 16)),
        "topk": (lambda a: torch.topk(a, 3), apart(4, 16)),
        "kthvalue": (lambda a: torch.kthvalue(a, 3), apart(4, 16)),
        "median": (lambda a: torch.median(a, -1), apart(4, 15)),
        "mode": (lambda a: torch.mode(a, -1).values, apart(4, 16)),
        "quantile": (lambda a: torch.quantile(a, 0.9, dim=-1), x(4, 16)),
        "unique": (torch.unique, apart(4, 16)),
        "histc": (lambda a: torch.histc(a, 8), x(64)),
        "bincount (weights)": (torch.bincount, index(16), between(16)),
        "searchsorted": (
            lambda a, b: torch.searchsorted(a.sort().values, b), apart(16), apart(8)),
    },
    "by index": {
        "embedding": (F.embedding, index(2, 4), x(8, 16)),
        "embedding_bag": (F.embedding_bag, index(2, 4), x(8, 16)),
        "gather": (lambda a, i: torch.gather(a, 1, i), x(4, 16), index(4, 3)),
        "index_select": (lambda a, i: torch.index_select(a, 0, i), x(4, 16), index(6)),
        "index_add": (lambda a, i, b: a.index_add(0, i, b), x(4, 16), index(8), x(8, 16)),
        "index_copy": (lambda a, i, b: a.index_copy(0, i, b), x(4, 16), index(4), x(4, 16)),
        "index_put (accumulate)": (
            lambda a, i, b: a.index_put((i,), b, accumulate=True), x(4, 16), index(8), x(8, 16)),
        "scatter": (lambda a, i, b: a.scatter(1, i, b), x(4, 16), order(4, 16), x(4, 16)),
        "scatter_add": (lambda a, i, b: a.scatter_add(0, i, b), x(4, 16), index(8, 16), x(8, 16)),
        "scatter_reduce (mean)": (
            lambda a, i, b: a.scatter_reduce(0, i, b, "mean"), x(4, 16), index(8, 16), x(8, 16)),
        "scatter_reduce (amax)": (
            lambda a, i, b: a.scatter_reduce(0, i, b, "amax"), x(4, 16), index(8, 16), x(8, 16)),
        "masked_fill": (lambda a: a.masked_fill(a > 0, 0.0), x(4, 16)),
        "masked_select": (lambda a: a.masked_select(a > 0), x(4, 16)),
        "tril": (torch.tril, x(16, 16)),
        "triu": (torch.triu, x(16, 16)),
        "cat": (lambda a, b: torch.cat([a, b]), x(4, 16), x(4, 16)),
        "flip": (lambda a: a.flip(-1), x(4, 16)),
        "roll": (lambda a: a.roll(1, -1), x(4, 16)),
        "repeat_interleave": (lambda a: a.repeat_interleave(2, 0), x(4, 16)),
    },
    "distance, loss": {
        "cdist (small)": (torch.cdist, x(1, 6, 4), x(1, 6, 4)),
        "cdist": (torch.cdist, x(1, 32, 4), x(1, 32, 4)),
        "cdist (near points)": (
            lambda p: torch.cdist(*p).diagonal(dim1=1, dim2=2), near(1, 100, 16)),
        "cdist (p=1)": (lambda a, b: torch.cdist(a, b, 1.0), x(1, 32, 4), x(1, 32, 4)),
        "pdist": (torch.pdist, x(6, 4)),
        "dist": (torch.dist, x(16), x(16)),
        "pairwise_distance": (F.pairwise_distance, x(4, 16), x(4, 16)),
        "cosine_similarity": (F.cosine_similarity, x(4, 16), x(4, 16)),
        "mse_loss": (F.mse_loss, x(4, 16), x(4, 16)),
        "l1_loss": (F.l1_loss, x(4, 16), x(4, 16)),
        "smooth_l1_loss": (F.smooth_l1_loss, x(4, 16), x(4, 16)),
        "huber_loss": (F.huber_loss, x(4, 16), x(4, 16)),
        "cross_entropy": (F.cross_entropy, x(4, 16), index(4)),
        "cross_entropy (smoothed)": (
            lambda a, i: F.cross_entropy(a, i, label_smoothing=0.1), x(4, 16), index(4)),
        "nll_loss": (F.nll_loss, x(4, 16), index(4)),
        "nll_loss (2d)": (F.nll_loss, x(2, 4, 3, 3), index(2, 3, 3)),
        "binary_cross_entropy": (
            lambda a, t: F.binary_cross_entropy(a, t.detach()), between(4, 16), between(4, 16)),
        "bce_with_logits": (
            lambda a, t: F.binary_cross_entropy_with_logits(a, t.detach()),
            x(4, 16), between(4, 16)),
        "kl_div": (
            lambda a, t: F.kl_div(a, t.detach(), reduction="batchmean"), x(4, 16), between(4, 16)),
        "poisson_nll_loss": (
            lambda a, t: F.poisson_nll_loss(a, t.detach()), above(4, 16), between(4, 16)),
        "gaussian_nll_loss": (
            lambda a, t, v: F.gaussian_nll_loss(a, t, v), x(4, 16), x(4, 16), above(4, 16)),
        "soft_margin_loss": (lambda a: F.soft_margin_loss(a, torch.ones_like(a)), x(4, 16)),
        "multi_margin_loss": (F.multi_margin_loss, x(4, 16), index(4)),
        "triplet_margin_loss": (F.triplet_margin_loss, x(4, 16), x(4, 16), x(4, 16)),
        "ctc_loss": (
            lambda a, t: F.ctc_loss(a, t, (8,), (2,)),
            times(-1, between(8, 1, 4)), lambda: torch.tensor([[1, 2]])),
    },
    "linear algebra": {
        "inv": (torch.linalg.inv, square),
        "pinv": (torch.linalg.pinv, square),
        "solve": (torch.linalg.solve, square, x(2, 4, 1)),
        "solve_triangular": (
            lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), square, x(2, 4, 1)),
        "cholesky": (torch.linalg.cholesky, square),
        "qr": (lambda a: torch.linalg.qr(a).R.abs(), square),
        "svd": (torch.linalg.svdvals, square),
        "eigh": (torch.linalg.eigvalsh, square),
        "eig": (lambda a: torch.linalg.eigvals(a).real.sort().values, square),
        "det": (torch.linalg.det, square),
        "slogdet": (torch.linalg.slogdet, square),
        "lu": (lambda a: torch.linalg.lu_factor(a).LU, square),
        "lstsq": (lambda a, b: torch.linalg.lstsq(a, b).solution, square, x(2, 4, 1)),
        "matrix_exp": (torch.matrix_exp, square),
        "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), square),
        "matrix_norm": (torch.linalg.matrix_norm, square),
        "matrix_rank": (torch.linalg.matrix_rank, square),
        "trace": (torch.trace, x(8, 8)),
    },
    "fft": {
        "fft": (torch.fft.fft, x(4, 16)),
        "rfft": (torch.fft.rfft, x(4, 16)),
        "irfft": (torch.fft.irfft, x(4, 9)),
        "stft": (
            lambda a, w: torch.stft(a, 16, window=w.detach(), return_complex=True),
            x(64), between(16)),
    },
    RANDOM: {
        "dropout": (lambda a: F.dropout(a, 0.5, training=True), x(4, 16)),
        "rrelu": (lambda a: F.rrelu(a, training=True), x(4, 16)),
        "gumbel_softmax": (F.gumbel_softmax, x(4, 16)),
        "bernoulli": (torch.bernoulli, between(4, 16)),
        "multinomial": (lambda a: torch.multinomial(a, 3), between(4, 16)),
        "normal": (lambda a: torch.normal(a.detach(), 1.0), x(4, 16)),
        "randn_like": (torch.randn_like, x(4, 16)),
        "uniform_": (lambda a: torch.empty_like(a).uniform_(), x(4, 16)),
    },
    "optimiser": {
        "clip_grad_norm_": (clipped, x(16), x(4, 16)),
        "SGD": (stepped(torch.optim.SGD), x(16), x(16)),
        "Adam": (stepped(torch.optim.Adam), x(16), x(16)),
        "Adam (small gradients)": (stepped(torch.optim.Adam), x(16), times(0.001, x(16))),
    },
}

OPS = {op: spec for ops in GROUPS.values() for op, spec in ops.items()}
GROUP_OF = {op: group for group, ops in GROUPS.items() for op in ops}


# ------------------------------------------------------------------ calling them


def seed(number):
    """Seed the CPU's generator. torch.manual_seed seeds all, and keeps a traceback: 2 ms a call."""
    torch.default_generator.manual_seed(number)


def made(op):
    """The inputs of an op in float64: the same at each call, whatever was called before."""
    seed(zlib.crc32(op.encode()))
    return [make() for make in OPS[op][1:]]


def cast(value, device, dtype):
    """A copy of a tensor or module in `dtype`; integers stay integers."""
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(device, dtype)
    return value.to(device, dtype if value.is_floating_point() else value.dtype).clone()


def tensors(output):
    return [output] if isinstance(output, torch.Tensor) else [t for o in output for t in tensors(o)]


def perform(op, inputs, direction):
    """Call an op on its inputs. Returns its outputs, or their gradients; None if it has none.

    Forward is without autograd, as when a model only answers. Backward is a call with autograd
    and the gradients, by floating inputs and parameters, of a fixed projection of the outputs.
    """
    function = OPS[op][0]
    seed(0)
    if direction == "forward":
        with torch.no_grad():
            return tensors(function(*inputs))
    leaves = []
    for value in inputs:
        if isinstance(value, nn.Module):
            leaves += value.parameters()
        elif value.is_floating_point():
            leaves.append(value.requires_grad_())
    outputs = [tensor for tensor in tensors(function(*inputs)) if tensor.requires_grad]
    if not outputs:
        return None
    # Odd multiples of 1/8, which every dtype holds exactly.
    onto = [((torch.randint(-4, 4, t.shape) + 0.5) / 4).to(t.device, t.dtype) for t in outputs]
    found = torch.autograd.grad(outputs, leaves, onto, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def flaw(found, exact, dtype):
    """Return what is wrong with tensors found in `dtype`, beside float64's; None if nothing is.

    See WRONG_FACTOR. Integers and truth values must be the same ones.
    """
    if [tensor.shape for tensor in found] != [tensor.shape for tensor in exact]:
        return f"{WRONG}: other shapes"
    worst = 0.0
    for ours, theirs in zip(found, exact, strict=True):
        if theirs.is_floating_point() or theirs.is_complex():
            gap = ours.to(theirs.dtype) - theirs
            error = float(gap.norm() / theirs.norm().clamp_min(1e-300))
            if not math.isfinite(error):
                return f"{WRONG}: not finite"
            worst = max(worst, error)
        elif not torch.equal(ours, theirs):
            return f"{WRONG}: other integers"
    if worst > WRONG_FACTOR * torch.finfo(dtype).eps:
        return f"{WRONG}: relative error {show(worst)}"
    return None


def ask(op, dtype, direction, device="cpu"):
    """Call one op in one dtype ("float16") and direction, and say in a few words what it did.

    RUNS; ABSENT where the same call fails in float64 too; NO_GRADIENT where float64 has none;
    the type and first line of what was raised; or WRONG, a colon, and by how much.
    """
    dtype = getattr(torch, dtype)
    low = [cast(value, device, dtype) for value in made(op)]
    # Before the call in `dtype`, which might change its inputs.
    wide = [cast(value, device, torch.float64) for value in low]
    try:
        exact = perform(op, wide, direction)
    except Exception:
        return ABSENT
    if exact is None:
        return NO_GRADIENT
    try:
        found = perform(op, low, direction)
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    # What is drawn at random has no reference: it can only be refused.
    return RUNS if GROUP_OF[op] == RANDOM else flaw(found, exact, dtype) or RUNS


def survey(device="cpu"):
    """Call every op in each dtype and direction on this torch.

    Returns {"ops": [[op, said, …], …]}: what `ask` said for each of COLUMNS, but None where it is
    what stands before it (before the first, RUNS) and nothing where only that would follow. So
    that each line of a file of evidence is short, and says by itself what an op does. `unfold`
    undoes it. Raises BadInput for a device that is not here.
    """
    check_device(device)
    rows = []
    with steady():
        for op in OPS:
            row, before = [op], RUNS
            for column in COLUMNS:
                said = ask(op, *column, device)
                row.append(None if said == before else said)
                before = said
            while row[-1] is None:
                row.pop()
            rows.append(row)
    return {"ops": rows}


def unfold(found):
    """Return a survey as {op: {(dtype, direction): text}}."""
    table = {}
    for op, *row in found["ops"]:
        said = RUNS
        table[op] = {}
        for column, text in itertools.zip_longest(COLUMNS, row):
            said = text or said
            table[op][column] = said
    return table
