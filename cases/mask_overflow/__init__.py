"""An additive attention mask that overflows in half: notebook 07.

Begin at model.py, then case.py.
"""
