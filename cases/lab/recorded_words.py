"""The words that our programs were recorded raising, gathered for the message reader.

    python -m cases.lab.recorded_words      writes cases/halftruths/messages/recorded.json

The reader is published alone, without the evidence and the cases: this file is what it knows of
them. A test is red where it is not what the evidence says.
"""

import collections
import json

import cases
from cases.halftruths.base import BadInput
from cases.halftruths.messages import reader
from cases.halftruths.messages.words import plain
from cases.lab import evidence
from cases.lab.base import ROOT

PATH = reader.RECORDED


def gathered(root=ROOT):
    """Read all evidence: ({words: {(case, torch id, device), ...}}, {(case, fix): Counter}).

    The Counter has (words, verdict, costs) of the fix alone, each program that fails without it
    by those words counted once a torch and device. Raises BadInput, in one line, for a file that
    is damaged.
    """
    words, verdicts = {}, {}
    for path in sorted(root.glob("cases/*/evidence/*torch-*-*.json")):
        try:
            read(path, words, verdicts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            name = f"{path.name} of case {path.parent.parent.name}"
            raise BadInput(f"{name} is damaged or of a newer format ({error}); "
                           "record it again") from None
    return words, verdicts


def read(path, words, verdicts):
    """Add what one file of evidence holds to `words` and `verdicts`."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["format"] != evidence.FORMAT:
        raise ValueError(f"format {data['format']}, not {evidence.FORMAT}")
    about = data["provenance"]
    results = data.get("results", {})
    for result in results.values():
        if result["error"]:
            note(words, result["error"]["message"], about, result.get("torch"))
    for rows in (part for part in data.values() if isinstance(part, list)):
        for said in (cell for row in rows for cell in row if isinstance(cell, str)):
            if hit := reader.EXCEPTION.match(said):
                note(words, said[hit.end():], about)
    for _, by_result in data.get("outcomes", ()):
        alone = {name: results[key] for key, sets in by_result.items() for name in sets}
        if alone[""]["verdict"] == "fails":
            failed = reader.flat(plain(alone[""]["error"]["message"]))
            for name, result in alone.items():
                costs = tuple(cost["kind"] for cost in result["costs"])
                count = verdicts.setdefault((about["case"], name), collections.Counter())
                count[failed, result["verdict"], costs] += 1


def note(words, message, about, torch=None):
    """Add one recorded message to `words`; a fix may have sent the run to another torch."""
    version = "torch-" + ".".join((torch or about["torch"]).split(".")[:2])
    words.setdefault(reader.flat(plain(message)), set()).add(
        (about["case"], version, about["device"]))


def text(words, verdicts):
    """The file's text: sorted, an item a line."""
    notebooks = {name: cases.load(name).notebook for name in cases.NAMES}
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


if __name__ == "__main__":
    print(evidence.write_whole(PATH, text(*gathered())).relative_to(ROOT))
