"""A loop with a GradScaler whose steps are skipped: notebook 08.

Begin at model.py, then case.py.
"""
