"""Reads a message as text, without torch: `reader.explain` is the way in."""
