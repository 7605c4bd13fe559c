"""What needs no torch: bad input, the command line's parser, torch ids."""

import argparse
import sys

# The command that is there: the published package's own, or in a checkout ours.
PROGRAM = "python -m cases" if "." in __package__ else "half-truths"


class BadInput(ValueError):
    """What was asked for does not exist; the message is one line that lists what is allowed."""


class OneLineParser(argparse.ArgumentParser):
    """argparse prints its usage before an error; here bad input gets one line."""

    def error(self, message):
        raise BadInput(message)


def obey(command, program=PROGRAM):
    """Return a command's exit code; BadInput becomes one line on standard error, and 2."""
    try:
        return command()
    except BadInput as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2


def number(torch_id):
    """Return 'torch-2.13' as (2, 13), to tell older from newer."""
    return tuple(int(part) for part in torch_id[len("torch-"):].split("."))


def spans(ids, listed):
    """Write torch ids as '1.13, 2.2 to 2.14'; of `listed`, a span leaves none out."""
    order = sorted(listed, key=number)
    runs = []
    for place in sorted(map(order.index, ids)):
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    names = [[order[place].removeprefix("torch-") for place in run] for run in runs]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(run) for run in names)
