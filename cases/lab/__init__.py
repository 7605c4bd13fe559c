"""Runs a case and remembers: torch and the standard library, from torch 1.13 on.

Begin at `case`, what a case is, and `run`, which runs one and says what happened as an
`outcome`; `numerics` has all thresholds. `evidence` keeps outcomes, `gate` holds them to be so
still, `torches` and `worker` ask another torch, `emulate` a GPU that is not there, `watch` draws
the road of a run. `advice` does what an article says and computes a verdict. `new` writes a new
case.
It may import halftruths, and nothing of the notebooks.
"""
