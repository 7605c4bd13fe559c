"""Operations that the CPU does not have in half: notebook 04.

Begin at model.py, then case.py.
"""
