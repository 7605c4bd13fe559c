"""A half Llama that is fed float32 pictures: notebook 02.

Begin at model.py, then case.py.
"""
