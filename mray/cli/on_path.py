"""A command ``ray`` on the ``PATH`` of programs that `mray run` runs, so that those that start Ray's command find mray's.

::

    program under mray run ──exec ray start --head --port N──▶ mray.cli.ray_command ──▶ mray start ──▶ a session at host:N
            └── RAY_ADDRESS=host:N; ray.init() joins it

Rejected: a package ``ray`` on ``PYTHONPATH``, for ``python -m ray.scripts.scripts``: every Python that the program starts, in any
environment, would import it.
"""

from __future__ import annotations

import contextlib
import shlex
import zlib
from pathlib import Path

from mray._common.cache import cache_folder
from mray._common.kept import io, os
from mray._inside.processes import interpreter
from mray._inside.sessions import is_private
from mray.exceptions import RaySystemError

#: It imports the mray that wrote it, and nothing from the current directory.
_PROGRAM = (
    "import sys; root = {root!r}; sys.path[:1] = [] if root in sys.path[1:] else [root]; import mray.cli.ray_command; "
    "mray.cli.ray_command.main()"
)


def put_on_path() -> None:
    """Make ``ray`` mray's in the programs that this process starts. Does nothing where no file can be written."""
    with contextlib.suppress(OSError, RaySystemError):
        folder = _command_folder()
        path = os.environ.get("PATH", os.defpath)
        if path.split(os.pathsep)[0] != folder:
            os.environ["PATH"] = folder + os.pathsep + path


def _command_folder() -> str:
    """A folder with the command alone, for this interpreter and this mray. Raises OSError."""
    program = _PROGRAM.format(root=str(Path(__file__).parents[2]))
    text = f'#!/bin/sh\nexec {shlex.quote(interpreter())} -c {shlex.quote(program)} "$@"\n'
    folder = os.path.join(cache_folder("commands"), f"{zlib.crc32(text.encode()):08x}")
    os.makedirs(folder, 0o700, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(f"{folder} is not this user's alone")
    place = os.path.join(folder, "ray")
    if not os.path.exists(place):
        draft = f"{place}.{os.getpid()}"
        with io.open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700), "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(draft, place)
    return folder
