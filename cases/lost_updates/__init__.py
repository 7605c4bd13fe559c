"""Weights, averages and sums too coarse for their updates: notebook 06.

Begin at model.py, then case.py.
"""
