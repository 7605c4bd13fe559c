"""The other end of cases.lab.torches: read one question a line, answer with one line."""

import json
import os
import sys

import cases
from cases.halftruths.base import BadInput
from cases.lab import torches
from cases.lab.case import Missing
from cases.lab.run import run


def answer(question):
    if "call" in question:
        return torches.call(torches.current(), question["call"], *question.get("arguments", ()))
    try:
        outcome = run(
            cases.load(question["case"]), question["setting"], question["fixes"],
            question["device"], question["training"],
        )
    except BadInput as error:
        return {"bad_input": str(error), "missing": isinstance(error, Missing)}
    return outcome.to_json()


def main():
    # Answers go to the real standard output; whatever a program prints goes to standard error.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
