"""Members of a group that meet in collectives, as actors for the explorer (`mray._channel.group`, `mray._channel.shared_memory_group`).

Tensors are lists of numbers, a block is one number, and each number on a board is a location; all else is the real code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from mray._api.communicator import ReduceOp
from mray._channel import group, shared_memory_group
from mray._channel.board import GRACE, Board
from mray._channel.rendezvous import GroupMember
from mray._channel.shared_memory_group import MemberOfGroup
from mray.exceptions import RayChannelError
from tests.interleavings import explorer
from tests.interleavings.explorer import READ, SEQUENTIAL, WRITE, Explored, Explorer, Outcome, Run, fence, fence_if_weak
from tests.interleavings.stand_ins import Process, Segment, in_place


class Numbers:
    """A flat tensor of a process's own; slices are views."""

    itemsize = 1
    dtype = "number"

    def __init__(self, values: list[int], start: int = 0, stop: int | None = None) -> None:
        self.values = values
        self._start = start
        self._stop = len(values) if stop is None else stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[int]:
        return iter(self.values[self._start : self._stop])

    def __getitem__(self, where: slice) -> Numbers:
        start, stop, _step = where.indices(len(self))
        return Numbers(self.values, self._start + start, self._start + stop)

    def __setitem__(self, where: slice, values: Iterable[int]) -> None:
        start, stop, _step = where.indices(len(self))
        self.values[self._start + start : self._start + stop] = list(values)


class Shown:
    """Numbers on a board."""

    def __init__(self, name: str, offset: int, start: int = 0, stop: int | None = None) -> None:
        self._name = name
        self._offset = offset
        self._start = start
        self._stop = stop

    def _access(self, kind: str, index: int, value: int | None = None) -> Any:
        assert explorer.current is not None
        return explorer.current.access(kind, (self._name, "number", self._offset + index), value)

    def __getitem__(self, where: slice) -> Shown:
        first = where.start or 0
        return Shown(self._name, self._offset, self._start + first, self._start + where.stop)

    def __setitem__(self, where: slice, values: Iterable[int]) -> None:
        for index, value in enumerate(values, self._start + (where.start or 0)):
            self._access(WRITE, index, value)

    def __iter__(self) -> Iterator[int]:
        assert self._stop is not None
        return iter([self._access(READ, index) for index in range(self._start, self._stop)])


class _Board(Board):
    __slots__ = ()

    @classmethod
    def create(cls, name: str, world_size: int, _nonce: int) -> _Board:
        assert explorer.current is not None
        segment: Any = Segment(explorer.current, name, 1 << 24)
        return cls(segment, world_size)

    def view(self, offset: int, _count: int, _dtype: Any, _library: str) -> Any:
        return Shown(self.segment.name, offset)

    def tell_reason(self, text: str) -> None:
        pass

    def reason(self) -> str:
        return ""


def _reduce_into(out: Numbers, tensors: Sequence[Any], _op: ReduceOp) -> None:
    out[:] = [sum(column) for column in zip(*tensors, strict=True)]


class _Host:
    """The part of its process that the group uses."""

    prefix = "/"

    def __init__(self, process: Process) -> None:
        self.process = process.name
        self._process = process
        #: The state of the actor, when it waits (see `Run.mark`).
        self.known: Callable[[], Any] = lambda: None

    def wait_until(self, predicate: Callable[[], bool], timeout: float | None, *, spin: bool = False) -> bool:
        if timeout == GRACE:  # it may be over at once; who looks again at every `LOOK` is woken
            return predicate()
        self._process.wait_until(predicate, self.known())
        return True

    def doorbell_of(self, process: str) -> Any:
        return self._process.doorbell_of(process)

    def ask_of(self, _process: str) -> None:
        """Names stay."""


class Together:
    """Members of a group that take part at the same time."""

    names: list[str]
    take_part: Callable[..., Any]
    check: Callable[[Outcome], None]
    #: The modules under test use the stand-ins meanwhile.
    in_place: Callable[[str], contextlib.AbstractContextManager[None]]

    def explore(self, order: str = SEQUENTIAL, victim: str | None = None) -> Explored:
        """Raises Violation."""
        actors = {name: functools.partial(self.take_part, rank=rank) for rank, name in enumerate(self.names)}
        with self.in_place(order):
            return Explorer(actors, order=order, victim=victim, check=self.check).explore()


