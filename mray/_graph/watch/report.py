"""The report of a graph in words, a line for each actor: the operation it is at, and the peers it waits for.

    caller                                       each actor
    request "report" ------------------------->  its reading thread answers immediately, also while a method runs:
    adds a line of its own waits                 the operation that its program is at, the number of executions,
    waits a moment, combines the answers <-----  the stack of its main thread

A running graph records nothing for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from mray._channel.base import ChannelWriter
from mray._graph.graph_messages import REPORT, STATISTICS, ProgramState
from mray._graph.participants import Participants
from mray._graph.plan import COMPUTE, READ, Operation, Route, Source

PATIENCE = 1.0
#: A caller that waited less gets no report.
LEAST = 1e-3


# ---------------------------------------------------------------------------------------- in the caller
def program_states(participants: Participants, patience: float) -> dict[str, ProgramState | str]:
    """Endpoint -> its state, or why that is unknown."""
    answers = participants.ask(REPORT, participants.plan.graph_id.encode(), patience)
    return {
        endpoint: answer if isinstance(answer, str) else pickle.loads(answer) or "no longer takes part in the graph"
        for endpoint, answer in answers.items()
    }


def report_of(participants: Participants, patience: float = PATIENCE) -> str:
    names = _Names(participants)
    lines = [""]
    for endpoint, found in program_states(participants, patience).items():
        if isinstance(found, str):
            lines.append(f"  {participants.name(endpoint)} {found}")
        else:
            lines.extend(_describe(names, endpoint, found))
    return "\n".join(lines)


def describe_caller(participants: Participants, submitted: int, finished: int, kept: int, missing: Sequence[int] | None) -> str:
    """`missing`: results that the caller waits for; None: it does not wait."""
    plan = participants.plan
    text = f"Compiled graph {plan.graph_id}: {submitted} executions submitted, {finished} finished, {kept} kept."
    if missing is not None:
        names = _Names(participants)
        sources = [names.source(plan.graph.results[number]) for number in missing]
        text += f"\n  the caller waits for execution {finished}: {' and '.join(sources) or 'nothing'}"
    return text


def _describe(names: _Names, endpoint: str, found: ProgramState) -> list[str]:
    where = f"  {names.actor(endpoint)}, pid {found.pid}, has finished {found.executions} executions and"
    operations = names.plan.schedule[endpoint]
    # The second position of a fused program is the WRITE that found no room.
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
            lines[0] += ", but its main thread is busy with other work"
        lines.extend("    " + line for line in found.stack.rstrip().split("\n"))
    return lines


class _Names:
    def __init__(self, participants: Participants) -> None:
        self.plan = participants.plan
        self.actor = participants.name

    def source(self, source: Source) -> str:
        if source.step < 0:
            return "the input from the caller"
        step = self.plan.graph.steps[source.step]
        return f"{step.method}() of {self.actor(step.actor)}"

    def channel(self, channel: Route) -> str:
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

    def _channel(self, number: int) -> Route:
        return next(channel for channel in self.plan.channels if channel.index == number)


def counters(participants: Participants, own: Mapping[int, ChannelWriter]) -> dict[int, dict[str, int]]:
    """Counters by channel number, including `own` writers; without actors that compute for long."""
    by_channel = {number: writer.statistics() for number, writer in own.items()}
    for answer in participants.ask(STATISTICS, participants.plan.graph_id.encode(), PATIENCE).values():
        if not isinstance(answer, str):
            by_channel.update(pickle.loads(answer))
    return by_channel


def labelled(participants: Participants, by_channel: Mapping[int, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Counters by source name, with the readers where several channels carry it, and the step where a method was bound twice."""
    names, plan = _Names(participants), participants.plan
    channels = [channel for channel in plan.channels if channel.index in by_channel]
    labels = {channel.index: names.channel(channel) for channel in channels}
    told = list(labels.values())
    for channel in channels:
        if told.count(labels[channel.index]) > 1:
            step, output = channel.source
            labels[channel.index] += f" (step {step}" + (f", output {output})" if plan.graph.steps[step].num_returns > 1 else ")")
    return {labels[channel.index]: by_channel[channel.index] for channel in channels}
