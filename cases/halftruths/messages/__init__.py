"""Reads a message as text, without torch: `reader.explain` is the way in.

`rules.toml` is what it knows, and what to change to teach it; `recorded.json` the words that our
programs were recorded raising, which is made, see cases/lab/recorded_words.py.
"""
