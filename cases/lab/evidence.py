"""Evidence: what was measured, kept as JSON, one file a case, torch and device, with provenance.

Outcomes repeat: of one program most fixes change nothing. So a file holds each distinct result
once, under a hash of itself, and for each setting of the factors which fixes gave which result:

    {"format": 2, "provenance": {…},
     "results": {"3f2a1c0b": {"status": "raised", "verdict": "fails", "error": {…}, …}, …},
     "outcomes": [[{"phase": "validate", …}, {"3f2a1c0b": ["", "one_fix", "two_fixes+another"]}]]}

A case may also have surveys (see cases.lab.case.Case); their files are named after them.
"""

import copy
import datetime
import functools
import hashlib
import importlib
import inspect
import json
import os
import platform
import subprocess
from pathlib import Path

import torch

from cases.halftruths.base import BadInput, number
from cases.lab import torches
from cases.lab.outcome import Outcome

FORMAT = 2  # of the files
ELSEWHERE = "on other processors"  # the part of a survey's file that holds what those said
RESULT = ("status", "verdict", "error", "where", "output_dtype", "relative_error", "costs")


class NotRecorded(BadInput):
    """A torch, device, setting or set of fixes that the evidence does not hold."""


def path_of(case, torch_id, device, folder=None, survey=None):
    """File of a case's evidence; in `folder`, where one is given, each case has a folder too."""
    own = Path(folder) / case.name if folder else case.folder / "evidence"
    return own / f"{survey + '-' if survey else ''}{torch_id}-{device}.json"


def recorded(case, torch_id, device="cpu"):
    """True if there is a file of evidence for this torch and device."""
    return path_of(case, torch_id, device).exists()


def files(case, survey=None):
    """Return [(torch id, device), …] of the evidence there is of a case, oldest torch first."""
    head = f"{survey}-torch-" if survey else "torch-"
    stems = [path.stem[len(head) - len("torch-"):]
             for path in (case.folder / "evidence").glob(f"{head}*-*.json")]
    pairs = [tuple(stem.rsplit("-", 1)) for stem in stems]
    return sorted(pairs, key=lambda pair: (number(pair[0]), pair[1]))


def load(path, case, build):
    """Return build(the JSON of a case's file), or None if there is no file.

    Raises BadInput, in one line, if it is damaged or of a newer format.
    """
    try:
        return built(path, path.stat().st_mtime_ns, build)
    except FileNotFoundError:
        return None
    except NewerFormat as error:
        raise BadInput(f"{path.name} of case {case.name} has format {error}; "
                       f"this version reads up to {FORMAT}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path.name} of case {case.name} is damaged ({error}); "
                       "record it again") from None


class NewerFormat(Exception):
    """The format of a file that a later version of this project wrote."""


@functools.cache
def built(path, changed, build):
    """Read a file once, however often a panel asks; `changed` is its time of change."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["format"] > FORMAT:
        raise NewerFormat(data["format"])
    if data["format"] < FORMAT:
        raise ValueError(f"format {data['format']}, older than {FORMAT}")
    for key in ("torch", "device", "date", "digest"):
        data["provenance"][key]
    return build(data)


def read(case, torch_id, device="cpu"):
    """Return {"provenance": …, "outcomes": {key: Outcome}}, or None if there is no such file.

    A key is (the setting's items, the names of the fixes), as tuples. Not to be changed: it is
    read once. Raises as `load` does.
    """
    return load(path_of(case, torch_id, device), case, revive)


def revive(data):
    found, provenance = {}, data["provenance"]
    label = {key: provenance[key] for key in ("torch", "device", "date")}
    for setting, by_result in data["outcomes"]:
        for result, sets in by_result.items():
            for joined in sets:
                fixes = joined.split("+") if joined else []
                found[tuple(setting.items()), tuple(fixes)] = Outcome.from_json({
                    "torch": provenance["torch"], **data["results"][result],
                    "case": provenance["case"], "factors": setting, "fixes": fixes,
                    "device": provenance["device"], "provenance": "recorded", "recorded": label,
                })
    return {"provenance": provenance, "outcomes": found}


def outcomes(case, torch_id, device="cpu"):
    """Return the recorded Outcomes, labelled so; an empty list where nothing was recorded."""
    data = read(case, torch_id, device)
    return copy.deepcopy(list(data["outcomes"].values())) if data else []


def find(case, setting, fixes, torch_id, device="cpu"):
    """Return the recorded Outcome of one program and set of fixes.

    Raises NotRecorded if it was not recorded.
    """
    setting, names = case.setting(setting), tuple(fix.name for fix in case.pick(fixes))
    data = read(case, torch_id, device)
    if data is None:
        raise NotRecorded(f"case {case.name} was not recorded on {torch_id}, {device}")
    outcome = data["outcomes"].get((tuple(setting.items()), names))
    if outcome is None:
        raise NotRecorded(
            f"case {case.name} was not recorded on {torch_id}, {device} with these factors and "
            "fixes; recorded are all factors with no fix, each fix alone, all fixes, and the "
            "smallest sufficient sets"
        )
    return copy.deepcopy(outcome)


def read_survey(case, name, torch_id, device="cpu"):
    """Return a survey's file as a dict, with "provenance" in it, or None. Raises as `load`."""
    return load(path_of(case, torch_id, device, survey=name), case, dict)


def survey_digest(function):
    """Hash of the module that a survey, "module:function", stands in."""
    module = importlib.import_module(function.split(":")[0])
    return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:16]


