"""An actor's programs, one for each graph, and the service that runs them.

    driver                              actor's main thread
    ALLOCATE (Assignment) ----------->  GraphService.handle: open the ends, compile a Program
    values through channels  <------->  GraphService.run: read, compute, write, until no program can go on
    STOP ---------------------------->  GraphService.handle: close the ends

Methods run on the main thread, between ordinary calls and never inside one.
"""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

from mray._api.communicator import Communicator
from mray._channel.base import ChannelReader, WrappedReader
from mray._common.kept import os
from mray._common.uncollected import uncollected
from mray._graph.actor.program import compile_program
from mray._graph.channel_ends import ChannelEnds, open_ends
from mray._graph.communicators import join, leave
from mray._graph.gpu_edges import SETTLING
from mray._graph.graph_messages import (
    ALLOCATE,
    ATTACH,
    LENT,
    OFFER,
    PROFILE,
    PROFILE_NOW,
    SITE,
    STATISTICS,
    STOP,
    TRIM,
    TRY,
    UNPROFILE,
    UNPROFILE_NOW,
    WITHDRAW,
    ProgramState,
)
from mray._graph.host import GraphHost
from mray._graph.plan import READ, Assignment
from mray._graph.watch.graph_profilers import ProgramProfilers
from mray._graph.watch.probes import Probe
from mray._graph.watch.profiled import profile, unprofile
from mray._ipc.ring_loans import sweep_closed
from mray._ipc.segment import Segment
from mray._ipc.spin import MAX_PROCESSES_PER_CORE, AdaptiveSpinner
from mray._ipc.table import usable_cores
from mray._objects.serializer import deserialize
from mray.exceptions import RayChannelError


class Program:
    """One graph's part of an actor."""

    def __init__(
        self,
        assignment: Assignment,
        instance: Any,
        ends: ChannelEnds,
        constants: list[Any],
        failure: Callable[[BaseException, str], bytes],
        profilers: ProgramProfilers | None = None,
        probes: tuple[Probe, ...] = (),
    ) -> None:
        self.assignment = assignment
        self.instance = instance
        self.constants = constants
        self.ends = ends
        self._profilers = profilers
        self._probes = () if profilers is None else profilers.probes
        #: Permanent probes, outermost.
        self._always = probes
        self._compile = partial(compile_program, assignment, instance, ends.readers, ends.writers, constants, ends.communicators, failure)
        #: The program without the probe of a profile.
        self._code = code = self._compile((*self._probes, *probes))
        self._actions = code.actions
        self._waits = code.waits
        self._inlets = code.inlets
        self._cells = code.cells
        self._blank = [None] * len(code.cells)
        #: The probe from the next execution on; guarded, like the exchange of actions, by `_exchanging`.
        self._wanted: Probe | None = None
        self._exchanging = threading.Lock()
        #: Whether `run` returns at the end of the execution even without pending work.
        self._returns = False
        readers: tuple[ChannelReader, ...] = tuple(ends.readers.values())
        #: Operation -> the readers that it does not wait for.
        self._others = [tuple(reader for reader in readers if reader.ready != wait) for wait in code.waits]
        lone = {channel.index for channel in assignment.channels if len(channel.readers) == 1}
        #: Operation -> whether this actor alone reads its channel.
        self._alone = [operation.kind == READ and operation.channel in lone for operation in assignment.operations]
        self._place = 0
        self.thread = threading.get_ident()
        self.executions = 0
        self.closed = False

    def ready(self) -> bool:
        """Whether `run` would make progress. Also frees room for waiting writers, so call it before sleeping."""
        if self._waits[self._place]():
            return True
        for inlet in self._inlets:
            if inlet.owed and inlet.reader.ready():
                return True
        for reader in self._others[self._place]:
            reader.ready()
        return False

    @property
    def waits_alone(self) -> bool:
        return self._alone[self._place]

    def run(self, pending: Callable[[], object]) -> bool:
        """Run until blocked, or until an execution ends while `pending()`. Returns whether it made progress."""
        for inlet in self._inlets:
            if inlet.owed:
                inlet.settle()
        actions = self._actions
        last = len(actions)
        place = start = self._place
        executions = 0
        try:
            while True:
                while place < last:
                    step = actions[place]()
                    if not step:
                        return executions > 0 or place != start
                    place += step
                place = 0
                executions += 1
                if self._blank:
                    self._cells[:] = self._blank
                if self._returns or pending():
                    return True
        finally:
            self._place = place
            self.executions += executions

    def probe(self, probe: Probe | None) -> None:
        """Put this probe around its operations, or none, from the next execution on. Any thread.

        `run` is replaced by a function that exchanges the actions, so that executions do not check for a probe.
        """
        with self._exchanging:
            self._wanted = probe
        self.give_way()

    def give_way(self) -> None:
        """Make `run` return at the end of the execution. Any thread."""
        with self._exchanging:
            self._returns = True
            self.__dict__["run"] = self._exchange_and_run

    def _exchange_and_run(self, pending: Callable[[], object]) -> bool:
        self._exchange()
        moved = Program.run(self, pending)
        self._exchange()
        return moved

    def _exchange(self) -> None:
        with self._exchanging:
            if self._place or self.closed or "run" not in self.__dict__:
                return
            probe = self._wanted
            code = self._code if probe is None else self._compile((*self._probes, probe, *self._always), self._cells)
            # The first step may have gathered some of its values; owed messages stay owed.
            for inlet, before in zip(code.inlets, self._inlets, strict=True):
                inlet.came, inlet.owed = before.came, before.owed
            self._actions, self._waits, self._inlets = code.actions, code.waits, code.inlets
            self._returns = False
            del self.__dict__["run"]

    def state(self) -> ProgramState:
        """The actor's position. Any thread of the actor's process."""
        stack = _stack_of(self.thread)
        place, executions, running = self._place, self.executions, False
        inner = stack
        for position, frame in enumerate(stack):
            # Invariant: `run` keeps its position in these two, and in no attribute.
            if frame.f_code is type(self).run.__code__ and frame.f_locals.get("self") is self:
                place = frame.f_locals.get("place", place)
                executions += frame.f_locals.get("executions", 0)
                # The next inner frame is the action.
                inner = stack[position + 2 :]
                running = True
        busy = running or any(frame.f_code.co_name == "_serve" for frame in stack)
        text = "".join(traceback.format_list(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in inner))) if busy else ""
        return ProgramState(os.getpid(), executions, place, () if running else self._missing(place), running, text)

    def _missing(self, place: int) -> tuple[int, ...]:
        """Channels that the READ waits for; consecutive READs of a step are one action."""
        operations = self.assignment.operations
        missing = []
        for operation in operations[place:]:
            if operation.kind != READ or operation.step != operations[place].step:
                break
            reader = self.ends.readers.get(operation.channel)
            if not any(inlet.came and _reads_by(inlet.reader, reader) for inlet in self._inlets):
                missing.append(operation.channel)
        return tuple(missing)

    def close(self) -> None:
        """Leave the graph. Idempotent."""
        with self._exchanging:
            self.closed = self._returns = True
            self._actions = []
        self.ends.close()
        self._cells[:] = self._blank
        if self._profilers is not None:
            self._profilers.close()


