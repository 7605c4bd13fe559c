"""A pytest plugin: a test that fails on a dtype gets a section "autopsy" in its report.

The published package brings it to every pytest of its environment. From a checkout, in the
conftest.py of the top folder: pytest_plugins = ["cases.halftruths.pytest_plugin"]
"""

import sys

from .script import autopsy_of


def pytest_runtest_makereport(item, call):
    """Add the section before pytest makes the report. What it returns, None, lets pytest go on.

    Without torch, and where a test hides it or has put something in its place, nothing is added:
    what went wrong here would end all of pytest.
    """
    version = getattr(sys.modules.get("torch"), "__version__", None)
    if call.excinfo is None or not isinstance(version, str):
        return
    error = call.excinfo.value
    if isinstance(error, Exception):  # pytest's own, for a test that is skipped, are none
        found, _ = autopsy_of(error)
        if found and found.found:
            item.add_report_section(call.when, "autopsy", found.text())
