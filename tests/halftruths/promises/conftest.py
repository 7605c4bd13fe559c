"""Nothing was called of the user's when a test begins: to collect it, pytest asks some of them."""

import pytest
from scenes import CALLS


@pytest.fixture(autouse=True)
def nothing_was_called():
    CALLS.clear()
