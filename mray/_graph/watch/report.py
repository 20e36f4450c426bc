"""Who waits for whom in a graph, in words: what every time-out says, and `CompiledGraph.report`.

    caller                                       each actor
    request "report" ------------------------->  its reading thread answers at once, also while a method runs:
    says what itself waits for                   which operation its program is at, how often it has been through,
    waits a moment, puts it together <---------  what its main thread does

Nothing is noted down while a graph runs. Where a program stands is read from the main thread's stack when somebody asks; the stack of a
thread of its own process is something that Python can be asked for at any time.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from mray._channel.base import ChannelReader, WrappedReader
from mray._graph.plan import COMPUTE, READ, Channel, Operation, Plan, Source

if TYPE_CHECKING:
    from mray._graph.actor.loop import Program
    from mray._graph.caller.compiled import CompiledGraph
    from mray._graph.host import GraphHost, Pending

#: Asks an actor for a `Standing`, and for the counters of what it writes by channel.
REPORT = "report"
STATISTICS = "statistics"
#: Seconds that a report waits for the answers of actors at most.
PATIENCE = 1.0
#: Who has waited less than so many seconds polls, and wants no report.
LEAST = 1e-3


@dataclass(frozen=True)
class Standing:
    """Where an actor stands in its program."""

    pid: int
    executions: int
    #: Index into the actor's operations: the one that runs, or the one that would block.
    place: int
    #: The channels whose messages it waits for there.
    missing: tuple[int, ...]
    running: bool
    #: What its main thread does: the frames above the graph's own, or all of them if it is busy with something else.
    stack: str


# ----------------------------------------------------------------------------------------- in the actor
def standing(programs: Iterable[Program], graph_id: str) -> bytes:
    """Any thread of an actor's process: the pickle of its `Standing`, or of None when it takes no part in the graph (any more)."""
    program = next((program for program in programs if program.assignment.graph_id == graph_id), None)
    return pickle.dumps(None if program is None else _standing(program))


def _standing(program: Program) -> Standing:
    stack = _stack_of(program.thread)
    place, executions, running = program._place, program.executions, False
    inner = stack
    for position, frame in enumerate(stack):
        # Invariant: `Program.run` keeps its place in these two, and in no attribute before it leaves.
        if frame.f_code is type(program).run.__code__ and frame.f_locals.get("self") is program:
            place = frame.f_locals.get("place", place)
            executions += frame.f_locals.get("executions", 0)
            # The frame above is the action; what it calls is the user's method, or the channel's.
            inner = stack[position + 2 :]
            running = True
    busy = running or any(frame.f_code.co_name == "_serve" for frame in stack)
    text = "".join(traceback.format_list(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in inner))) if busy else ""
    return Standing(os.getpid(), executions, place, () if running else _missing(program, place), running, text)


def statistics(programs: Iterable[Program], graph_id: str) -> bytes:
    """Main thread of an actor's process: the pickled counters of its writers."""
    writers = [item for program in programs if program.assignment.graph_id == graph_id for item in program.ends.writers.items()]
    return pickle.dumps({number: writer.statistics() for number, writer in writers})


def _missing(program: Program, place: int) -> tuple[int, ...]:
    """The channels that the READ at a place waits for: those of a step that follow each other are one action."""
    operations = program.assignment.operations
    missing = []
    for operation in operations[place:]:
        if operation.kind != READ or operation.step != operations[place].step:
            break
        reader = program.ends.readers.get(operation.channel)
        if not any(inlet.came and _reads_by(inlet.reader, reader) for inlet in program._inlets):
            missing.append(operation.channel)
    return tuple(missing)


def _reads_by(reader: ChannelReader, wanted: ChannelReader | None) -> bool:
    """Whether a reader is the one that is wanted, perhaps with others around it."""
    while reader is not wanted:
        if not isinstance(reader, WrappedReader):
            return False
        reader = reader._inner
    return True


def _stack_of(thread: int) -> list[FrameType]:
    """The frames of a thread, outermost first."""
    frames = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


# ---------------------------------------------------------------------------------------- in the caller
def ask(host: GraphHost, verb: str, plan: Plan, processes: Mapping[str, str], patience: float) -> dict[str, Pending | str]:
    """Request something of every actor: endpoint -> the request, done or not after `patience` seconds, or why it could not be made."""
    asked: dict[str, Pending | str] = {}
    for endpoint in plan.graph.actors:
        try:
            asked[endpoint] = host.request(processes[endpoint], verb, plan.graph_id.encode())
        except Exception as error:
            asked[endpoint] = f"is dead: {error}"
    host.wait_until(lambda: all(isinstance(each, str) or each.done() for each in asked.values()), patience)
    return asked


def standings(host: GraphHost, plan: Plan, processes: Mapping[str, str], patience: float) -> dict[str, Standing | str]:
    """Endpoint -> where it stands, or why that is not known. Waits `patience` seconds at most."""
    found: dict[str, Standing | str] = {}
    for endpoint, pending in ask(host, REPORT, plan, processes, patience).items():
        if isinstance(pending, str):
            found[endpoint] = pending
        elif not pending.done():
            found[endpoint] = f"does not answer within {patience:g} s: its process is stopped, or holds the interpreter lock"
        else:
            try:
                found[endpoint] = pickle.loads(pending.result()) or "takes no part in the graph any more"
            except Exception as error:
                found[endpoint] = f"is dead: {error}"
    return found


