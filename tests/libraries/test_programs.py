"""Programs of Ray's own libraries. With ``MRAY_TEST_ENGINE=ray`` they run on Ray itself, with the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("ray.data" if os.environ.get("MRAY_TEST_ENGINE") == "ray" else "ray", reason="Ray's libraries are not installed")
pytest.importorskip("starlette")

RAY = os.environ.get("MRAY_TEST_ENGINE") == "ray"
#: Seconds.
PATIENCE = 300
pytestmark = pytest.mark.timeout(PATIENCE + 50)


def run(name: str) -> dict[str, Any]:
    """The results of an example."""
    from mray.examples import libraries

    program = os.path.join(os.path.dirname(libraries.__file__), f"{name}.py")
    command = [sys.executable, program] if RAY else [sys.executable, "-m", "mray", "run", "--libraries", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_data() -> None:
    assert run("data") == {
        "sum": 332833500,
        "first": [{"id": 0, "square": 0}, {"id": 1, "square": 1}, {"id": 2, "square": 4}],
        "batches": [100, 300, 300, 300],
        "groups": [[0, 334], [1, 333], [2, 333]],
        "sorted": [999, 998, 997, 996],
        "pool": 1498500,
        "zipped": [[0, "zero"], [1, "one"], [2, "two"]],
        "together": 2000,
        "flat": 4,
        "read back": [1000, 332833500],
    }


def test_tune() -> None:
    assert run("tune") == {"grid": [4, 0, 34, {"slope": 2, "base": 20}], "asha": [4, 0, 8], "revived": [5, 3, 0]}


def test_serve() -> None:
    assert run("serve") == {
        "by handle": list(range(0, 32, 2)),
        "in batches": True,
        "over HTTP": {"doubled": 42},
        "streamed": ["line 0", "line 1", "line 2"],
        "status": "RUNNING",
    }
