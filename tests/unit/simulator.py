"""Runs a plan without processes: actors that read, compute and write over bounded channels, in any interleaving.

Every value is a token that names its source and its execution, so that a schedule that mixes them up is caught as well as one that hangs.
"""

from __future__ import annotations

from collections import deque
from random import Random

from mray._channel.select import BLOCKING
from mray._graph.plan import COMPUTE, DRIVER, INPUT, READ, WRITE, Operation, Plan, Source

Token = tuple[Source, int]


class Stuck(Exception):
    """Nobody can move; `waiting` has the operation at which each actor stands."""

    def __init__(self, finished: int, waiting: dict[str, Operation]) -> None:
        super().__init__(f"stuck after {finished} executions: {waiting}")
        self.waiting = waiting


class Actor:
    """Where an actor is in its program, and the values that it has."""

    def __init__(self, name: str, operations: tuple[Operation, ...]) -> None:
        self.name = name
        self.operations = operations
        self.place = 0
        self.execution = 0
        self.values: dict[Source, Token] = {}

    @property
    def operation(self) -> Operation:
        return self.operations[self.place]

    def advance(self) -> None:
        self.place += 1
        if self.place == len(self.operations):
            self.place = 0
            self.execution += 1
            self.values.clear()


class Simulator:
    """A plan in progress: a channel holds `capacity` messages per reader, the driver has `in_flight` executions open."""

    def __init__(self, plan: Plan, capacity: int, in_flight: int, random: Random) -> None:
        self.plan = plan
        self.capacity = capacity
        self.in_flight = in_flight
        self.random = random
        self.actors = {actor: Actor(actor, operations) for actor, operations in plan.schedule.items()}
        self.queues = {(channel.index, reader): deque[Token]() for channel in plan.channels for reader in channel.readers}
        self.submitted = 0
        #: channel -> the executions of which the driver has read it.
        self.taken = {channel.index: 0 for channel in plan.channels if DRIVER in channel.readers}

    @property
    def finished(self) -> int:
        return min(self.taken.values())

    def run(self, executions: int) -> None:
        """Run so many executions to their end, one move of anybody at a time; raises Stuck."""
        moves = [lambda: self._submit(executions)]
        moves += [lambda channel=channel: self._take(channel) for channel in self.taken]
        moves += [lambda actor=actor: self._move(actor) for actor in self.actors.values()]
        while self.finished < executions:
            self.random.shuffle(moves)
            if not any(move() for move in moves):
                raise Stuck(self.finished, {name: actor.operation for name, actor in self.actors.items()})
        assert not any(self.queues.values()), "a message that nobody reads"

    # ------------------------------------------------------------------------------------ the driver
    def _submit(self, executions: int) -> bool:
        channels = [channel.index for channel in self.plan.channels_of(INPUT)]
        if self.submitted == executions or self.submitted - self.finished >= self.in_flight or not all(map(self._has_room, channels)):
            return False
        for channel in channels:
            self._send(channel, (INPUT, self.submitted))
        self.submitted += 1
        return True

    def _take(self, channel: int) -> bool:
        queue = self.queues[channel, DRIVER]
        if not queue:
            return False
        assert queue.popleft() == (self.plan.channels[channel].source, self.taken[channel]), "a result of another execution"
        self.taken[channel] += 1
        return True

    # ------------------------------------------------------------------------------------ actors
    def _move(self, actor: Actor) -> bool:
        return {READ: self._read, COMPUTE: self._compute, WRITE: self._write}[actor.operation.kind](actor, actor.operation)

    def _read(self, actor: Actor, operation: Operation) -> bool:
        queue = self.queues[operation.channel, actor.name]
        if not queue:
            return False
        token = queue.popleft()
        assert token == (self.plan.channels[operation.channel].source, actor.execution), "a value of another execution"
        actor.values[token[0]] = token
        actor.advance()
        return True

    def _compute(self, actor: Actor, operation: Operation) -> bool:
        step = self.plan.graph.steps[operation.step]
        group = [each.index for each in self.plan.graph.steps if each.group == step.group >= 0] or [step.index]
        meeting = [other for other in self.actors.values() if other.operation.kind == COMPUTE and other.operation.step in group]
        if len(meeting) < len(group) or len({each.execution for each in meeting}) > 1:
            return False
        for each in meeting:
            own = self.plan.graph.steps[each.operation.step]
            assert all(source in each.values for source in own.sources), "computed before its values were there"
            made = [Source(own.index, output) for output in range(own.num_returns)]
            each.values.update({source: (source, each.execution) for source in made})
            each.advance()
        return True

    def _write(self, actor: Actor, operation: Operation) -> bool:
        channel = self.plan.channels[operation.channel]
        if not self._has_room(channel.index):
            return False
        if channel.transport in BLOCKING:
            readers = [self.actors[reader] for reader in channel.readers if reader != DRIVER]
            there = (READ, channel.index, actor.execution)
            if any((each.operation.kind, each.operation.channel, each.execution) != there for each in readers):
                return False
        self._send(channel.index, actor.values[channel.source])
        actor.advance()
        return True

    # ------------------------------------------------------------------------------------ channels
    def _has_room(self, channel: int) -> bool:
        return all(len(self.queues[channel, reader]) < self.capacity for reader in self.plan.channels[channel].readers)

    def _send(self, channel: int, token: Token) -> None:
        for reader in self.plan.channels[channel].readers:
            self.queues[channel, reader].append(token)
