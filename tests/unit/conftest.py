"""A process for the tests that watch one end; hypothesis without limits of time, which a busy machine exceeds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import hypothesis
import pytest

hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()
