"""All recorded evidence, run again: every case and all advice, on each torch that is live here.

Each check is a process of its own, two at once, the long ones first.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from cases.lab import gate, torches

LIVE = [torch_id for torch_id in torches.ids() if torches.is_live(torch_id)]
CHECKS = [(unit.name, torch_id) for torch_id in LIVE for unit in gate.units()]
LONG = ("encoder_bf16", "chatglm_prefix", "advice")


def check(name, torch_id):
    return subprocess.run(
        [sys.executable, "-m", "cases", "check", name, "--torch", torch_id],
        cwd=torches.ROOT, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    )


@pytest.fixture(scope="module")
def checked():
    """{(case, torch): future of the finished process}."""
    with ThreadPoolExecutor(2) as pool:
        order = sorted(CHECKS, key=lambda pair: pair[0] not in LONG)
        yield {pair: pool.submit(check, *pair) for pair in order}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "torch_id"), CHECKS)
def test_what_was_recorded_still_happens(name, torch_id, checked):
    done = checked[name, torch_id].result()
    assert done.returncode == 0, done.stdout
    if "not checked" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.stdout.startswith(f"✓ {name} on {torch_id}: 0 differences")
