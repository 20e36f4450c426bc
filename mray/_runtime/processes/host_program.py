"""The program that a driver runs in: whether mray can work inside of it, and the interpreter for its processes.

A program with Python inside (uWSGI, Blender, a frozen application), if started with mray's arguments, would run its own code and begin
sessions endlessly. So a Python of the same version is started, or none.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator

from mray._common.kept import os
from mray.exceptions import RaySystemError

_PYTHON = re.compile(r"(python|pypy)[\w.-]*")
#: Prints version and kind of an interpreter; the seconds that it may take.
_ASKED = "import sys; print(*sys.version_info[:2], sys.implementation.name)"
_PATIENCE = 10.0
#: Libraries that replace parts of the standard library: the module that knows, its function, the parts to ask it about, and the call that
#: patches all other parts.
_GREEN = (
    (
        ("gevent.monkey", "is_module_patched", ("threading", "socket", "select", "queue")),
        "gevent.monkey.patch_all(thread=False, socket=False, select=False, queue=False)",
    ),
    (("eventlet.patcher", "is_monkey_patched", ("thread", "socket", "select")), "eventlet.monkey_patch(os=True, time=True)"),
)


def check_host() -> None:
    """Raise RaySystemError in a program in which mray's threads and sockets cannot work."""
    for (module, ask, parts), instead in _GREEN:
        asked = getattr(sys.modules.get(module), ask, None)
        taken = [part for part in parts if asked is not None and asked(part)]
        if taken:
            raise RaySystemError(
                f"{module.partition('.')[0]} has replaced Python's {', '.join(taken)} (monkey patching), and with its own "
                f"mray's threads and sockets do not work. Patch the other modules only, as {instead} does, or use mray in another process."
            )


def interpreter() -> str:
    """The interpreter of the session's processes. Raises RaySystemError where there is none of this version."""
    if not sys.executable:
        raise RaySystemError("sys.executable is empty: set it to the interpreter that mray is to start its processes with.")
    return _interpreter_beside(sys.executable)


@functools.cache
def _interpreter_beside(program: str) -> str:
    frozen = bool(getattr(sys, "frozen", False))
    if not frozen and _is_called_python(program) and _is_this(program):
        return program
    for candidate in _candidates(program):
        if _is_called_python(candidate) and os.access(candidate, os.X_OK) and _is_the_same(candidate):
            return candidate
    what = "a frozen application" if frozen else "no Python interpreter of this version"
    version = "{}.{}".format(*sys.version_info[:2])
    raise RaySystemError(
        f"mray starts its processes with the interpreter in sys.executable, and {program} is {what}: it would begin this program again and "
        f"again. There is no Python {version} in {sys.base_prefix} either: set sys.executable to one that has this program's packages."
    )


def _is_called_python(program: str) -> bool:
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


def _is_this(program: str) -> bool:
    try:
        return os.path.samefile(program, "/proc/self/exe")
    except OSError:
        return False


def _candidates(program: str) -> Iterator[str]:
    yield program
    names = ("python{}.{}".format(*sys.version_info[:2]), "python3", "python")
    for folder in dict.fromkeys((sys.exec_prefix, sys.prefix, sys.base_exec_prefix, sys.base_prefix)):
        for name in names:
            yield os.path.join(folder, "bin", name)


def _is_the_same(candidate: str) -> bool:
    import subprocess  # noqa: PLC0415  (hardly any program needs it)

    try:
        said = subprocess.run(
            [candidate, "-I", "-c", _ASKED], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.split() == [*map(str, sys.version_info[:2]), sys.implementation.name]
