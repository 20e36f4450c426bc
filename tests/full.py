"""What takes too long for every run of the tests: MRAY_TEST_FULL=1."""

from __future__ import annotations

import os

import pytest

FULL = os.environ.get("MRAY_TEST_FULL", "0") not in ("", "0")

#: A mark.
full = pytest.mark.skipif(not FULL, reason="takes long: with MRAY_TEST_FULL=1")
