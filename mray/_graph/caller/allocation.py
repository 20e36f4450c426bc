"""The channels and workers of a compiled graph.

caller                                          each actor
make: create the segment, format all rings
request ALLOCATE (of a copy ATTACH) ----------> open the endpoints, compile the program
once all have answered <----------------------- done, or the exception
unlink the segment's name; open its endpoints
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mray._channel.select import DEVICE
from mray._common import settings
from mray._common.bridge import Cancel
from mray._common.kept import os
from mray._graph.channel_ends import ChannelEnds, open_ends
from mray._graph.communicators import Invitation, Membership
from mray._graph.graph_messages import ALLOCATE, ATTACH, ENDED, LENT, STOP, TRIM
from mray._graph.host import GraphHost, Pending, raise_death, weakly
from mray._graph.plan import DRIVER, Assignment, Plan, Profilers
from mray._ipc.ring import RingWriter
from mray._ipc.ring_loans import sweep_closed
from mray._ipc.segment import Segment, for_what
from mray._ipc.slots import unlink_all
from mray._objects.remote_error import pickle_error
from mray._trace.torch_profiler import FOLDER
from mray.exceptions import ObjectStoreFullError

_NONE: Mapping[str, tuple[int, bytes]] = {}


class Allocation:
    """`actors` (ids) and `processes` are by endpoint; `workers` are leased for functions; `keep`: objects that must live as long as the
    graph.
    """

    def __init__(
        self,
        host: GraphHost,
        plan: Plan,
        actors: Mapping[str, str],
        processes: Mapping[str, str],
        workers: dict[str, Any] | None = None,
        keep: Any = None,
    ) -> None:
        self.host = host
        self.plan = plan
        self.actors = actors
        self._workers = {} if workers is None else workers
        self._keep = keep
        #: Cancel the watches on actors and copiers.
        self._watches: list[Cancel] = []
        self.processes = {DRIVER: host.process, **processes}
        #: Living processes with a copy.
        self._copiers: set[str] = set()
        self._segment: Segment | None = None
        self.process_count = len(set(self.processes.values()))
        self.prefix = f"{host.prefix}g{plan.graph_id[:16]}-"
        self.ends = ChannelEnds()
        #: Answers to STOP, by endpoint.
        self._left: dict[str, Pending] = {}
        torch = os.path.join(os.getcwd(), FOLDER) if not plan.copy_of and settings.CGRAPH_TORCH_PROFILING.get() else ""
        self.profilers = Profilers(torch, settings.CGRAPH_NVTX_PROFILING.get())

    def make(self, constants: Mapping[str, tuple[int, bytes]] = _NONE, invited: Sequence[Invitation] = ()) -> None:
        """Create channels and programs and wait for the actors. Releases everything if it raises.

        `constants`: a serialized list for each endpoint (none for a copy).
        """
        try:
            parts = self._ask(constants, invited)
            self.host.wait_for_answers(dict(zip(self.actors.values(), parts, strict=True)))
            self._open(parts)
        except BaseException as error:
            self.stop()
            try:
                if isinstance(error, Exception):
                    raise_death(self.host, {actor: self.processes[endpoint] for endpoint, actor in self.actors.items()}, error)
            finally:
                self.end_workers()
                self.release()
            raise

    def _ask(self, constants: Mapping[str, tuple[int, bytes]], invited: Sequence[Invitation]) -> list[Pending]:
        plan = self.plan
        try:
            segment = self._segment = Segment.create(self.prefix, plan.size, offer=True)
        except (OSError, ObjectStoreFullError) as error:
            raise for_what(error, "the channels of the graph") from None
        for channel in plan.channels:
            RingWriter.format(segment, channel.offset, channel.layout)
        # POINT graph segment formatted
        verb = ATTACH if plan.copy_of else ALLOCATE
        pendings = []
        for actor in self.actors:
            assignment = self._assignment(actor, constants.get(actor), invited)
            pendings.append(self.host.request(self.processes[actor], verb, pickle.dumps(assignment)))
        # POINT graph parts asked
        return pendings

    def _open(self, pendings: Sequence[Pending]) -> None:
        assert self._segment is not None
        for pending in pendings:
            pending.result()
        # POINT graph parts there
        self.ends = open_ends(self.host, DRIVER, self._segment, self.prefix, self.plan.channels, self.processes)
        self._unlink()

    def _unlink(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.unlink()

    def _assignment(self, actor: str, constants: tuple[int, bytes] | None, invited: Sequence[Invitation]) -> Assignment:
        plan = self.plan
        channels = tuple(channel for channel in plan.channels if actor == channel.writer or actor in channel.readers)
        endpoints = {endpoint for channel in channels for endpoint in (channel.writer, *channel.readers)}
        return Assignment(
            graph_id=plan.graph_id,
            copy_of=plan.copy_of,
            actor=actor,
            owner=self.host.process,
            segment=self.prefix,
            prefix=self.prefix,
            steps=tuple(step for step in plan.graph.steps if step.actor == actor),
            operations=plan.schedule[actor],
            channels=channels,
            processes={endpoint: self.processes[endpoint] for endpoint in endpoints},
            constants=constants,
            memberships=tuple(
                Membership(number, each.form, each.payload, each.ranks[actor]) for number, each in enumerate(invited) if actor in each.ranks
            ),
            ranks={number: each.ranks for number, each in enumerate(invited)},
            process_count=self.process_count,
            overlap=plan.overlap,
            profilers=self.profilers,
        )

    def watch(self, tell: Callable[[Exception], None]) -> None:
        """Call ``tell(error)`` when an actor dies, until `release`."""
        self._watches = [self.host.then(actor, tell, doing=self.plan.part_of(endpoint)) for endpoint, actor in self.actors.items()]

    def end(self) -> None:
        self.stop()
        self.end_workers()
        self.release()

    @contextlib.contextmanager
    def until_owned(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.end()
            raise

    def stop(self, error: Exception | None = None) -> list[Pending]:
        """Ask living actors to leave, returning the pending answers, and notify processes with a copy of `error` or an orderly end."""
        graph_id = self.plan.graph_id.encode()
        for endpoint in self.actors:
            with contextlib.suppress(Exception):
                self._left[endpoint] = self.host.request(self.processes[endpoint], STOP, graph_id)
        told = pickle.dumps((self.plan.graph_id, b"" if error is None else pickle_error(error)))
        for process in tuple(self._copiers):
            with contextlib.suppress(Exception):
                self.host.request(process, ENDED, told)
        return list(self._left.values())

    def note_copier(self, process: str) -> None:
        if process not in self._copiers:
            self._copiers.add(process)
            self._watches.append(self.host.then("", weakly(self._forget_copier, process), process=process))

    def _forget_copier(self, process: str, _error: Exception) -> None:
        self._copiers.discard(process)

    def end_workers(self) -> None:
        # Their only handles.
        self._workers.clear()

    def release(self, patience: float = 0.0) -> None:
        """Close this process's endpoints and remove every name. Idempotent.

        Waits up to `patience` seconds until device memory is released.
        """
        while self._watches:
            self._watches.pop()()
        # POINT graph left
        self._unlink()
        self.ends.close()
        # POINT graph ends closed
        unlink_all(self.prefix)
        sweep_closed()
        lending = [channel for channel in self.plan.channels if channel.transport in DEVICE]
        trimmed = {endpoint for channel in lending for endpoint in (channel.writer, *channel.readers)} - {DRIVER}
        trimmed.update(endpoint for endpoint, pending in self._left.items() if _lent(pending))
        # Last: the last process that closes an endpoint frees the memory of others.
        for endpoint in trimmed:
            with contextlib.suppress(Exception):
                self.host.request(self.processes[endpoint], TRIM, b"")
        if lending:
            self.host.settle_gpus(patience)


def _lent(pending: Pending) -> bool:
    """Whether it left but retains values that it passed on."""
    try:
        return pending.ready() and pending.result() == LENT
    except Exception:  # dead
        return False
