"""Members that find each other by the name of their group (`mray._channel.group`, `mray._channel.rendezvous`), meet once, part, and find
each other again under the same name.

The files of the session's directory are locations that the kernel keeps: one for each rank, which has the member as long as it announces
itself. Boards are stand-ins that go with their names; all else is the real code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._channel import board, group
from mray._channel.rendezvous import GroupMember
from mray._channel.shared_memory_group import MemberOfGroup
from mray.exceptions import RayChannelError
from tests.interleavings import explorer
from tests.interleavings.explorer import CHANGE, GET, SET, Outcome, Run, dead
from tests.interleavings.meeting import Meeting, Together, _Host
from tests.interleavings.stand_ins import Process, Segment


def _run() -> Run:
    assert explorer.current is not None
    return explorer.current


class _Segment(Segment):
    """A board's."""

    @classmethod
    def create(cls, name: str, size: int, *, offer: bool) -> Segment:
        _run().access(SET, ("name", name), size)
        return cls(_run(), name, size)

    @classmethod
    def open(cls, name: str, *, writable: bool, ask: Any) -> Segment:
        assert writable
        size = _run().access(GET, ("name", name))
        if not size:
            raise FileNotFoundError(name)
        return cls(_run(), name, size)


class _Files:
    """`mray._channel.rendezvous.Meeting`; a file's name is its rank and nonce."""

    def __init__(self, _directory: str, _group: str) -> None:
        self._stale: set[tuple[int, int]] = set()
        self._announced = False

    def announce(self, member: GroupMember) -> None:
        if not self._announced:  # nobody removes it
            self._announced = True
            _run().access(SET, ("file", member.rank), member)

    def withdraw(self, member: GroupMember) -> None:
        self._remove(member.rank, member.nonce)

    def _remove(self, rank: int, nonce: int) -> None:
        _run().access(CHANGE, ("file", rank), lambda there: 0 if there and there.nonce == nonce else there)

    def present(self) -> dict[int, tuple[int, tuple[int, int]]]:
        found = {}
        for rank in range(len(_run().names)):
            member = _run().access(GET, ("file", rank))
            if member and (rank, member.nonce) not in self._stale:
                found[rank] = member.nonce, (rank, member.nonce)
        return found

    def read(self, name: tuple[int, int]) -> GroupMember | None:
        member = _run().access(GET, ("file", name[0]))
        return member if member and member.nonce == name[1] else None

    def discard(self, name: tuple[int, int]) -> None:
        self._stale.add(name)
        self._remove(*name)


class _Finder(_Host):
    """The part of its process that a group uses to find others."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._watches: dict[str, list[Callable[[Exception], None]]] = {}
        process.on_death = self._on_death

    def doorbell_of(self, process: str) -> Any:
        if process != self.process and _run().access(GET, dead(process)):
            raise OSError(f"{process} is dead")
        return super().doorbell_of(process)

    def then(self, actor: str, callback: Callable[[Exception], None], *, process: str = "") -> Callable[[], None]:
        assert process in ("", actor)
        self._watches.setdefault(actor, []).append(callback)
        if actor in self._process.deaths:
            callback(RuntimeError("crashed"))
        return lambda: self._watches[actor].remove(callback)

    def _on_death(self, name: str) -> None:
        for callback in tuple(self._watches.get(name, ())):
            callback(RuntimeError("crashed"))


def _knowledge(attempt: int, mine: MemberOfGroup, finder: _Finder) -> Any:
    """All that a member knows."""
    members = tuple((number, member.nonce) for number, member in mine._members.items())
    boards = tuple((number, each.segment.name) for number, each in mine._boards.items())
    watches = tuple((name, len(each)) for name, each in finder._watches.items())
    info = mine._step, mine._closed, mine._failure is None, len(mine._peers)
    return attempt, members, boards, watches, tuple(mine._doorbells), tuple(mine._watches), *info


class Finding(Together):
    """Each member joins `times` times; each time all of them meet in a barrier, and leave."""

    def __init__(self, *, members: int = 2, times: int = 1) -> None:
        self.names = [f"member {rank}" for rank in range(members)]
        self.times = times

    def take_part(self, run: Run, rank: int) -> tuple[int, str]:
        """How many times it has met the others, and why not more often."""
        process = Process(run, self.names[rank], self.names)
        finder = _Finder(process)
        host: Any = finder
        size = len(self.names)
        expected = dict(enumerate(self.names))
        for attempt in range(self.times):
            process.mark(attempt)
            nonce = 1 + attempt * size + rank
            own = GroupMember(rank, size, nonce, process.name, run.pid, process.name, process.name, f"board {nonce}")
            mine = MemberOfGroup(host, "g", own)

            known = functools.partial(_knowledge, attempt, mine, finder)
            finder.known = known
            process.knows(known)
            try:
                mine.join("directory", None, expected)
                mine._call(mine._barrier())
            except RayChannelError as error:
                return attempt, str(error)
            mine.destroy()
        return self.times, ""

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        """Nobody sleeps; all have met each time, unless somebody has died."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
            if not crashed:
                assert end.value == (self.times, ""), f"{name} has met the others {end.value}"
                assert not outcome.memory.get(("file", self.names.index(name))), f"{name} has left its file"
        if not crashed:
            left = [where for where, value in outcome.memory.items() if where[0] == "name" and value]
            assert not left, f"names are left: {left}"

    @contextlib.contextmanager
    def in_place(self, order: str) -> Iterator[None]:
        """As of `Meeting`, and more."""
        with Meeting().in_place(order), pytest.MonkeyPatch.context() as patch:
            patch.setattr(group, "Board", board.Board)
            patch.setattr(group, "Meeting", _Files)
            patch.setattr(group, "now", lambda: 0.0)
            patch.setattr(board, "Segment", _Segment)
            patch.setattr(board, "publish_fence", explorer.fence_if_weak)
            yield