class Meeting(Together):
    """Members that do `work`, names of collectives. `leaves`: after so many they destroy the group, by rank; the others never do.

    `refuses`: after so many they are refused the next one, and do nothing more, or it `again`, with what fits.

    (Who leaves rings everybody, which would hide that somebody was not rung before.)
    """

    def __init__(
        self,
        *work: str,
        members: int = 2,
        numbers: int = 1,
        leaves: dict[int, int] | None = None,
        refuses: dict[int, int] | None = None,
        again: bool = False,
    ) -> None:
        self.work = work
        self.members = members
        self.numbers = numbers
        self.leaves = leaves or {}
        self.refuses = refuses or {}
        #: After how many collectives a member does no more.
        self.ends = {**self.leaves, **({} if again else self.refuses)}
        self.names = [f"member {rank}" for rank in range(members)]

    def own(self, rank: int, number: int) -> list[int]:
        """The contribution of a member to a collective; no two are the same."""
        return [100 ** (rank + 1) * (number + 1) + element for element in range(self.numbers)]

    def result(self, rank: int, number: int) -> list[int]:
        """The result that it must have."""
        kind = self.work[number]
        each = [self.own(member, number) for member in range(self.members)]
        if kind == "barrier":
            return []
        if kind == "broadcast":
            return each[0]
        if kind == "reduce" and rank:
            return self.own(rank, number)
        if kind == "gather":
            return [element for values in each for element in values]
        return [sum(column) for column in zip(*each, strict=True)]

    def take_part(self, run: Run, rank: int) -> tuple[list[list[int]], str]:
        """The results, and why there are no more."""
        process = Process(run, self.names[rank], self.names)
        run.is_early = True
        members = [GroupMember(each, self.members, 1, name, each, "", name, f"board {each}") for each, name in enumerate(self.names)]
        host: Any = _Host(process)
        mine = MemberOfGroup(host, "g", members[rank])
        for member in members:
            if member.rank != rank:
                mine._members[member.rank] = member
                mine._boards[member.rank] = _Board.create(member.board, self.members, 1)
                mine._doorbells[member.rank] = process.doorbell_of(member.process)
        mine._peers = [(each, board.words, mine._doorbells[each]) for each, board in sorted(mine._boards.items()) if each != rank]
        process.on_death = lambda name: mine._on_death(mine._members[self.names.index(name)], RuntimeError("crashed"))
        run.is_early = False
        results: list[list[int]] = []
        waits = 0

        def known() -> Any:
            nonlocal waits
            waits += 1
            return waits, mine._step, tuple(map(tuple, results)), tuple(out.values), mine._failure is None

        host.known = known
        why = ""
        try:
            for number, kind in enumerate(self.work[: self.ends.get(rank, len(self.work))]):
                if self.refuses.get(rank) == number:
                    mine.refuse(ValueError())
                source, out = Numbers(self.own(rank, number)), Numbers([0] * self.numbers)
                process.mark(number, mine._step, results, mine._failure is None)
                if kind == "barrier":
                    out = Numbers([])
                    mine._call(mine._barrier())
                elif kind == "broadcast":
                    out = source
                    mine._call(mine._spread(source, 0, source))
                elif kind == "reduce":
                    out = source
                    mine._call(mine._reduce_to(source, 0, ReduceOp.SUM))
                elif kind == "gather":
                    out = Numbers([0] * self.numbers * self.members)
                    places = [out[start : start + self.numbers] for start in range(0, len(out), self.numbers)]
                    mine._call(mine._gather(source, places, source))
                elif kind == "parts":
                    mine._call(mine._reduce_parts(source, out, ReduceOp.SUM))
                else:
                    mine._call(mine._reduce_all(source, out, ReduceOp.SUM))
                results.append(list(out))
        except RayChannelError as error:
            why = str(error)
        if rank in self.refuses and rank in self.ends and not why:
            mine.refuse(ValueError())
        if rank in self.leaves:
            mine.destroy()
        return results, why

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        """Nobody sleeps, no result is wrong, and nobody goes without one that all have brought their part for."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} sleeps for ever in {end.value}"
        for rank, name in enumerate(self.names):
            if name not in crashed:
                results, why = outcome.value(name)
                for number, result in enumerate(results):
                    assert result == self.result(rank, number), f"{name} has {result} of {self.work[number]}"
                assert why or len(results) == self.ends.get(rank, len(self.work))
                least = min([len(self.work), *self.ends.values(), *self.refuses.values()])
                assert crashed or len(results) >= least, f"{name} has lost what was brought: {why}"

    @contextlib.contextmanager
    def in_place(self, order: str) -> Iterator[None]:
        """The modules of groups use the stand-ins."""
        with in_place(order), pytest.MonkeyPatch.context() as patch:
            patch.setattr(group, "Board", _Board)
            for name, stand_in in (("fence", fence), ("publish_fence", fence_if_weak), ("trust_fence", fence_if_weak)):
                patch.setattr(group, name, stand_in)
            patch.setattr(shared_memory_group, "BLOCK", 1)
            patch.setattr(shared_memory_group, "library_of", lambda _tensor: "numpy")
            patch.setattr(shared_memory_group, "_signature", lambda kind, *_info, **_more: kind)
            patch.setattr(shared_memory_group, "_describe", str)
            patch.setattr(shared_memory_group, "reduce_into", _reduce_into)
            yield
