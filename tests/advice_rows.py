"""What the check of a piece of advice says on this torch, on the CPU: for the tests of its rows."""

from cases.lab.advice import Seen, judged, observe


def effects(id):
    """{scene: effect} of a piece of advice."""
    return {seen["scene"]: seen["effect"] for seen in observe(id)}


def verdict(id):
    """The verdict that follows from it."""
    return judged(Seen(**seen) for seen in observe(id))
