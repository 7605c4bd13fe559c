"""What the message reader reads: the rules, and the words that our programs were recorded raising.

    python -m cases.lab.recorded_words      renews rules.json and recorded.json in
                                            cases/halftruths/messages

`python -m cases record` and env/evidence.py do so too, after they wrote evidence.

The reader is published alone, without the evidence and the cases: recorded.json is what it knows
of them. rules.json is rules.toml, for a Python without a parser of TOML. A test is red where one of
them is not what it was made from.
"""

import collections
import json
from types import SimpleNamespace

import cases
from cases.halftruths.messages import reader
from cases.halftruths.messages.words import plain
from cases.lab import evidence
from cases.lab.base import ROOT, read_toml


def gathered(root=ROOT):
    """Read all evidence: ({words: {(case, torch id, device), ...}}, {(case, fix): Counter}).

    The Counter has (words, verdict, costs) of the fix alone, each program that fails without it
    by those words counted once a torch and device. Raises as evidence.load does.
    """
    words, verdicts = {}, {}
    for path in sorted(root.glob("cases/*/evidence/*torch-*-*.json")):
        name = path.parent.parent.name
        if name in cases.DRAFTS:
            continue
        said, counts = evidence.load(path, SimpleNamespace(name=name), told)
        for message, about in said:
            words.setdefault(message, set()).add(about)
        for fix, key in counts:
            verdicts.setdefault(fix, collections.Counter())[key] += 1
    return words, verdicts


def told(data):
    """What one file of evidence holds: ([(words, (case, torch id, device)), ...],
    [((case, fix), (words, verdict, costs)), ...])."""
    about = data["provenance"]
    results = data.get("results", {})
    said = [noted(result["error"]["message"], about, result.get("torch"))
            for result in results.values() if result["error"]]
    for rows in (part for part in data.values() if isinstance(part, list)):
        said += [noted(cell[hit.end():], about) for row in rows for cell in row
                 if isinstance(cell, str) and (hit := reader.EXCEPTION.match(cell))]
    counts = []
    for _, by_result in data.get("outcomes", ()):
        alone = {name: results[key] for key, sets in by_result.items() for name in sets}
        if alone[""]["verdict"] == "fails":
            failed = reader.flat(plain(alone[""]["error"]["message"]))
            counts += [((about["case"], name), (failed, result["verdict"],
                                                tuple(cost["kind"] for cost in result["costs"])))
                       for name, result in alone.items()]
    return said, counts


def noted(message, about, torch=None):
    """A recorded message's words, and where they were said; a fix may have run another torch."""
    version = "torch-" + ".".join((torch or about["torch"]).split(".")[:2])
    return reader.flat(plain(message)), (about["case"], version, about["device"])


def text(words, verdicts):
    """The file's text: sorted, an item a line."""
    notebooks = {name: cases.load(name).notebook for name in cases.RECORDED}
    rows = [[*pair, *key, times] for pair, count in verdicts.items()
            for key, times in count.items()]
    parts = {
        "notebooks": [f"{evidence.dump(name)}: {evidence.dump(file)}"
                      for name, file in notebooks.items()],
        "words": [f"{evidence.dump(said)}: {evidence.dump(sorted(places))}"
                  for said, places in sorted(words.items())],
        "fixes": sorted(map(evidence.dump, rows)),
    }
    blocks = []
    for name, lines in parts.items():
        start, end = "[]" if name == "fixes" else "{}"
        blocks.append(f' "{name}": {start}\n  ' + ",\n  ".join(lines) + f"\n {end}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def rules_text():
    """The text of rules.json."""
    rules = read_toml(reader.RULES.with_suffix(".toml"))["rule"]
    return json.dumps(rules, ensure_ascii=False, indent=1) + "\n"


def renew():
    """Write those of the two files that are not what they should be; return a line for each."""
    wanted = {reader.RULES: rules_text(), reader.RECORDED: text(*gathered())}
    old = [path for path, said in wanted.items()
           if not path.exists() or path.read_text(encoding="utf-8") != said]
    return [f"✓ {evidence.write_whole(path, wanted[path]).name} renewed, for `explain`"
            for path in old]


if __name__ == "__main__":
    print("\n".join(renew()) or "rules.json and recorded.json are up to date")
