"""A pytest plugin: a test that fails on a dtype gets a section "autopsy" in its report.

The published package brings it to every pytest of its environment. From a checkout, in the
conftest.py of the top folder: pytest_plugins = ["cases.halftruths.pytest_plugin"]
"""

import sys


def pytest_runtest_makereport(item, call):
    """Add the section before pytest makes the report. What it returns, None, lets pytest go on."""
    if call.excinfo is None or sys.modules.get("torch") is None:  # None: a test hides it
        return
    error = call.excinfo.value
    if isinstance(error, Exception):  # pytest's own, for a test that is skipped, are none
        from .exceptions.answer import autopsy

        found = autopsy(error)
        if found.found:
            item.add_report_section(call.when, "autopsy", found.text())
