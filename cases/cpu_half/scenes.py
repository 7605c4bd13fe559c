"""What exists in half on the CPU, on which torch, and at what price. Needs torch alone."""

import datetime
import json
import re
import statistics
import time
import warnings
from pathlib import Path

import torch
from torch import nn

from cases.lab import evidence, torches
from cases.lab.case import BadInput
from cases.lab.run import steady

FORMAT = 1
DTYPES = ("float16", "bfloat16")
EVIDENCE = Path(__file__).parent / "evidence"
F = nn.functional


def calls(dtype):
    """Return {group: {name: a call that takes nothing}}, each on small input in `dtype`.

    Tiny (or small) and large are two entries where torch takes two roads.
    """

    def x(*shape):
        return torch.randn(shape).to(dtype)

    def between(*shape):
        """Values from 0.1 to 0.9: probabilities, and what log and erfinv take."""
        return (0.1 + 0.8 * torch.rand(shape)).to(dtype)

    def square():
        """Matrices that are symmetric and well conditioned, as solvers like them."""
        a = 0.1 * torch.randn(2, 4, 4)
        return (torch.eye(4) + a @ a.transpose(1, 2)).to(dtype)

    def index(*shape):
        return torch.arange(torch.Size(shape).numel()).reshape(shape) % 4

    def layer(module, *inputs):
        return module.to(dtype)(*inputs)

    return {
        "products": {
            "addmm": lambda: torch.addmm(x(16, 16), x(16, 16), x(16, 16)),
            "mv": lambda: torch.mv(x(16, 16), x(16)),
            "bmm (tiny)": lambda: torch.bmm(x(2, 4, 4), x(2, 4, 4)),
            "bmm": lambda: torch.bmm(x(2, 16, 16), x(2, 16, 16)),
            "baddbmm (tiny)": lambda: torch.baddbmm(x(2, 4, 4), x(2, 4, 4), x(2, 4, 4)),
            "baddbmm": lambda: torch.baddbmm(x(2, 16, 16), x(2, 16, 16), x(2, 16, 16)),
            "einsum": lambda: torch.einsum("ij,jk->ik", x(16, 16), x(16, 16)),
            "linear": lambda: layer(nn.Linear(16, 16), x(4, 16)),
            "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
                x(2, 2, 8, 16), x(2, 2, 8, 16), x(2, 2, 8, 16)
            ),
            "lstm": lambda: layer(nn.LSTM(8, 8), x(3, 2, 8))[0],
            "gru": lambda: layer(nn.GRU(8, 8), x(3, 2, 8))[0],
        },
        "convolution, pooling, sampling": {
            "conv1d": lambda: layer(nn.Conv1d(3, 4, 3), x(2, 3, 8)),
            "conv2d": lambda: layer(nn.Conv2d(3, 4, 3), x(2, 3, 8, 8)),
            "conv_transpose2d": lambda: layer(nn.ConvTranspose2d(3, 4, 3), x(2, 3, 8, 8)),
            "max_pool2d": lambda: F.max_pool2d(x(2, 3, 8, 8), 2),
            "avg_pool2d": lambda: F.avg_pool2d(x(2, 3, 8, 8), 2),
            "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x(2, 3, 8, 8), 4),
            "interpolate bilinear": lambda: F.interpolate(
                x(2, 3, 8, 8), scale_factor=2, mode="bilinear"
            ),
            "interpolate bicubic": lambda: F.interpolate(
                x(2, 3, 8, 8), scale_factor=2, mode="bicubic"
            ),
            "grid_sample": lambda: F.grid_sample(
                x(1, 1, 8, 8), between(1, 4, 4, 2), align_corners=False
            ),
        },
        "normalisation, activation": {
            "layer_norm": lambda: layer(nn.LayerNorm(16), x(4, 16)),
            "group_norm": lambda: layer(nn.GroupNorm(2, 4), x(2, 4, 8)),
            "batch_norm": lambda: layer(nn.BatchNorm1d(4), x(8, 4)),
            "softmax": lambda: F.softmax(x(4, 16), -1),
            "log_softmax": lambda: F.log_softmax(x(4, 16), -1),
            "relu": lambda: F.relu(x(4, 16)),
            "gelu": lambda: F.gelu(x(4, 16)),
            "silu": lambda: F.silu(x(4, 16)),
            "dropout": lambda: F.dropout(x(4, 16), 0.5, training=True),
        },
        "element by element": {
            "add": lambda: x(4, 16) + x(4, 16),
            "mul": lambda: x(4, 16) * x(4, 16),
            "sigmoid": lambda: torch.sigmoid(x(4, 16)),
            "tanh": lambda: torch.tanh(x(4, 16)),
            "exp": lambda: torch.exp(x(4, 16)),
            "log": lambda: torch.log(between(4, 16)),
            "sqrt": lambda: torch.sqrt(between(4, 16)),
            "sin": lambda: torch.sin(x(4, 16)),
            "pow": lambda: torch.pow(between(4, 16), 2.5),
            "clamp": lambda: torch.clamp(x(4, 16), -1, 1),
            "erfinv": lambda: torch.erfinv(between(4, 16)),
            "lgamma": lambda: torch.lgamma(between(4, 16)),
        },
        "sums, scans, order": {
            "sum": lambda: x(4, 16).sum(-1),
            "mean": lambda: x(4, 16).mean(-1),
            "prod": lambda: x(4, 16).prod(-1),
            "var": lambda: x(4, 16).var(-1),
            "norm": lambda: torch.linalg.vector_norm(x(4, 16), dim=-1),
            "logsumexp": lambda: torch.logsumexp(x(4, 16), -1),
            "cumsum": lambda: torch.cumsum(x(4, 16), -1),
            "cumprod": lambda: torch.cumprod(x(4, 16), -1),
            "max": lambda: x(4, 16).max(-1).values,
            "argmax": lambda: x(4, 16).argmax(-1),
            "sort": lambda: torch.sort(x(4, 16)).values,
            "topk": lambda: torch.topk(x(4, 16), 3).values,
            "median": lambda: torch.median(x(4, 16), -1).values,
            "mode": lambda: torch.mode(x(4, 16), -1).values,
            "quantile": lambda: torch.quantile(x(4, 16), 0.9, dim=-1),
            "unique": lambda: torch.unique(x(4, 16)),
            "histc": lambda: torch.histc(x(64), 8),
            "multinomial": lambda: torch.multinomial(between(4, 16), 3),
            "renorm": lambda: torch.renorm(x(4, 16), 2, 0, 1.0),
        },
        "by index": {
            "embedding": lambda: layer(nn.Embedding(8, 16), index(2, 4)),
            "gather": lambda: torch.gather(x(4, 16), 1, index(4, 3)),
            "index_add": lambda: x(4, 16).index_add(0, index(4), x(4, 16)),
            "scatter_add": lambda: x(4, 16).scatter_add(0, index(4, 16), x(4, 16)),
            "masked_fill": lambda: x(4, 16).masked_fill(x(4, 16) > 0, 0.0),
            "tril": lambda: torch.tril(x(16, 16)),
        },
        "distance, loss": {
            "cdist (small)": lambda: torch.cdist(x(1, 6, 4), x(1, 6, 4)),
            "cdist": lambda: torch.cdist(x(1, 32, 4), x(1, 32, 4)),
            "pdist": lambda: torch.pdist(x(6, 4)),
            "dist": lambda: torch.dist(x(16), x(16)),
            "cosine_similarity": lambda: F.cosine_similarity(x(4, 16), x(4, 16)),
            "mse_loss": lambda: F.mse_loss(x(4, 16), x(4, 16)),
            "smooth_l1_loss": lambda: F.smooth_l1_loss(x(4, 16), x(4, 16)),
            "cross_entropy": lambda: F.cross_entropy(x(4, 16), index(4)),
            "binary_cross_entropy": lambda: F.binary_cross_entropy(between(4, 16), between(4, 16)),
            "ctc_loss": lambda: F.ctc_loss(
                -between(8, 1, 4), torch.tensor([[1, 2]]), torch.tensor([8]), torch.tensor([2])
            ),
        },
        "linear algebra, fft": {
            "inv": lambda: torch.linalg.inv(square()),
            "solve": lambda: torch.linalg.solve(square(), x(2, 4, 1)),
            "cholesky": lambda: torch.linalg.cholesky(square()),
            "qr": lambda: torch.linalg.qr(square()).R,
            "svd": lambda: torch.linalg.svdvals(square()),
            "eigh": lambda: torch.linalg.eigvalsh(square()),
            "det": lambda: torch.linalg.det(square()),
            "lstsq": lambda: torch.linalg.lstsq(square(), x(2, 4, 1)).solution,
            "matrix_exp": lambda: torch.matrix_exp(square()),
            "fft": lambda: torch.fft.fft(x(4, 16)),
            "rfft": lambda: torch.fft.rfft(x(4, 16)),
            "stft": lambda: torch.stft(
                x(64), 16, window=between(16), return_complex=True
            ),
        },
    }


