"""Programs of tests that run where /dev/shm, or a disk, is small: in a mount namespace of their own.

A container may lack the right to mount; then a user namespace, where the program is root, may give it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checkout import python_path

SHM = "/dev/shm"
_WAYS = (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount"))


@functools.cache
def _way() -> tuple[tuple[str, ...], str]:
    """The prefix of a command that may mount, and the reason where there is none."""
    complaint = "unshare is not installed"
    if shutil.which("unshare") is not None:
        for way in _WAYS:
            tried = subprocess.run([*way, "mount", "-t", "tmpfs", "none", SHM], capture_output=True, text=True, check=False)
            if not tried.returncode:
                return way, ""
            complaint = tried.stderr.strip()
    return (), complaint


def command(program: Path, *words: str, places: Mapping[str, str]) -> list[str]:
    """The command line of a Python program that sees a tmpfs of so many bytes (``48m``) at each place; skips where none can be mounted."""
    way, complaint = _way()
    if complaint:
        pytest.skip(f"nothing may be mounted here: {complaint}")
    mounts = " && ".join(f"mount -t tmpfs -o mode=1777,size={size} none {place}" for place, size in places.items())
    return [*way, "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-X", "faulthandler", str(program), *words]


def run(program: Path, *words: str, places: Mapping[str, str], seconds: float = 300.0, **variables: str) -> list[str]:
    """The lines that such a program prints; fails when it ends with an error, or not within so many seconds."""
    process = subprocess.Popen(
        command(program, *words, places=places),
        env={**os.environ, "PYTHONPATH": python_path(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(6)  # it shows where it is
        output, errors = process.communicate()
        pytest.fail(f"the program hangs; it printed\n{output}\n{errors}")
    assert process.returncode == 0, f"{output}\n{errors}"
    return output.splitlines()
