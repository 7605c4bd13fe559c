"""Addresses: where the notebooks are read by someone who has the tools alone, and links in HTML."""

import html
import re

# GitHub shows notebooks. The one place to change when they get pages of their own.
BASE = "https://github.com/half-truths/half-truths/blob/HEAD/notebooks/"
# Up to the last character that is no punctuation: a sentence, or a bracket, may end behind it.
ADDRESS = re.compile(r"(https?://[^\s<>\"'`]*[\w/#=-])", re.ASCII)


def page(notebook):
    """Address of a notebook's page."""
    return BASE + notebook


def linked(text):
    """Return a text as HTML, escaped, with each address in it a link.

    It opens beside the notebook, which would be left otherwise.
    """
    parts = [html.escape(part) for part in ADDRESS.split(text)]
    parts[1::2] = [f'<a href="{address}" target="_blank" rel="noopener">{address}</a>'
                   for address in parts[1::2]]
    return "".join(parts)
