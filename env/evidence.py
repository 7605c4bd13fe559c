"""Record every case, and what the advice does, on every torch that can be had here.

    make evidence                            all that is missing or older than its case
    make evidence ARGS="--torch torch-2.6"   that torch alone; may be given more than once
    make evidence ARGS=--cuda                also torches that come as CUDA builds, 5 GB each
    make evidence ARGS=--again               what is up to date too
    make evidence ARGS="--out DIR"           write there; other machines then record other torches
    make evidence ARGS="--gather DIR"        bring such files home

Without make: .venv/bin/python env/evidence.py, and the arguments.

A torch that is not here is made under .torches, asked, and deleted. Stop it whenever you like: each
file is written whole, and the next run does what is left. At the end recorded.json is renewed, what
`explain` knows of the evidence.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # not there under PYTHONSAFEPATH

import create
from tqdm import tqdm

from cases.halftruths.base import BadInput
from cases.lab import evidence, gate, recorded_words, torches
from cases.lab.case import Missing


def wanted(entries, every, folder, device, again):
    """Return {torch id: [case, …]} of what is to be recorded."""
    return {
        entry["id"]: [
            case for case in every
            if again or not up_to_date(case, entry["id"], entry["version"], folder, device)
        ]
        for entry in entries
    }


def up_to_date(case, torch_id, version, folder, device):
    """True if the files of a case on a torch were made of just this program on just that torch."""
    for survey, digest in evidence.digests(case).items():
        path = evidence.path_of(case, torch_id, device, folder, survey)
        try:
            found = evidence.provenance(path, case)
        except BadInput:  # damaged: record it again
            return False
        if not found or found["digest"] != digest or not found["torch"].startswith(version):
            return False
    return True


def sweep(todo, folder, device, cuda, bar):
    """Record {torch id: [case, …]}; yield a line for each file written, and each thing not done.

    The lines of what was not done begin with ✗ where it should have been, with - where it cannot.
    """
    for torch_id, chosen in todo.items():
        if not chosen:
            continue
        was_here = torches.is_live(torch_id)
        try:
            if not was_here:
                create.make_older(torch_id, cuda)  # which leaves nothing, where it fails
        except (create.Stop, create.Unavailable) as reason:
            bar.update(sum(map(gate.sweep_size, chosen)))
            yield f"- {torch_id}: {reason}"
            continue
        try:
            for case in chosen:
                yield from record(case, torch_id, folder, device, bar)
        finally:
            if not was_here:
                torches.close(torch_id)
                create.remove(torch_id)


def record(case, torch_id, folder, device, bar):
    bar.set_description(f"{torch_id} {case.name}")
    due = bar.n + gate.sweep_size(case)
    try:
        written = gate.record(case, torch_id, device, folder, bar.update)
    except Missing as reason:
        yield f"- {torch_id}: {case.name} not recorded, {reason}"
    except RuntimeError as reason:  # its interpreter died, or gave no answer
        yield f"✗ {case.name} not recorded: {reason}"
    else:
        for path, items in written:
            yield f"✓ {torch_id}: {items} outcomes in {path}, {path.stat().st_size / 1000:.0f} kB"
    bar.update(due - bar.n)  # the size was an estimate


def gather(folder, every):
    """Copy the evidence that other machines left in DIR, in any depth, into the cases' folders.

    Yields a line for each file: ✓ taken, or ✗ and why not. A file is taken only if it can be read
    and is no older than its case.
    """
    for case in every:
        known = evidence.digests(case)
        for path in sorted(Path(folder).rglob(f"{case.name}/*.json")):
            head = path.name.split("-")[0]
            survey = head if head in known else None
            try:
                found = evidence.provenance(path, case)
            except BadInput as reason:
                yield f"✗ {reason}"
                continue
            if found["digest"] != known[survey]:
                yield f"✗ {path}: older than the case, or newer"
                continue
            evidence.write_whole(case.folder / "evidence" / path.name, path.read_text("utf-8"))
            yield f"✓ {case.name}: {path.name}, recorded {found['date']} on {found['torch']}"


def check_writable(folder):
    """Raise BadInput unless files can be written in a folder, which is made if need be.

    Tried before hours of recording, and not only asked: root may write, and a file system may not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"cannot write in {folder} ({error.strerror}): name another folder with "
                       "--out") from None


def main(arguments):
    """Return the exit status: 0 all done that can be done here, 1 something failed."""
    parser = create.Parser(prog="env/evidence.py", description=__doc__.splitlines()[0])
    entries = {entry["id"]: entry for entry in torches.listed()}
    parser.add_argument("--torch", action="append", metavar="ID", help=", ".join(entries))
    names = [case.name for case in gate.units()]
    parser.add_argument("--case", action="append", metavar="CASE", help=", ".join(names))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cuda", action="store_true", help="permit CUDA builds")
    parser.add_argument("--again", action="store_true", help="record what is up to date too")
    parser.add_argument("--out", metavar="DIR", help="a folder, instead of each case's own")
    parser.add_argument("--gather", metavar="DIR", help="take evidence from there")
    given = parser.parse_args(arguments)
    for kind, allowed in (("torch", entries), ("case", names)):
        for name in getattr(given, kind) or ():
            if name not in allowed:
                parser.error(f"unknown {kind} {name!r}; allowed: {', '.join(allowed)}")
    every = gate.units(given.case or ())
    if given.gather:
        if not Path(given.gather).is_dir():
            parser.error(f"--gather: no folder {given.gather!r}")
        lines = list(gather(given.gather, every))
        print("\n".join(lines) or f"no evidence in {given.gather}")
        if any(line.startswith("✓") for line in lines):
            renew(None)
        return int(not lines or any(line.startswith("✗") for line in lines))
    if given.out:
        check_writable(Path(given.out))
    chosen = [entry for name, entry in entries.items() if name in (given.torch or entries)]
    todo = wanted(chosen, every, given.out, given.device, given.again)
    failed, total = 0, sum(gate.sweep_size(case) for case in sum(todo.values(), []))
    if not total:
        print("All evidence is up to date.")
        renew(given.out)
        return 0
    for case in () if given.out else sum(todo.values(), []):
        check_writable(case.folder / "evidence")
    with tqdm(total=total, unit=" outcomes", dynamic_ncols=True, disable=None) as bar:
        for line in sweep(todo, given.out, given.device, given.cuda, bar):
            tqdm.write(line)
            # A torch that was asked for by name is not to be passed over.
            failed += line.startswith("✗") or bool(given.torch and line.startswith("-"))
    renew(given.out)
    return int(bool(failed))


def renew(folder):
    """Renew what the message reader knows of the evidence, but not for files in another folder.

    Also where nothing was left to record: an earlier run may have been stopped before this.
    """
    for line in () if folder else recorded_words.renew():
        print(line)


if __name__ == "__main__":
    create.listen()
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt as signalled:
        print("env/evidence.py: stopped; run it again to do the rest", file=sys.stderr)
        sys.exit(128 + getattr(signalled, "number", 2))
    except (OSError, BadInput) as error:
        sys.exit(f"env/evidence.py: {error}")
