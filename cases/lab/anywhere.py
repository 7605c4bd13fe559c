"""One outcome wherever it can be had: live here, live in another interpreter, or recorded."""

from cases.lab import evidence, torches
from cases.lab.run import check_device, run


def ask(case, setting=None, fixes=(), device="cpu", torch_id=None, training=True):
    """Return the Outcome of `case` on `torch_id` (None or "current": this process's torch).

    Where that torch is not live here the outcome comes from evidence and is labelled recorded.
    Raises BadInput for anything that does not exist, or was not recorded.
    """
    if torch_id in (None, "current", torches.current()):
        return run(case, setting, fixes, device, training)
    torches.check_id(torch_id)
    setting, names = case.setting(setting), [fix.name for fix in case.pick(fixes)]
    if torches.is_live(torch_id):
        return torches.ask(torch_id, case.name, setting, names, device, training)
    if device not in ("cpu", "cuda"):
        check_device(device)
    return evidence.find(case, setting, names, torch_id, device)


def known_torches(case):
    """Ids of the torches that `case` can be asked on: live here, or with evidence."""
    return [
        torch_id
        for torch_id in torches.ids()
        if torches.is_live(torch_id) or evidence.recorded(case, torch_id)
    ]
