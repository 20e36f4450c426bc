"""Rendezvous: how the members of a group find each other, by the group's name.

    rank 0                                   the session's directory               rank 1
    announce: a file with its board ------>  <name>.0.<nonce>   <name>.1.<nonce>   <------ announce
    PARTNER[1] = nonce of rank 1's board,    <------ both look, open the other's board ------>  PARTNER[0] = nonce of rank 0's board
    ring rank 1                                                                                 ring rank 0
    complete when everybody's PARTNER[own rank] is the own nonce; then the file goes, and so does the board's name

A nonce belongs to one attempt of one process to join. So a group may be destroyed and made again under its name, while another member is
still leaving (or still joining) the old one: their boards name other partners, and whoever waits goes on waiting for the new ones.

Files of the dead are recognised when they are read: their boards' names go with them, and nobody answers at their socket. A file that
another program removes is written again: a waiting member looks once in a while (`mray._channel.group.LOOK`) whether its file is there, and
for others'.
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
    #: The actor that it is, in hex digits; "" for a task.
    actor: str
    #: For people: ``actor Worker``, ``task train``.
    label: str
    #: The name of its board.
    board: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.label}, pid {self.pid})"


def new_nonce() -> int:
    """A number unlike any other of this machine since it was started, which grows with time, also when somebody sets the clock back."""
    return (monotonic_ns() >> 10 << 8 | secrets.randbits(8)) & (1 << 63) - 1


def _is_member(member: GroupMember) -> bool:
    """Whether the facts of a file can be such."""
    if [type(fact) for fact in member] != [int, int, int, str, int, str, str, str]:
        return False
    return 0 <= member.rank < member.world_size and 0 <= member.nonce < 1 << 64 and "\0" not in member.process + member.board


class Meeting:
    """The files of one group."""

    def __init__(self, directory: str, group: str) -> None:
        self._directory = directory
        self._prefix = hashlib.sha1(group.encode(), usedforsecurity=False).hexdigest()[:20] + "."
        #: Files that are no more worth looking at.
        self._stale: set[str] = set()

    def _path(self, member: GroupMember) -> str:
        return os.path.join(self._directory, f"{self._prefix}{member.rank}.{member.nonce:x}")

    def announce(self, member: GroupMember) -> None:
        """Let the others see it, unless they can already."""
        if os.path.exists(self._path(member)):
            return
        _make_private(self._directory)
        path = self._path(member)
        with io.open(path + "~", "w", encoding="utf-8") as file:
            json.dump(member, file)
        os.rename(path + "~", path)

    def withdraw(self, member: GroupMember) -> None:
        """Take a member's file away. Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(member))

    def present(self) -> dict[int, tuple[int, str]]:
        """The latest nonce of each rank, and its file. Quick, for it is called whenever a waiting member wakes up."""
        found: dict[int, tuple[int, str]] = {}
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                if name.startswith(self._prefix) and not name.endswith("~") and name not in self._stale:
                    try:
                        rank, nonce = name.removeprefix(self._prefix).split(".")
                        found[int(rank)] = max(found.get(int(rank), (0, "")), (int(nonce, 16), name))
                    except ValueError:  # nobody's file
                        self._stale.add(name)
        return found

    def read(self, name: str) -> GroupMember | None:
        """The member of a file; None when it is gone, or damaged: then it is not looked at again."""
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
        logger.warning("the file %s of a group in %s is damaged, and passed over: %s", name, self._directory, why)
        self._stale.add(name)

    def discard(self, name: str) -> None:
        """A file of somebody who is gone."""
        self._stale.add(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, name))


def _make_private(folder: str) -> None:
    """Make a folder and what is missing above it: nobody else may enter any of them."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        _make_private(os.path.dirname(folder))
        _make_private(folder)
