"""The rooms of the package: folders of mray, and the single files that the contract of the kernel names beside it."""

from __future__ import annotations

import configparser
from functools import cache
from pathlib import Path

from tests.house.source import ROOT

#: Rooms beside the kernel that are one: the floor of GPUs is named by the rest of them.
TOGETHER = {"_device": "_gpu"}
#: The folder of the manual and of web pages, which is no module.
PAGES = "_manual"


@cache
def beside_the_kernel() -> tuple[str, ...]:
    """The paths below mray that the kernel may not import, by its contract in setup.cfg: folders, and files with their suffix."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg")
    modules = contracts["importlinter:contract:kernel"]["forbidden_modules"].split()
    paths = (module.removeprefix("mray.").replace(".", "/") for module in modules)
    return (*(path if (ROOT / "mray" / path).is_dir() else f"{path}.py" for path in paths), PAGES)


def room_of(path: str) -> str:
    """The room of a file that lies at a path such as ``mray/_ipc/ring.py``; ``.`` is mray's own folder."""
    inside = path.removeprefix("mray/")
    return inside if inside in beside_the_kernel() else inside.rpartition("/")[0] or "."


def guest_of(path: str) -> str | None:
    """The outermost room beside the kernel in which a room or a file below mray lies; None in the kernel."""
    for room in beside_the_kernel():
        if path == room or path.startswith(f"{room}/"):
            return TOGETHER.get(room, room)
    return None


def files(*suffixes: str) -> list[str]:
    """The files of the package with these suffixes, by paths such as ``mray/_ipc/ring.py``."""
    return sorted(str(path.relative_to(ROOT)) for path in Path(ROOT / "mray").rglob("*") if path.suffix in suffixes)
