"""A padded nn.TransformerEncoder under bf16 autocast, in validation: notebook 01.

Begin at model.py, then case.py.
"""