def report_of(host: GraphHost, plan: Plan, classes: Mapping[str, str], processes: Mapping[str, str], patience: float = PATIENCE) -> str:
    """Where the actors of a graph stand: a line for each, with its stack below. `classes`: endpoint -> the name of its actor's class."""
    names = _Names(plan, classes)
    lines = [""]
    for endpoint, found in standings(host, plan, processes, patience).items():
        if isinstance(found, str):
            lines.append(f"  {names.actor(endpoint)} {found}")
        else:
            lines.extend(_describe(names, endpoint, found))
    return "\n".join(lines)


def report(graph: CompiledGraph, timeout: float | None = None) -> str:
    """The report for an error after `timeout` seconds of waiting, which it does not keep waiting for much longer.

    Not with the graph's lock.
    """
    if graph.is_teardown:
        return f"The compiled graph {graph.get_id()} was torn down."
    own = describe_caller(graph)
    if timeout is not None and 0 <= timeout < LEAST:
        return own
    patience = PATIENCE if timeout is None or timeout < 0 else min(timeout, PATIENCE)
    return own + report_of(graph._host, graph._plan, graph._names, graph._made.processes, patience)


def describe_caller(graph: CompiledGraph) -> str:
    """What the caller's side knows by itself."""
    results = graph._results
    names = _Names(graph._plan, graph._names)
    counts = f"{graph._submitted} executions submitted, {results.finished} finished, {len(results.kept)} kept"
    text = f"Compiled graph {graph.get_id()}: {counts}."
    if graph._submitted > results.finished:
        missing = [names.source(graph._plan.graph.results[number]) for number in results.missing()]
        text += f"\n  the caller waits for execution {results.finished}: {' and '.join(missing) or 'nothing'}"
    return text


def _describe(names: _Names, endpoint: str, found: Standing) -> list[str]:
    where = f"  {names.actor(endpoint)}, pid {found.pid}, has finished {found.executions} executions and"
    operations = names.plan.schedule[endpoint]
    # A program of one step does all three at once: its second place is the WRITE that found no room.
    fused = [operation.kind for operation in operations] == ["READ", "COMPUTE", "WRITE"]
    place = min(found.place, len(operations) - 1)
    operation = operations[place]
    if found.running and fused and found.place == 0:
        operation = operations[1]
    elif fused and found.place == 1 and not found.running:
        operation = operations[2]
    lines = [f"{where} {names.doing(operation, found.running, found.missing)}"]
    if found.stack:
        if not found.running:
            lines[0] += ", but its main thread is busy with something else"
        lines.extend("    " + line for line in found.stack.rstrip().split("\n"))
    return lines


class _Names:
    """Operations in words."""

    def __init__(self, plan: Plan, actors: Mapping[str, str]) -> None:
        self.plan = plan
        self._actors = actors

    def actor(self, endpoint: str) -> str:
        if not endpoint:
            return "the caller"
        return f"{self._actors[endpoint]}({endpoint[:8]})" if self._actors.get(endpoint) else endpoint

    def source(self, source: Source) -> str:
        if source.step < 0:
            return "the input from the caller"
        step = self.plan.graph.steps[source.step]
        return f"{step.method}() of {self.actor(step.actor)}"

    def channel(self, channel: Channel) -> str:
        told = self.source(channel.source)
        if len(self.plan.channels_of(channel.source)) == 1:
            return told
        return f"{told} to {', '.join(map(self.actor, channel.readers))}"

    def doing(self, operation: Operation, running: bool, missing: tuple[int, ...]) -> str:
        kind, step, _number = operation
        method = self.plan.graph.steps[step].method if step >= 0 else ""
        if kind == COMPUTE:
            return f"{'computes' if running else 'is about to compute'} {method}() (COMPUTE)"
        if kind == READ:
            sources = [self.source(self._channel(number).source) for number in missing or (operation.channel,)]
            return f"{'reads' if running else 'waits for'} {' and '.join(sources)} (READ)"
        readers = ", ".join(self.actor(reader) for reader in self._channel(operation.channel).readers)
        return f"{'writes' if running else 'has no room to write'} the result of {method}() to {readers} (WRITE)"

    def _channel(self, number: int) -> Channel:
        return next(channel for channel in self.plan.channels if channel.index == number)


def counters(graph: CompiledGraph) -> dict[int, dict[str, int]]:
    """The counters of each channel by its number; without those of actors that compute for long."""
    asked = ask(graph._host, STATISTICS, graph._plan, graph._made.processes, PATIENCE)
    by_channel = {number: writer.statistics() for number, writer in graph._made.ends.writers.items()}
    for pending in asked.values():
        if not isinstance(pending, str) and pending.done():
            with contextlib.suppress(Exception):  # it has died
                by_channel.update(pickle.loads(pending.result()))
    return by_channel


def labelled(graph: CompiledGraph, by_channel: Mapping[int, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The counters of channels by what produces their source, told with the readers where several channels carry it.

    Where two channels would be told in the same words, since the same method was bound twice, with the step.
    """
    names = _Names(graph._plan, graph._names)
    channels = [channel for channel in graph._plan.channels if channel.index in by_channel]
    labels = {channel.index: names.channel(channel) for channel in channels}
    told = list(labels.values())
    for channel in channels:
        if told.count(labels[channel.index]) > 1:
            step, output = channel.source
            labels[channel.index] += f" (step {step}" + (f", output {output})" if graph._plan.graph.steps[step].num_returns > 1 else ")")
    return {labels[channel.index]: by_channel[channel.index] for channel in channels}
