"""All recorded evidence, run again: every case and all advice, on each torch that is live here.

One process a torch answers for all of them, each in a line of its own.
"""

import functools
import os
import re
import subprocess
import sys

import pytest

from cases.lab import gate, torches

LIVE = [torch_id for torch_id in torches.ids() if torches.is_live(torch_id)]
CHECKS = [(unit.name, torch_id) for torch_id in LIVE for unit in gate.units()]


@functools.cache
def checked(torch_id):
    """All that `python -m cases check` says of a torch."""
    return subprocess.run(
        [sys.executable, "-m", "cases", "check", "--torch", torch_id],
        cwd=torches.ROOT, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
    ).stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "torch_id"), CHECKS)
def test_what_was_recorded_still_happens(name, torch_id):
    said = checked(torch_id)
    missing = re.search(rf"^- {name}: not checked, .*$", said, re.MULTILINE)
    if missing:
        pytest.skip(missing[0])
    assert f"\n✓ {name} on {torch_id}: 0 differences\n" in f"\n{said}", said