def attempt(call):
    """Return None if the call runs, else the first line of what it raised, with its type."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    return None


def sweep():
    """Call every op in each dtype on this torch, on the CPU.

    Returns a list of {"op", "group", "float16", "bfloat16"}. The value of a dtype is "runs",
    "absent" where the same call fails in float32 too, or what was raised.
    """
    rows = []
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        control = calls(torch.float32)
        for dtype in DTYPES:
            for group, ops in calls(getattr(torch, dtype)).items():
                for op, call in ops.items():
                    said = attempt(call)
                    if said and attempt(control[group][op]):
                        said = "absent"
                    rows.append((op, group, dtype, said or "runs"))
    table = {}
    for op, group, dtype, said in rows:
        table.setdefault(op, {"op": op, "group": group})[dtype] = said
    return list(table.values())


def still_missing(dtype="float16"):
    """Return {words: [op, …]}: what this torch refuses, those refused in like words together."""
    groups = {}
    for row in sweep():
        if row[dtype] not in ("runs", "absent"):
            groups.setdefault(alike(row[dtype]), []).append(row["op"])
    return groups


def alike(said):
    """A refusal without its exception's type and the name of the op."""
    words = said.split(": ", 1)[1]
    return re.sub(r'^"\w+"|^[a-z_.]+(?=: |\(\) )', "…", words)


