"""Other users of this machine, for tests that run as root: programs that are theirs, and processes of theirs that attack ours."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import python_path

REPOSITORY = Path(__file__).resolve().parents[3]

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")

NOBODY_ID = 65534
#: The attacker: neither root nor nobody.
ATTACKER_ID = 65533
#: A user without processes here but those of one test run.
ALONE_ID = 30_000 + os.getpid() % 30_000
ATTACKER = Path(__file__).with_name("attacker.py")
#: Goes before a command that is to be nobody's.
NOBODY = ("setpriv", f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")

#: Bind what is named first to places in a folder, hide what is named second under empty folders, and put the first in them again.
_SHOW = """\
set -e
needed=$1 hidden=$2; shift 2
stash=$(mktemp -d); mount -t tmpfs tmpfs "$stash"; number=0
for each in $needed; do number=$((number + 1)); mkdir "$stash/$number"; mount --bind "$each" "$stash/$number"; done
for each in $hidden; do mount -t tmpfs -o mode=755 tmpfs "$each"; done
number=0
for each in $needed; do number=$((number + 1)); mkdir -p "$each"; mount --bind "$stash/$number" "$each"; done
umount -R -l "$stash"; rmdir "$stash"
exec "$@"
"""


@functools.cache
def as_root_beside_nobody() -> tuple[str, ...]:
    """Goes before a command that is root's, and whose interpreter and modules nobody can reach; skips the test where that cannot be had.

    An interpreter in root's home is shown to others in a mount namespace of the command's own.
    """
    needed = {os.path.realpath(place) for place in (sys.prefix, sys.base_prefix, str(REPOSITORY))}
    hidden = {above for place in needed if (above := _closed_above(place))}
    shown = [place for place in sorted(needed) if _closed_above(place)]
    before: tuple[str, ...] = ()
    if hidden:
        before = ("unshare", "--mount", "--propagation=private", "/bin/sh", "-c", _SHOW, "sh", " ".join(shown), " ".join(sorted(hidden)))
    tried = subprocess.run(
        [*before, *NOBODY, sys.executable, "-c", "import mray"],
        env={**os.environ, "PYTHONPATH": python_path()},
        cwd="/",
        capture_output=True,
        text=True,
    )
    if tried.returncode:
        pytest.skip(f"nobody cannot run mray here: {tried.stderr}")
    return before


def _closed_above(place: str) -> str | None:
    """The first folder on the way to a place that not everybody may pass."""
    path = Path(place)
    closed = [str(folder) for folder in (*reversed(path.parents), path) if not folder.stat().st_mode & 0o001]
    return closed[0] if closed else None


@contextlib.contextmanager
def attacked(tries: Iterable[tuple[str, object]]) -> Iterator[list[list[Any]]]:
    """While another user, who has tried these, keeps what he has: what worked, each as [what, where, what it gave]."""
    words = [sys.executable, "-SE", str(ATTACKER), str(ATTACKER_ID)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([(what, str(where)) for what, where in tries]) + "\n")
        process.stdin.flush()
        yield json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait() == 0
