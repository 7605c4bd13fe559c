"""Two ranks and the dtypes they send each other; each rank prints a line of JSON a scene.

    torchrun --nproc_per_node 2 --module cases.advice.two_ranks cpu NEW_FOLDER

A mismatch may end a process, or keep it waiting. So each scene has a process of its own, which the
system ends when its time is up. The ranks find each other by files in the folder, and use gloo.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SCENE_LIMIT, LIMIT = 15, 70  # seconds for a scene, and for all of them
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def all_reduce(rank, device, *dtypes):
    """Rank 0 gives ones and rank 1 gives twos: the sum is 3."""
    numbers = torch.full((4,), 1.0 + rank, dtype=dtypes[rank], device=device)
    dist.all_reduce(numbers)
    return numbers.tolist()


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


def backward(rank, model):
    """Weights are 1; the ranks' gradients are 1 and 2, so that their mean is 1.5."""
    model = DistributedDataParallel(model)
    weight = model.module.weight
    model(torch.full_like(weight, 1.0 + rank).detach()).sum().backward()
    return weight.tolist() + weight.grad.tolist()


def no_if(rank, device):
    model = Scale().to(device)
    model.half()
    return backward(rank, model)


def if_else(rank, device):
    model = Scale().to(device)
    if rank == 0:
        model.half()
    else:
        model.half()
    return backward(rank, model)


def if_else_of_two(rank, device):
    model = Scale().to(device)
    if rank == 0:
        model.half()
    else:
        model.bfloat16()
    return backward(rank, model)


def autocast_on_rank_0(rank, device):
    model = DistributedDataParallel(nn.Linear(4, 1, bias=False).to(device))
    with torch.autocast(device, BF16, enabled=rank == 0):
        output = model(torch.full((1, 4), 1.0 + rank, device=device))
    output.float().sum().backward()
    return model.module.weight.grad.flatten().tolist()


DETAIL = "DETAIL"
SCENES = {  # name: function, dtypes, TORCH_DISTRIBUTED_DEBUG
    "float16 on both": (all_reduce, (F16, F16), None),
    "float16 and bfloat16": (all_reduce, (F16, BF16), None),
    "float16 and bfloat16, DETAIL": (all_reduce, (F16, BF16), DETAIL),
    "float32 and float16": (all_reduce, (F32, F16), None),
    "float32 and float16, DETAIL": (all_reduce, (F32, F16), DETAIL),
    "DDP, no if": (no_if, (), None),
    "DDP, no if, DETAIL": (no_if, (), DETAIL),
    "DDP, if/else": (if_else, (), None),
    "DDP, if/else of two dtypes": (if_else_of_two, (), None),
    "DDP, autocast on rank 0": (autocast_on_rank_0, (), None),
}


def play(name, rank, device, folder):
    """Run one scene in this process; return what the rank has to say."""
    function, dtypes, debug = SCENES[name]
    if debug:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = debug
        dist.set_debug_level_from_env()  # as `import torch.distributed` does
    meet = f"file://{folder}/{list(SCENES).index(name)}"
    try:
        dist.init_process_group("gloo", meet, timedelta(seconds=SCENE_LIMIT - 5), 2, rank)
        return {"value": function(rank, device, *dtypes)}
    except Exception as error:
        return {"error": {"type": type(error).__name__, "message": str(error)}}


def play_apart(*scene):
    """`play` in a process of its own, ended after SCENE_LIMIT; returns what it says, or its end."""
    ear, mouth = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(SCENE_LIMIT)
            os.write(mouth, json.dumps(play(*scene)).encode())
        finally:
            os._exit(1)
    os.close(mouth)
    with open(ear, encoding="utf-8") as said:
        text = said.read()
    number = os.waitpid(child, 0)[1] & 127
    return json.loads(text) if text else {
        "ended_by": signal.Signals(number).name if number else "itself"}


def main(device, folder):
    import resource  # not on Windows, where these scenes can't be

    signal.alarm(LIMIT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # processes will crash: no dumps of them
    with suppress(ImportError):
        import torch._dynamo  # noqa: F401  DDP imports it: once here, or in each process
    rank = int(os.environ["RANK"])
    for name in SCENES:
        said = play_apart(name, rank, device, folder)
        print(json.dumps({"scene": name, "rank": rank, **said}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