def near_points(dtype="float16", apart=0.01):
    """Error of `torch.cdist` between 100 points and their neighbours, `apart` away, in `dtype`.

    Returns the mean error over the mean distance, against float64 on the same rounded points.
    That many points go by |a|² + |b|² - 2ab, a matmul: it exists in half, and cancels.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        points = torch.randn(1, 100, 16)
        near = points + apart * torch.randn_like(points)
    points, near = points.to(getattr(torch, dtype)), near.to(getattr(torch, dtype))
    found = torch.cdist(points, near).double().diagonal(dim1=1, dim2=2)
    exact = (points.double() - near.double()).norm(dim=-1)
    return float((found - exact).abs().mean() / exact.mean())


def survey():
    """Sweep this torch and say where: {"format", "provenance", "ops"}."""
    return {
        "format": FORMAT,
        "provenance": {
            **evidence.machine(),
            "device": "cpu",
            "date": datetime.date.today().isoformat(),
        },
        "ops": sweep(),
    }


def recorded(torch_id):
    """Return the kept survey of a torch, or None; BadInput, in one line, if it is damaged."""
    path = EVIDENCE / f"ops-{torch_id}.json"
    if not path.exists():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        kept["provenance"]["date"], kept["provenance"]["torch"], kept["ops"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path.name} is damaged ({error}); record it again") from None
    return kept


def history():
    """Return one {"torch_id", "label", "provenance", "ops"} a torch, oldest first.

    The label says "live", or "recorded" and when. A torch that is neither is left out.
    """
    columns = []
    for torch_id in torches.ids():
        if torch_id == torches.current():
            found, label = survey(), "live"
        elif torches.is_live(torch_id):
            found, label = torches.call(torch_id, "cases.cpu_half.scenes:survey"), "live"
        else:
            found = recorded(torch_id)
            label = found and f"recorded {found['provenance']['date']}"
        if found:
            columns.append({"torch_id": torch_id, "label": label, **found})
    return sorted(columns, key=lambda column: torches.number(column["torch_id"]))


def write(torch_id, found):
    """Keep a survey, one op a line. Returns the path."""
    ops = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in found["ops"])
    text = (
        f'{{"format": {found["format"]},\n "provenance": {json.dumps(found["provenance"])},\n'
        f' "ops": [\n  {ops}\n ]}}\n'
    )
    return evidence.write_whole(EVIDENCE / f"ops-{torch_id}.json", text)


def price(size=128, rounds=15):
    """Time and error of two products in half, against float32, on this CPU and one thread.

    Returns {"matmul" | "matrix × vector": {dtype: {"time": ratio, "error": relative}}}: the
    median over `rounds` of the time in `dtype` over the time in float32, and |y - y32| / |y32|.
    A dtype that this torch refuses is left out. The ratio is this processor's: one with half or
    bf16 units gives another. See `pace`.
    """
    with steady():
        torch.manual_seed(0)
        square, wide = torch.randn(size, size), torch.randn(8 * size, 8 * size)
        return {
            "matmul": compare(square, torch.randn(size, size), rounds),
            "matrix × vector": compare(wide, torch.randn(8 * size), rounds),
        }


def compare(a, b, rounds):
    """Time a @ b in float32 and in each half dtype, in turn so that all see the same load."""
    pairs, products = {}, {}
    for name in ("float32", *DTYPES):
        left, right = a.to(getattr(torch, name)), b.to(getattr(torch, name))
        # The first call also sets the kernel up, so it is not timed.
        if attempt(lambda left=left, right=right: left @ right) is None:
            pairs[name], products[name] = (left, right), left @ right
    times = {name: [] for name in pairs}
    for _ in range(rounds):
        for name, (left, right) in pairs.items():
            start = time.perf_counter()
            left @ right
            times[name].append(time.perf_counter() - start)
    exact = products.pop("float32")
    return {
        name: {
            "time": statistics.median(
                low / full for low, full in zip(times[name], times["float32"], strict=True)
            ),
            "error": float((product.float() - exact).norm() / exact.norm()),
        }
        for name, product in products.items()
    }


def pace(ratio):
    """A time ratio in words that another run of the same machine would use too."""
    if ratio > 2:
        return "slower than float32"
    return "faster than float32" if ratio < 0.5 else "within a factor of 2 of float32"


if __name__ == "__main__":
    for column in history():
        if column["label"] == "live":
            print(write(column["torch_id"], column))
