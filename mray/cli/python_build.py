"""How the running Python was built, which its compiler has written into the debug information of the interpreter.

`sysconfig` has the flags of ``configure``; a distribution adds those of profile-guided optimisation later, or leaves them out.
"""

from __future__ import annotations

import contextlib
import mmap
import sys

#: GCC's record of its flags, in each compiled file's debug information.
_RECORD = b"GNU C"
_OPTIMISED = b"-fprofile-use"


def interpreter() -> str:
    """The file that has the interpreter: libpython if it is loaded, else the executable."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith(f"libpython{sys.version_info.major}.{sys.version_info.minor}"):
                return f"/{path}"
    return sys.executable


def is_optimised(path: str) -> bool | None:
    """Whether this file was compiled with a profile (``--enable-optimizations``). None: it does not say, being stripped or clang's."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_OPTIMISED) >= 0:
                return True
            return None if content.find(_RECORD) < 0 else False
    except (OSError, ValueError):  # unreadable, or empty
        return None


def describe() -> str:
    """The build of this Python, to be named beside figures."""
    found = is_optimised(interpreter())
    return {True: "built with optimisation", False: "built without optimisation", None: "build unknown"}[found]
