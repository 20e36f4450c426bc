"""The address of a user's persistent session: one file, ``address``, beside the sessions of a temporary directory.

It holds the session's directory, its node's pid and that process's start time, which makes the pid unambiguous. It lies in the user's
folder, which no other user may enter, is written and removed atomically, and is valid only while a process of the session holds its
lock: the next reader removes the file of a dead session.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple

from mray._common.kept import os
from mray._common.version import versions
from mray._inside.processes import start_of
from mray._inside.sessions import (
    ADDRESS,
    address_lock,
    is_alive,
    is_of_this_namespace,
    is_private,
    parent_folder,
    session_parents,
    while_locked,
    withdraw,
)

#: Locked while a session is being started.
_STARTING = "starting"


class Address(NamedTuple):
    """A persistent session."""

    session_dir: str
    node_pid: int
    node_start: int
    #: Versions of Python and of mray, which a driver must match.
    versions: list[str]

    def node_lives(self) -> bool:
        """Whether the node's process lives and can be seen from here."""
        return self.node_start != 0 and is_of_this_namespace(self.session_dir) and start_of(self.node_pid) == self.node_start


def publish(session_dir: str, node_pid: int) -> None:
    """Name a session as the one that ``"auto"`` means."""
    parent = os.path.dirname(session_dir)
    path = os.path.join(parent, ADDRESS)
    draft = f"{path}.{os.getpid()}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        json.dump(Address(session_dir, node_pid, start_of(node_pid), versions())._asdict(), file)
    # POINT address drafted
    with address_lock(parent):
        os.rename(draft, path)


def running_in(parent: str) -> Address | None:
    """The living persistent session under `parent`; a file that names a dead one is removed."""
    address = _read(parent)
    if address is None:
        return None
    if is_alive(address.session_dir):
        return address
    withdraw(address.session_dir)
    return None


def running(temp_dir: str | None = None) -> Address | None:
    """This user's persistent session under a temporary directory, or under the default ones."""
    parents = session_parents() if temp_dir is None else [parent_folder(temp_dir)]
    return next((found for found in map(running_in, parents) if found is not None), None)


def _read(parent: str) -> Address | None:
    if not is_private(parent):
        return None
    try:
        fd = os.open(os.path.join(parent, ADDRESS), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            address = Address(**json.load(file)) if os.fstat(fd).st_uid == os.getuid() else None
            os.fsencode("" if address is None else address.session_dir)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    # A damaged file counts as no address.
    return None if address is None or [*map(type, address)] != [str, int, int, list] or "\0" in address.session_dir else address


def only_one(parent: str) -> contextlib.AbstractContextManager[None]:
    """Held while a session is being started under `parent`: other starts wait."""
    return while_locked(os.path.join(parent, _STARTING), os.O_RDWR | os.O_CREAT)
