"""Advice on several processes, tried with two of them on this machine."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from cases.lab.advice import advice, difference, fact, not_shown
from cases.lab.base import ROOT

SCRIPT = "cases.advice.two_ranks"
LIMIT = 100  # seconds; the ranks end by themselves before that
NO_ANSWER = f"the ranks need os.fork and gloo, and {LIMIT} s: no answer came from both"


def two_ranks(device):
    """What both ranks say in the scenes of two_ranks.py, as {scene: [rank 0's, rank 1's]}."""
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        # torchrun; what the ranks print goes to files. Debian's torch 1.13 starts none without.
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2",
                   "--master_addr=127.0.0.1", f"--master_port={port}",
                   "--redirects=1", "--tee=1", f"--log_dir={folder}",
                   "--module", SCRIPT, device, folder]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=ROOT, timeout=LIMIT,
                env={**os.environ, "GLOO_SOCKET_IFNAME": loopback}, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for file in Path(folder).rglob("stdout.log")
                 for line in file.read_text(encoding="utf-8").splitlines()
                 if line.startswith("{")]  # gloo of torch 2.9 prints there too
    found = {}
    for line in sorted(lines, key=lambda line: line["rank"]):
        found.setdefault(line["scene"], []).append(line)
    return {scene: both for scene, both in found.items() if len(both) == 2}


def numbers(both):
    """What the two ranks ended up with, or None for one that came to nothing."""
    return [said.get("value") for said in both]


def told(both):
    """In words. Gloo's own errors begin with a line of its source, and name a port: left out."""
    parts = []
    for said in both:
        if "value" in said:
            parts.append(", ".join(f"{value:.3g}" for value in dict.fromkeys(said["value"])))
        elif "ended_by" in said:
            parts.append(f"ended by {said['ended_by']}")
        else:
            words = re.sub(r"^\[.*", "connection lost", said["error"]["message"].split(". ")[0])
            parts.append(f"{said['error']['type']}: {words}")
    return f"both: {parts[0]}" if parts[0] == parts[1] else f"rank 0: {parts[0]}; 1: {parts[1]}"


@advice(
    "C14",
    article="chatglm",
    claim="In distributed training every rank must set the same dtype; an if/else on the rank "
          "does it.",
    why="A collective sends bytes, and each rank reads those it gets in its own dtype: only what "
        "is sent must agree, and a branch on the rank is a way to make it differ.",
    instead="Set the dtype in a line that all ranks run. TORCH_DISTRIBUTED_DEBUG=DETAIL names a "
            "mismatch, but in torch 2.9 to 2.14 DDP over gloo crashes under it, whatever the "
            "dtypes.",
    source="pytorch/pytorch#150248; https://docs.pytorch.org/docs/stable/distributed.html, "
           "TORCH_DISTRIBUTED_DEBUG",
    notebook="05",
)
def dtypes_of_two_ranks(device):
    said, reduced, trained = two_ranks(device), [3.0] * 4, [1.0] * 4 + [1.5] * 4
    must_work = {"float16 on both": reduced, "DDP, no if": trained, "DDP, no if, DETAIL": trained}
    must_not = {"float16 and bfloat16": reduced, "float16 and bfloat16, DETAIL": reduced,
                "float32 and float16": reduced, "float32 and float16, DETAIL": reduced,
                "DDP, if/else of two dtypes": trained, "DDP, autocast on rank 0": [1.5] * 4}
    for scene, right in {**must_work, **must_not}.items():
        if scene not in said:
            yield not_shown(scene, NO_ANSWER)
            continue
        works = numbers(said[scene]) == [right, right]
        yield fact(scene, works == (scene in must_work), told(said[scene]))
    one_line, branches = said.get("DDP, no if"), said.get("DDP, if/else")
    if not one_line or not branches:
        yield not_shown("DDP, if/else", NO_ANSWER)
        return
    yield difference("DDP, if/else", numbers(one_line), numbers(branches),
                     shown=f"one line without an if gives {told(one_line)}; the if/else gives "
                           f"{told(branches)}")
