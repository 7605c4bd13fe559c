"""What another process or thread raised: its traceback is text, and its frames are gone.

A DataLoader's worker, or a replica of DataParallel, hands its error over with "Original Traceback"
in the message. The file is still here, and where the object at work is, too, so are its tensors.
"""

import re

from . import failures, frames, values

LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def failing(sites, message):
    """Return the Failure that a handed-over traceback tells of, or None if there is none."""
    if "Original Traceback" not in message:
        return None
    for file, line, name in reversed(LINE.findall(message)):
        site = frames.Site(file, int(line), name, None, (known(sites, name), {}), None)
        function = next(frames.functions_around(file, int(line)), None)
        if not site.mine or function is None:
            continue
        site.source = function
        node = frames.working(site)
        operands = list(failures.operands_of(node, site)) if node is not None else []
        return failures.Failure(site, node, operands, None, None, None) if operands else None
    return None


def known(sites, name):
    """{"self": the dataset} where the function is one of its methods; else nothing."""
    for site in sites:
        for value in list(site.locals.values()):
            held = values.stored(value)
            for dataset in (held.get("dataset"), held.get("_dataset")):
                if dataset is not None and name in values.space_of(type(dataset)):
                    return {"self": dataset}
    return {}
