"""The owner of the code that a frame runs: mray, a library or the user; for signals (`places`), stacks and tracebacks (`own_frames`).

The file decides, since no program renames it; for code without a file (``exec``, generated methods) the module of its globals does. A
library works for its caller, so the frame outside it decides. The command line, the examples and the pytest plugin count as user
programs.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from mray._common.kept import os

OWN, LIBRARY, USERS = "own", "library", "user's"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_FROZEN = "<frozen "

_PROGRAMS = ("mray.cli.", "mray.examples.", "mray.pytest_plugin.", "mray.__main__.")
_CALLED = frozenset({"cloudpickle", "numpy", "posix_ipc", "torch", "cupy"})
_LIBRARIES = _CALLED | sys.stdlib_module_names
#: The module prefix of methods that `collections` generates.
_GENERATED = "namedtuple_"

#: Owners by file; read directly by callers that examine many frames.
known: dict[str, str] = {}
_MOST_KNOWN = 10_000


def kind_of(frame: FrameType) -> str:
    kind = known.get(frame.f_code.co_filename)
    return _kind_of_frame(frame) if kind is None else kind


def kind_of_file(filename: str) -> str:
    """The owner of a file's code; py-spy prints the name without the directory that the package lies in."""
    if filename.startswith(_PACKAGE):
        return _kind_of_module(_module("mray/" + filename.removeprefix(_PACKAGE)))
    for each in _INSTALLED:
        if each in filename:
            return _kind_of_module(_module(filename.rpartition(each)[2]))
    if filename.startswith((_STDLIB, _FROZEN)):
        return LIBRARY
    return USERS if filename.startswith(("/", "<")) else _kind_of_module(_module(filename))


def is_in_site_packages(filename: str) -> bool:
    return any(each in filename for each in _INSTALLED)


def _kind_of_frame(frame: FrameType) -> str:
    filename = frame.f_code.co_filename
    name: Any = frame.f_globals.get("__name__")
    kind = _kind_of_module(name) if type(name) is str else USERS
    if not filename.startswith(("/", _FROZEN)):
        return kind
    by_file = kind_of_file(filename)
    if by_file == USERS and kind == LIBRARY and name.partition(".")[0] in _CALLED:
        by_file = LIBRARY  # run from its developer's checkout
    if len(known) > _MOST_KNOWN:
        known.clear()
    known[filename] = by_file
    return by_file


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _kind_of_module(name: str) -> str:
    root = name.partition(".")[0]
    if root == "mray":
        return USERS if f"{name}.".startswith(_PROGRAMS) else OWN
    return LIBRARY if root in _LIBRARIES or root.startswith(_GENERATED) else USERS
