"""Rendezvous: how the members of a group find each other, by the group's name.

    rank 0                                   the session's directory               rank 1
    announce: a file with its board ------>  <name>.0.<nonce>   <name>.1.<nonce>   <------ announce
    PARTNER[1] = nonce of rank 1's board,    <------ both look, open the other's board ------>  PARTNER[0] = nonce of rank 0's board
    ring rank 1                                                                                 ring rank 0
    complete when every PARTNER[own rank] is the own nonce; then the file and the board's name are removed

A nonce belongs to one attempt of one process to join, so a group may be destroyed and created again under its name while another member
still leaves (or joins) the old one: their boards name other partners.

Files of dead processes are recognised when they are read: their boards' names are unlinked, and their sockets do not answer. A waiting
member polls (`mray._channel.group.LOOK`) for its own file, and rewrites it if another program removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from typing import NamedTuple

from mray._common.clock import monotonic_ns
from mray._common.kept import io, os
from mray._common.log import logger


class GroupMember(NamedTuple):
    """One attempt of a process to be a rank of a group."""

    rank: int
    world_size: int
    #: Later attempts have larger ones.
    nonce: int
    process: str
    pid: int
    #: Hex digits; "" for a task.
    actor: str
    #: Its name in messages: ``actor Worker``, ``task train``.
    label: str
    #: The board's name.
    board: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.label}, pid {self.pid})"


def new_nonce() -> int:
    """A number unique on this machine since boot, which grows with time, whatever happens to the clock."""
    return (monotonic_ns() >> 10 << 8 | secrets.randbits(8)) & (1 << 63) - 1


def _is_member(member: GroupMember) -> bool:
    if [type(field) for field in member] != [int, int, int, str, int, str, str, str]:
        return False
    return 0 <= member.rank < member.world_size and 0 <= member.nonce < 1 << 64 and "\0" not in member.process + member.board


class Meeting:
    """The files of one group."""

    def __init__(self, directory: str, group: str) -> None:
        self._directory = directory
        self._prefix = hashlib.sha1(group.encode(), usedforsecurity=False).hexdigest()[:20] + "."
        #: Files not to read again.
        self._stale: set[str] = set()

    def _path(self, member: GroupMember) -> str:
        return os.path.join(self._directory, f"{self._prefix}{member.rank}.{member.nonce:x}")

    def announce(self, member: GroupMember) -> None:
        """Make a member visible to the others. Idempotent."""
        if os.path.exists(self._path(member)):
            return
        _make_private(self._directory)
        path = self._path(member)
        with io.open(path + "~", "w", encoding="utf-8") as file:
            json.dump(member, file)
        os.rename(path + "~", path)

    def withdraw(self, member: GroupMember) -> None:
        """Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(member))

    def present(self) -> dict[int, tuple[int, str]]:
        """The latest nonce of each rank, and its file. Quick, since a waiting member calls it at each wake-up."""
        found: dict[int, tuple[int, str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                if name.startswith(self._prefix) and not name.endswith("~") and name not in self._stale:
                    try:
                        rank, nonce = name.removeprefix(self._prefix).split(".")
                        found[int(rank)] = max(found.get(int(rank), (0, "")), (int(nonce, 16), name))
                    except ValueError:  # not a member's file
                        self._stale.add(name)
        return found

    def read(self, name: str) -> GroupMember | None:
        """The member of a file; None when it is removed, or damaged: then it is not read again."""
        try:
            with io.open(os.path.join(self._directory, name), encoding="utf-8") as file:
                member = GroupMember(*json.load(file))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._damaged(name, repr(error))
            return None
        if not _is_member(member):
            self._damaged(name, f"it has {member!r:.300}")
            return None
        return member

    def _damaged(self, name: str, why: str) -> None:
        logger.warning("the file %s of a group in %s is damaged and is ignored: %s", name, self._directory, why)
        self._stale.add(name)

    def discard(self, name: str) -> None:
        self._stale.add(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, name))


def _make_private(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_private(os.path.dirname(folder))
        _make_private(folder)