def _also(pending: Callable[[], object], others: tuple[Program, ...]) -> Callable[[], object]:
    if len(others) == 1:
        ready = others[0].ready
        return lambda: pending() or ready()
    return lambda: pending() or any(other.ready() for other in others)


def _reads_by(reader: ChannelReader, wanted: ChannelReader | None) -> bool:
    return reader is wanted or (isinstance(reader, WrappedReader) and reader.wraps(wanted))


def _stack_of(thread: int) -> list[FrameType]:
    """A thread's frames, outermost first."""
    frames = []
    with uncollected:
        frame = sys._current_frames().get(thread)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
    return frames[::-1]


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class GraphService:
    """All programs of an actor. Main thread only, except `ready`, `owner_gone` and `attaching`."""

    def __init__(self, host: GraphHost, is_its_thread: Callable[[], bool] = _is_main_thread, probes: tuple[Probe, ...] = ()) -> None:
        self._host = host
        self.is_its_thread = is_its_thread
        self.probes = probes
        self._spinner: AdaptiveSpinner = host.spinner
        #: Used where a graph has more processes than cores.
        self._spinner_oversubscribed = host.spinner.in_turns()
        self._programs: tuple[Program, ...] = ()
        #: Each program, and all others.
        self._turns: tuple[tuple[Program, tuple[Program, ...]], ...] = ()
        #: Processes per core of the largest graph.
        self._per_core = 0.0
        #: Dead owners, and ids of graphs to leave.
        self._gone: deque[str] = deque()
        #: Copies whose program a thread is creating -> their processes; without its entry a thread gives up.
        self._attaching: dict[str, str] = {}
        #: Held while `_attaching` or the programs change.
        self._changing = threading.Lock()

    # ------------------------------------------------------------------------------------ requests
    def handle(self, verb: str, payload: bytes, instance: Any) -> bytes:
        if verb == ALLOCATE:
            return self._allocate(pickle.loads(payload), instance)
        if verb == ATTACH:
            return self.attaching(payload)()
        if verb == STOP:
            self._stop(payload.decode())
            return b"" if sweep_closed() else LENT
        if verb == STATISTICS:
            return self._statistics(payload.decode())
        if verb in (PROFILE, PROFILE_NOW):
            return profile(self._host, self._programs, payload)
        if verb in (UNPROFILE, UNPROFILE_NOW):
            return unprofile(self._host, self._programs, payload, at_once=verb == UNPROFILE_NOW)
        if verb == SITE:
            return pickle.dumps(self._host.gpus().site(pickle.loads(payload)))
        if verb in (OFFER, TRY, WITHDRAW):
            return self._host.gpus().answer(verb, payload)
        if verb == TRIM:
            sweep_closed()
            self._host.settle_gpus(SETTLING)
            return b""
        raise ValueError(f"an actor does not handle the request {verb!r} about a graph")

    def _allocate(self, assignment: Assignment, instance: Any) -> bytes:
        assert assignment.constants is not None
        values = deserialize(*assignment.constants)
        program = self._program(assignment, instance, values, join(self._host, assignment.memberships))
        with self._changing:
            self._set_programs((*self._programs, program))
        return b""

    def attaching(self, payload: bytes) -> Callable[[], bytes]:
        """ATTACH, in the reading thread, so that no STOP comes before; the returned function creates the copy's program in any thread."""
        assignment: Assignment = pickle.loads(payload)
        with self._changing:
            self._attaching[assignment.graph_id] = assignment.owner
        return partial(self._attach, assignment)

    def _attach(self, assignment: Assignment) -> bytes:
        program = None
        try:
            original = next((program for program in self._programs if program.assignment.graph_id == assignment.copy_of), None)
            if original is not None:
                program = self._program(assignment, original.instance, original.constants, {})
                program.thread = original.thread
        finally:
            with self._changing:
                is_wanted = self._attaching.pop(assignment.graph_id, None) is not None
                if program is not None and is_wanted:
                    others = self._programs
                    self._set_programs((*others, program))
                    for other in others:  # which do not know this one while they run
                        other.give_way()
        if program is None or not is_wanted:
            if program is not None:
                program.close()
            raise RayChannelError("Channel closed.")
        return b""

    def _program(self, assignment: Assignment, instance: Any, constants: list[Any], joined: dict[int, Communicator]) -> Program:
        with ExitStack() as undoing:
            undoing.callback(leave, joined)
            segment = Segment.open(assignment.segment, writable=True, ask=self._host.ask_of(assignment.owner))
            # POINT graph segment opened
            part = assignment.channels, assignment.processes, joined, assignment.ranks
            ends = open_ends(self._host, assignment.actor, segment, assignment.prefix, *part)
            undoing.callback(ends.close)
            profilers = ProgramProfilers(assignment.profilers)
            undoing.callback(profilers.close)
            program = Program(assignment, instance, ends, constants, self._host.failure, profilers, self.probes)
            undoing.pop_all()
        # POINT graph part compiled
        return program

    def _set_programs(self, programs: tuple[Program, ...]) -> None:
        self._programs = programs
        self._turns = tuple((program, tuple(other for other in programs if other is not program)) for program in programs)
        self._per_core = max((program.assignment.process_count for program in programs), default=0) / usable_cores()

    def _stop(self, graph_id: str) -> None:
        with self._changing:
            self._attaching.pop(graph_id, None)
            stopped = [program for program in self._programs if program.assignment.graph_id == graph_id]
            self._set_programs(tuple(program for program in self._programs if program not in stopped))
        for program in stopped:
            program.close()

    def owner_gone(self, process: str) -> None:
        """Leave a dead owner's graphs. Any thread."""
        self._gone.append(process)

    def leave(self, graph_id: str) -> None:
        """Make the main thread leave a graph. Any thread."""
        self._gone.append(graph_id)

    def _leave_gone(self) -> None:
        while self._gone:
            gone = self._gone.popleft()
            owners = [(program.assignment.graph_id, program.assignment.owner) for program in self._programs]
            for graph_id, owner in (*owners, *self._attaching.copy().items()):
                if gone in (owner, graph_id):
                    self._stop(graph_id)

    def close_all(self) -> None:
        self._attaching.clear()
        for program in self._programs:
            self._stop(program.assignment.graph_id)

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs. Any thread."""
        return self._programs

    # ------------------------------------------------------------------------------------ running
    @property
    def is_active(self) -> bool:
        return bool(self._programs or self._gone)

    def ready(self) -> bool:
        for program in self._programs:
            if program.ready():
                return True
        return bool(self._gone)

    def run(self, pending: Callable[[], object]) -> bool:
        """Run programs in turns until all are blocked and spinning does not help, or until `pending()`. Returns whether any made
        progress.
        """
        if self._gone:
            self._leave_gone()
        moved = False
        while self._programs:
            moves = False
            for program, others in self._turns:
                moves = program.run(_also(pending, others) if others else pending) or moves
            moved = moved or moves
            if pending() or not ((moves and len(self._turns) > 1 and self.ready()) or self._spin(pending)):
                break
        return moved

    def _spin(self, pending: Callable[[], object]) -> bool:
        spinner = self._spinner
        if self._per_core > 1:
            if self._per_core > MAX_PROCESSES_PER_CORE or not all(program.waits_alone for program in self._programs):
                return False
            spinner = self._spinner_oversubscribed
        return bool(spinner.spin(self._programs[0].ready if len(self._programs) == 1 else self.ready, stop=pending))

    def state(self, graph_id: str) -> bytes:
        """The pickled `ProgramState`, or None when the actor takes no part. Any thread."""
        program = next((program for program in self._programs if program.assignment.graph_id == graph_id), None)
        return pickle.dumps(None if program is None else program.state())

    def _statistics(self, graph_id: str) -> bytes:
        writers = [item for program in self._programs if program.assignment.graph_id == graph_id for item in program.ends.writers.items()]
        return pickle.dumps({number: writer.statistics() for number, writer in writers})

    def statistics(self) -> dict[str, int]:
        return {program.assignment.graph_id: program.executions for program in self._programs}
