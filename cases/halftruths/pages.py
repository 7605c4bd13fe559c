"""Where the notebooks are read by someone who has the tools alone."""

# GitHub shows notebooks. The one place to change when they get pages of their own.
BASE = "https://github.com/half-truths/half-truths/blob/HEAD/notebooks/"


def page(notebook):
    """Address of a notebook's page."""
    return BASE + notebook
