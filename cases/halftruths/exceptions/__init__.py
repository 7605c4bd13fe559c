"""Reads an exception: `answer.autopsy` is the way in.

`frames` and `values` read what a traceback holds, without running a line of it; `failures` finds
the expression that failed, `kinds` what kind of failure it is, `home` the odd operand, `road`
where its dtype came in, by the table in `rules`; `seams` and `cure` the line to change.
CONTRIBUTING.md has all of the modules. No `==`, `getattr` or call on a reader's objects:
tests/halftruths/promises counts.
"""