def digests(case):
    """Return {None: hash of the case, survey's name: hash of its module}: what files must have."""
    return {None: case.digest, **{name: survey_digest(f) for name, f in case.surveys}}


def provenance(path, case):
    """Return the provenance of a file of evidence, or None if there is none; raises as `load`."""
    data = load(path, case, dict)
    return data and data["provenance"]


def stale(case):
    """Return the names of the files of evidence that are older than what they speak of.

    A file knows the hash of the program and fixes, or of the survey, that it was made with.
    """
    paths = [(path_of(case, torch_id, device, survey=survey), digest)
             for survey, digest in digests(case).items()
             for torch_id, device in files(case, survey)]
    return [path.name for path, digest in paths if provenance(path, case)["digest"] != digest]


def machine(device="cpu"):
    """Versions and kind of machine of this interpreter, as provenance. Runs in any torch."""
    found = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.system(),
        "processor": f"{platform.machine()} {vector_units()}".rstrip(),
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name(0)
        found["cuda"] = torch.version.cuda
    return found


def vector_units():
    """The widest vector units of this processor, in torch's words: AVX512, AVX2, …; '' if unknown.

    They decide which kernels oneDNN has, and so what some operations say. Older torches do not
    tell, or tell what their own kernels were built for; the system then does.
    """
    capability = getattr(torch.backends, "cpu", None)  # from torch 2.1 on
    if capability:
        return capability.get_cpu_capability()
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    needs = {"AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, "AVX2": {"avx2", "fma"}}
    return next((name for name, units in needs.items() if units <= set(flags)), "")


def new_provenance(case, device, machine, digest):
    return {"case": case.name, "device": device, **machine,
            "date": datetime.date.today().isoformat(), "commit": commit(), "digest": digest}


def write(case, torch_id, device, entries, machine, folder=None):
    """Write evidence, sorted, one result or setting a line. Returns the path.

    entries: outcomes as dicts. machine: what `machine` returned in the torch they ran in.
    """
    results, settings = {}, {}
    for entry in entries:
        # A fix may send the run to another torch: then the outcome is that one's, and says so.
        own = {"torch": entry["torch"]} if entry["torch"] != machine["torch"] else {}
        text = dump({**{key: entry[key] for key in RESULT}, **own})
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        if results.setdefault(name, text) != text:
            raise RuntimeError(f"two results of case {case.name} have the hash {name}")
        by_result = settings.setdefault(dump(entry["factors"]), {})
        by_result.setdefault(name, []).append("+".join(entry["fixes"]))
    lines = [
        f"[{setting}, {dump({name: sorted(by_result[name]) for name in sorted(by_result)})}]"
        for setting, by_result in sorted(settings.items())
    ]
    return write_file(path_of(case, torch_id, device, folder),
                      new_provenance(case, device, machine, case.digest),
                      {"results": results, "outcomes": lines})


def write_survey(case, name, function, torch_id, device, found, machine, folder=None):
    """Write what a survey returned, a dict of lists, one item a line. Returns the path.

    Where another kind of processor said something else, that is kept, under ELSEWHERE: items
    [processor, part, item]. It goes with the survey's code, as all evidence does.
    """
    digest = survey_digest(function)
    old = read_survey(case, name, torch_id, device)
    elsewhere = []
    if old and old["provenance"]["digest"] == digest:
        was, here = old["provenance"]["processor"], machine["processor"]
        elsewhere = [item for item in old.get(ELSEWHERE, ()) if item[0] != here]
        elsewhere += [[was, part, item] for part in found if was != here
                      for item in old.get(part, ()) if item not in found[part]]
    kept = {ELSEWHERE: elsewhere} if elsewhere else {}
    parts = {key: [dump(item) for item in items] for key, items in {**found, **kept}.items()}
    return write_file(path_of(case, torch_id, device, folder, name),
                      new_provenance(case, device, machine, digest), parts)


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def write_file(path, provenance, parts):
    """Write each part under the provenance: a list of JSON texts, or a dict of them, by name."""
    blocks = [f'"format": {FORMAT}', f'"provenance": {dump(provenance)}']
    for key, lines in parts.items():
        named = isinstance(lines, dict)
        lines = [f'"{name}": {lines[name]}' for name in sorted(lines)] if named else list(lines)
        start, end = "{}" if named else "[]"
        blocks.append(f'"{key}": {start}\n  ' + ",\n  ".join(lines) + f"\n {end}")
    return write_whole(path, "{" + ",\n ".join(blocks) + "}\n")


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
