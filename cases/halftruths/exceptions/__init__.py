"""Reads an exception: `answer.autopsy` is the way in."""
