"""The command line: python -m cases list | run | check | record | new | advice | torches | …

Exit 0: it did what was asked (a reproduced failure is success). Exit 1: `check` found a
difference, or the script of `autopsy` raised. Exit 2: bad input, with one line on standard error
that names what is allowed.
"""

import json
import sys

import torch

import cases
from cases.halftruths import script
from cases.halftruths.base import BadInput, OneLineParser, number, obey
from cases.halftruths.messages import reader
from cases.lab import advice, emulate, evidence, gate, new, recorded_words, torches
from cases.lab.case import Missing, Silent
from cases.lab.outcome import verdict_of
from cases.lab.run import ask, check_device


def parser():
    top = OneLineParser(prog="python -m cases", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)

    def command(name, help, torch=True, device=True, several=False):
        sub = commands.add_parser(name, help=help)
        if torch:
            sub.add_argument("--torch", metavar="ID", help="another torch; see `torches`")
        if device:
            sub.add_argument("--device", default="cpu", help="cpu (default) or cuda")
        if several:
            sub.add_argument("cases", nargs="*", metavar="CASE",
                             help="default: every case, and advice")
        return sub

    sub = command("list", "the cases, their factors and fixes", torch=False, device=False)
    sub.add_argument("--json", action="store_true")
    sub = command("run", "run one case once and say what happened")
    sub.add_argument("case", metavar="CASE")
    sub.add_argument("--set", action="append", default=[], metavar="FACTOR=VALUE", nargs="+")
    sub.add_argument("--fix", action="append", default=[], metavar="NAME", nargs="+")
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--emulate", action="store_true",
                     help="with --device cuda: CUDA's autocast above the CPU's kernels, no GPU")
    command("check", "the two-sided gate: what was recorded must still happen", several=True)
    sub = command("record", "run every case and keep the outcomes as evidence", several=True)
    sub.add_argument("--out", metavar="DIR", help="a folder, instead of each case's own")
    sub = command("new", "write a new case: its folder, and a notebook", torch=False, device=False)
    sub.add_argument("name", metavar="NAME", help="lower-case words joined by _, as in kv_cache")
    sub = command("advice", "what articles recommend, tried: is it true, and where?")
    sub.add_argument("ids", nargs="*", metavar="ID", help="such as A2; default: all")
    sub.add_argument("--json", action="store_true")
    sub = command("torches", "which torches are live here, or recorded", torch=False, device=False)
    sub.add_argument("--json", action="store_true")
    sub = command("explain", "what a pasted error message means", torch=False, device=False)
    reader.add_arguments(sub)
    sub = command("autopsy", "run a script and explain what it raised", torch=False, device=False)
    script.add_arguments(sub)
    commands.metavar = "|".join(commands.choices)
    return top


def chosen(names):
    """Cases by name, all of them if none is named; BadInput for an unknown one."""
    try:
        return [cases.load(name) for name in names or cases.NAMES]
    except KeyError as error:
        raise BadInput(error.args[0]) from None


def settings_of(pairs):
    """Turn ["phase=train", …] into a dict."""
    setting = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"--set takes FACTOR=VALUE, not {pair!r}")
        setting[name] = value
    return setting


def flat(lists):
    return [item for items in lists for item in items]


def do_list(args):
    if args.json:
        print(json.dumps([entry(case) for case in chosen(())], indent=1))
        return 0
    for case in chosen(()):
        draft = " (a draft)" if case.name in cases.DRAFTS else ""
        print(f"{case.name}: {case.title}{draft}")
        for factor in case.factors:
            print(f"  factor {factor.name}: {', '.join(factor.values)}")
        for fix in case.fixes:
            print(f"  fix {fix.name} ({fix.origin}): {fix.help}")
    return 0


def entry(case):
    silent = isinstance(case.headline, Silent)
    return {
        "case": case.name,
        "title": case.title,
        "notebook": case.notebook,
        "draft": case.name in cases.DRAFTS,
        "error": None if silent else {"type": case.headline.type, "message": case.headline.text},
        "symptom": case.headline.text if silent else None,
        "factors": {factor.name: list(factor.values) for factor in case.factors},
        "fixes": [{"name": f.name, "origin": f.origin, "help": f.help} for f in case.fixes],
    }


def do_run(args):
    case = chosen([args.case])[0]
    setting, fixes = settings_of(flat(args.set)), flat(args.fix)
    if args.emulate:
        if args.device != "cuda" or args.torch:
            raise BadInput("--emulate goes with --device cuda, and with no --torch")
        outcome = emulate.run(case, setting, fixes)
    else:
        outcome = ask(case, setting, fixes, args.device, args.torch)
    if args.json:
        print(json.dumps(outcome.to_json(), ensure_ascii=False))
        return 0
    print(f"{verdict_of(case, outcome)}: {outcome.said}")
    if outcome.where:
        operands = ", ".join(
            f"{o['name']} {o['dtype']} {o['shape']}" for o in outcome.where["operands"]
        )
        print(f"  at {outcome.where['module'] or 'the program'}, {outcome.where['op']}({operands})")
    for fix in case.pick(outcome.fixes):
        if fix.needs_gpu and outcome.provenance == "live" and not torch.cuda.is_available():
            print(f"  {fix.name} needs a GPU, and this torch sees none")
    where = f"{outcome.device}, torch {outcome.torch}"
    when = f", recorded on {outcome.recorded['date']}" if outcome.recorded else ""
    print(f"  {outcome.provenance}: {where}{when}")
    return 0


