"""ChatGLM with a trained prefix, Half against Float: notebook 03.

Begin at model.py, then case.py.
"""
