"""Members of a group whose collectives a library queues on streams (`mray._gpu.stream_group`, `mray._gpu.nccl_member`): a member
leaves while others have queued more, or less, or have died.

    member: note the work on the own board, call the library ── matched with the others' calls ──▶ done, unless somebody has aborted
    leave at once, or look whether the others are there until all is done

The library and the device are stand-ins; notes, looks and decisions are real, and so is the end (`NcclMember.destroy`). A polling actor
looks again at any time, and at last when others have written, which has arrived by then.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mray._channel.rendezvous import GroupMember
from mray._gpu import nccl_member, stream_group
from mray._gpu.nccl_member import NcclMember
from mray._gpu.stream_group import StreamGroup
from mray.exceptions import RayChannelError
from tests.interleavings import explorer
from tests.interleavings.explorer import (
    AWAIT,
    CHOOSE,
    FENCE,
    GET,
    SEQUENTIAL,
    SET,
    SET_ALL,
    Outcome,
    Run,
    hangup,
)
from tests.interleavings.meeting import Meeting, Together, _Board
from tests.interleavings.stand_ins import Process


def _run() -> Run:
    assert explorer.current is not None
    return explorer.current


class _AbortGrace:
    """`mray._gpu.stream_group.PATIENCE`: may be over at any look."""

    def __radd__(self, _now: float) -> _AbortGrace:
        return self

    def __gt__(self, _now: float) -> bool:
        return bool(_run().access(CHOOSE, "is patient", (0, 1)))


class _Host:
    """The part of its process that the group uses; it waits by polling."""

    def __init__(self, process: Process, names: list[str]) -> None:
        self.process = process.name
        self._process = process
        self._others = [name for name in names if name != process.name]
        #: So many words were written when the others were told of it last.
        self._told = 0
        self.known: Callable[[], Any] = lambda: None
        self.group: StreamGroup | None = None
        #: Whether the device is about to be done.
        self.is_slow = False

    def doorbell_of(self, process: str) -> Any:
        return types.SimpleNamespace(ring=lambda: None)  # nobody sleeps

    def wake(self) -> None:
        pass

    def tell(self) -> None:
        """The writes of this member arrive, and others look again."""
        run = _run()
        if run.writes != self._told:
            self._told = run.writes
            if run.order != SEQUENTIAL:
                run.access(FENCE, None)
            run.access(SET_ALL, tuple(("news", name) for name in self._others), 1)

    def wait_until(self, predicate: Callable[[], bool], _timeout: Any) -> bool:
        run = _run()
        run.mark("polls", self.process, self.known(), run.writes != self._told, self.is_slow, tuple(self._process.deaths))
        assert self.group is not None
        if not self.is_slow and self.group._broken_at is None and not run.access(CHOOSE, "time passes", (0, 1)):
            self.tell()
            places = ("news", self.process), *(hangup(name, self.process) for name in self._others)
            heard = run.access(AWAIT, places)
            if heard:
                self._process._hear(self._others[heard - 1], 0)
        return predicate()


class _Point:
    """The end of one collective: reached some time after all have called it, if nobody has aborted before."""

    def __init__(self, number: int, rank: int, members: int, host: _Host) -> None:
        self.number = number
        self._host = host
        self._others = [other for other in range(members) if other != rank]

    def reached(self) -> bool:
        run = _run()
        self._host.is_slow = False
        if not all(run.access(GET, ("called", other, self.number)) and not run.access(GET, ("aborted", other)) for other in self._others):
            return False
        self._host.is_slow = not run.access(CHOOSE, "the device is done", (0, 1))
        return not self._host.is_slow


class Queueing(Together):
    """`work`: how many collectives each member queues. `stays`: those who wait until these are done before they leave."""

    def __init__(self, *work: int, stays: tuple[int, ...] = ()) -> None:
        self.work = work
        self.stays = stays
        self.names = [f"member {rank}" for rank in range(len(work))]

    def take_part(self, run: Run, rank: int) -> tuple[int, int, bool, str]:
        """How many were queued, and done; whether all had been queued by everybody when this member began to leave; why not more."""
        process = Process(run, self.names[rank], self.names)
        run.is_early = True
        size = len(self.names)
        members = [GroupMember(each, size, 1, name, each, "", name, f"board {each}") for each, name in enumerate(self.names)]
        polled = _Host(process, self.names)
        host: Any = polled
        mine = StreamGroup(host, "g", members[rank])
        polled.group = mine
        for member in members:
            if member.rank != rank:
                mine._members[member.rank] = member
                mine._boards[member.rank] = _Board.create(member.board, size, 1)
                mine._doorbells[member.rank] = host.doorbell_of(member.process)
        mine._peers = [(each, each_board.words, mine._doorbells[each]) for each, each_board in sorted(mine._boards.items()) if each != rank]
        process.on_death = lambda name: mine._on_death(mine._members[self.names.index(name)], RuntimeError("crashed"))
        run.is_early = False

        nccl = NcclMember.__new__(NcclMember)
        points: deque[_Point] = deque(_Point(number + 1, rank, size, polled) for number in range(self.work[rank]))
        nothing: Any = types.SimpleNamespace(set=lambda: None)
        library: Any = types.SimpleNamespace(errors=())
        device: Any = types.SimpleNamespace(points=points, check=lambda: None)
        communicator: Any = types.SimpleNamespace(
            abort=lambda: run.access(SET, ("aborted", rank), 1),
            check_async_error=lambda: None,
            call=functools.partial(self._call, run, rank),
        )
        nccl.group, nccl.nccl, nccl.device, nccl._communicator = mine, library, device, communicator
        nccl._on_failure, nccl._calling, nccl._books = [], threading.Lock(), threading.Lock()
        nccl._inside = nccl._closed = nccl._watcher_sleeps = False
        nccl._queue, nccl._alarm, nccl._streams = deque(), nothing, ()
        nccl._watcher = threading.current_thread()
        done = 0
        note_done = mine.note_done

        def count(number: int) -> None:
            nonlocal done
            done = number
            note_done(number)

        mine.note_done = count  # type: ignore[method-assign]

        def known() -> Any:
            queue = tuple(number for number, _end, _needs in nccl._queue)
            return queue, done, mine.queued, nccl._closed, mine._failure is None, mine._broken_at is None, matched, mine._closed

        polled.known = known
        matched = False
        why = ""
        try:
            for number in range(1, self.work[rank] + 1):
                nccl._queue_call(0, (), [], lambda nccl_itself, number=number: nccl_itself.call(number))  # type: ignore[misc]
        except RayChannelError as error:
            why = str(error)
        if rank in self.stays:
            while not why and nccl._queue:
                if nccl._look():
                    nccl._abort()
                    break
                if nccl._queue:
                    mine.host.wait_until(lambda: mine.has_failed, nccl_member.TICK)
        others = [other for other in range(size) if other != rank]
        matched = all(run.access(GET, ("called", other, number)) for other in others for number in range(1, mine.queued + 1))
        matched = matched and not any(run.access(GET, ("leaving", other)) for other in others)
        run.access(SET, ("leaving", rank), 1)
        finished = done
        if not mine.has_failed:
            nccl.destroy()
            finished = done
        polled.tell()
        return mine.queued, finished, matched, why or str(mine._failure or "")

    def _call(self, run: Run, rank: int, number: int) -> None:
        # The library takes locks.
        if run.order != SEQUENTIAL:
            run.access(FENCE, None)
        run.access(SET, ("called", rank, number), 1)

    # ------------------------------------------------------------------------------------------ exploring
    def check(self, outcome: Outcome) -> None:
        """Nobody waits for ever, and what all had queued when the first of them began to leave is done by all."""
        crashed = [name for name, end in outcome.actors.items() if end.how == "crashed"]
        for name, end in outcome.actors.items():
            assert end.how != "asleep", f"{name} waits for ever in {end.value}"
        if crashed:
            return
        for name in self.names:
            queued, _done, matched, why = outcome.value(name)
            if matched and queued == max(self.work):
                for other in self.names:
                    _queued, done, _matched, why = outcome.value(other)
                    assert done >= queued, f"{other} has {done} of {queued} that everybody had queued: {why}"

    @contextlib.contextmanager
    def in_place(self, order: str) -> Iterator[None]:
        """As of `Meeting`, and more."""
        with Meeting().in_place(order), pytest.MonkeyPatch.context() as patch:
            patch.setattr(stream_group, "trust_fence", explorer.fence_if_weak)
            patch.setattr(stream_group, "monotonic", lambda: 0.0)
            patch.setattr(stream_group, "ABORT_GRACE", _AbortGrace())
            patch.setattr(nccl_member, "mark", lambda device, _stream: device.points.popleft())
            yield