def torch_to_run(args):
    """Id of a torch that is live here, the current one if none was named."""
    torch_id = args.torch or torches.current()
    if args.torch:
        torches.check_id(torch_id)
    if not torches.is_live(torch_id):
        raise BadInput(
            f"torch {torch_id!r} is not live here; live: "
            f"{', '.join(name for name in torches.ids() if torches.is_live(name))}"
        )
    if torch_id == torches.current():
        check_device(args.device)
    return torch_id


def do_check(args):
    torch_id, found = torch_to_run(args), 0
    for case in gate.units(args.cases):
        try:
            lines = gate.check(case, torch_id, args.device)
        except Missing as error:
            print(f"- {case.name}: not checked, {error}")
            continue
        except RuntimeError as error:  # its interpreter died, or gave no answer
            print(f"✗ {case.name} on {torch_id}: not checked, {error}")
            found += 1
            continue
        for line in lines:
            print(f"✗ {line}")
        found += len(lines)
        print(f"{'✗' if lines else '✓'} {case.name} on {torch_id}: "
              f"{len(lines)} difference{'' if len(lines) == 1 else 's'}")
    return 1 if found else 0


def do_record(args):
    torch_id, failed = torch_to_run(args), 0
    for case in gate.units(args.cases):
        try:
            written = gate.record(case, torch_id, args.device, args.out, Count(case))
        except Missing as error:
            print(f"- {case.name}: not recorded, {error}")
            continue
        except RuntimeError as error:  # its interpreter died, or gave no answer
            print(f"✗ {case.name} on {torch_id}: not recorded, {error}")
            failed = 1
            continue
        for path, items in written:
            print(f"✓ {case.name}: {items} outcomes in {path}")
        if not args.out and case is not advice.COLLECTION:
            print("".join(f"  {line}\n" for line in headline_to_say(case)), end="")
    for line in () if args.out else recorded_words.renew():
        print(line)
    return failed


def headline_to_say(case):
    """Lines on what case.py should say of its headline's torches, if it says something else."""
    seen = {torch_id: evidence.find(case, None, (), torch_id)
            for torch_id, device in evidence.files(case) if device == "cpu"}
    met = tuple(torch_id for torch_id, said in seen.items() if case.headline.met_by(said))
    if set(met) == set(case.headline.torches):
        return []
    return [f"recorded so far, the headline is met on these torches; put them in case.py: {met!r}",
            *(f"on {torch_id} the program did this: {said.said}"
              for torch_id, said in seen.items() if torch_id not in met)]


def do_new(args):
    paths = new.create(args.name)
    for path in paths:
        print(f"✓ {path.relative_to(torches.ROOT).as_posix()}")
    print(f"It runs as it stands: python -m cases run {args.name}. Then make it yours; "
          "CONTRIBUTING.md says how.")
    return 0


def do_advice(args):
    if args.device != "cpu" and not args.torch:
        check_device(args.device)
    picked = advice.COLLECTION.pick(args.ids)
    if args.torch:
        torches.check_id(args.torch)
    answers = (advice.ask(item.id, args.torch, args.device) for item in picked)
    if args.json:
        print(json.dumps([answer.to_json() for answer in answers], ensure_ascii=False, indent=1))
        return 0
    for answer in answers:
        print(answer, flush=True)
    return 0


class Count:
    """Outcomes counted on a terminal, one call each."""

    def __init__(self, case):
        self.case, self.done = case, 0

    def __call__(self):
        self.done += 1
        if sys.stderr.isatty():
            about = gate.sweep_size(self.case)
            print(f"\r{self.case.name}: {self.done} of about {about} ", end="", file=sys.stderr)


def known_torches():
    """Return every torch there is something of: a list of dicts, those listed first.

    Each has its entry's keys in env/torches.toml, "live" (bool) and "recorded" (the devices on
    which some case was recorded, sorted). One that is not listed, such as that of a machine with
    a GPU which recorded for us, has None for "python" and "how".
    """
    recorded = {}
    for name in cases.NAMES:
        for torch_id, device in evidence.files(cases.load(name)):
            recorded.setdefault(torch_id, set()).add(device)
    entries = {entry["id"]: entry for entry in torches.listed()}
    for torch_id in sorted({torches.current(), *recorded} - set(entries), key=number):
        entries[torch_id] = {"id": torch_id, "version": torch_id[len("torch-"):], "python": None,
                             "how": None, "for": "not in the list, env/torches.toml"}
    return [{**entry, "live": torches.is_live(torch_id),
             "recorded": sorted(recorded.get(torch_id, ()))}
            for torch_id, entry in entries.items()]


def do_torches(args):
    if args.json:
        print(json.dumps(known_torches()))
        return 0
    for entry in known_torches():
        state = ["live"] if entry["live"] else []
        state += [f"recorded on {' and '.join(entry['recorded'])}"] if entry["recorded"] else []
        print(f"{entry['id']:12} {entry['version']:8} {', '.join(state) or 'not here':31} "
              f"{entry['for']}")
    return 0


DO = {"list": do_list, "run": do_run, "check": do_check, "record": do_record, "new": do_new,
      "advice": do_advice, "torches": do_torches, "explain": reader.do_explain,
      "autopsy": script.do_autopsy}


def main(argv=None):
    def command():
        args = parser().parse_args(argv)
        return DO[args.command](args)

    try:
        return obey(command)
    except (OSError, RuntimeError) as error:
        print(f"python -m cases: {error}", file=sys.stderr)
        return 1
