"""Evidence: outcomes kept as JSON, one file a case, torch and device, with provenance."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path

import torch

from cases.lab import torches
from cases.lab.case import BadInput
from cases.lab.run import Outcome

FORMAT = 1


class NotRecorded(BadInput):
    """A torch, device, setting or set of fixes that the evidence does not hold."""


def path_of(case, torch_id, device, folder=None):
    """File of a case's evidence; in `folder`, where one is given, each case has a folder too."""
    own = Path(folder) / case.name if folder else case.folder / "evidence"
    return own / f"{torch_id}-{device}.json"


def recorded(case, torch_id, device="cpu"):
    """True if there is a file of evidence for this torch and device."""
    return path_of(case, torch_id, device).exists()


def read(case, torch_id, device="cpu"):
    """Return a file of evidence as a dict whose outcomes are Outcomes, or None if there is none.

    Raises BadInput, in one line, if it is damaged or of a newer format.
    """
    path = path_of(case, torch_id, device)
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] > FORMAT:
            raise BadInput(f"{path.name} of case {case.name} has format {data['format']}; "
                           f"this version reads up to {FORMAT}")
        data["outcomes"] = [revive(entry, data["provenance"]) for entry in data["outcomes"]]
        data["provenance"]["digest"]
    except BadInput:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path.name} of case {case.name} is damaged ({error}); record it again"
        ) from None
    return data


def outcomes(case, torch_id, device="cpu"):
    """Return the recorded Outcomes, labelled so; an empty list where nothing was recorded."""
    data = read(case, torch_id, device)
    return data["outcomes"] if data else []


def revive(entry, provenance):
    label = {key: provenance[key] for key in ("torch", "device", "date")}
    return Outcome.from_json(
        {"torch": provenance["torch"], **entry, "case": provenance["case"],
         "device": provenance["device"], "provenance": "recorded", "recorded": label}
    )


def find(case, setting, fixes, torch_id, device="cpu"):
    """Return the recorded Outcome of one program and set of fixes.

    Raises NotRecorded if it was not recorded.
    """
    setting, names = case.setting(setting), [fix.name for fix in case.pick(fixes)]
    found = outcomes(case, torch_id, device)
    if not found:
        raise NotRecorded(f"case {case.name} was not recorded on {torch_id}, {device}")
    for outcome in found:
        if outcome.factors == setting and outcome.fixes == names:
            return outcome
    raise NotRecorded(
        f"case {case.name} was not recorded on {torch_id}, {device} with these factors and fixes; "
        "recorded are all factors with no fix, each fix alone, all fixes, and the smallest "
        "sufficient sets"
    )


def machine():
    """Versions and kind of machine of this interpreter, as provenance. Runs in any torch."""
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.system(),
        "processor": platform.machine(),
    }


def write(case, torch_id, device, entries, machine, folder=None):
    """Write evidence, sorted, one outcome a line. Returns the path.

    entries: outcomes as dicts. machine: what `machine` returned in the torch they ran in.
    """
    path = path_of(case, torch_id, device, folder)
    provenance = {
        "case": case.name,
        "device": device,
        **machine,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "digest": case.digest,
    }
    kept = ("factors", "fixes", "status", "verdict", "error", "where", "output_dtype",
            "relative_error", "costs")

    def line(entry):
        # A fix may send the run to another torch: then the outcome is that one's, and says so.
        own = {"torch": entry["torch"]} if entry["torch"] != machine["torch"] else {}
        return json.dumps({**{key: entry[key] for key in kept}, **own}, ensure_ascii=False)

    lines = sorted(map(line, entries))
    text = (
        f'{{"format": {FORMAT},\n "provenance": {json.dumps(provenance)},\n "outcomes": [\n  '
        + ",\n  ".join(lines) + "\n ]}\n"
    )
    return write_whole(path, text)


def write_whole(path, text):
    """Write a file by way of a temporary one, so that it is never there by halves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    return path


def commit():
    """The project's commit, or 'unknown' outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=torches.ROOT, capture_output=True,
            text=True, timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"
