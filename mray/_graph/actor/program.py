"""Compiling an actor's operations into a flat list of closures.

Each action does one operation and returns how many positions the program advances: 0 when it would block. A program of one step that
reads one value and sends one on is a single action.

A method that raises produces a `Failed`, which travels in the place of the value; steps pass it on.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from mray._api.blueprint import bound_method
from mray._api.communicator import Communicator
from mray._api.dag_output import with_outputs
from mray._channel.base import NOTHING, ChannelReader, ChannelWriter, Failed
from mray._channel.select import BLOCKING, DEVICE
from mray._graph.actor.coroutines import to_the_end
from mray._graph.actor.inlets import Inlet, any_ready, read_all
from mray._graph.actor.overlap import Overlap
from mray._graph.communicators import CommunicatorCall
from mray._graph.holes import filler
from mray._graph.inputs import picker
from mray._graph.plan import COMPUTE, READ, Argument, Assignment, Operation, Route, Source, Step
from mray._graph.watch.probes import Probe
from mray._graph.watch.probes import apply as probe_ends

#: Returns the positions to advance, 0 when it would block.
Action = Callable[[], int]
Fail = Callable[[BaseException, str], bytes]


class Code(NamedTuple):
    """`waits[i]()`: whether action i would make progress now."""

    actions: list[Action]
    waits: list[Callable[[], bool]]
    cells: list[Any]
    #: Inlets that may owe messages.
    inlets: list[Inlet]


def _always() -> bool:
    return True


def compile_program(
    assignment: Assignment,
    instance: Any,
    readers: Mapping[int, ChannelReader],
    writers: Mapping[int, ChannelWriter],
    constants: list[Any],
    communicators: Mapping[int, Communicator],
    failure: Fail,
    probes: Sequence[Probe] = (),
    cells: list[Any] | None = None,
) -> Code:
    """Raises when a method is missing or cannot run in a graph.

    `cells` are those of the program's earlier compilation.
    """
    steps = {step.index: step for step in assignment.steps}
    channels = {channel.index: channel for channel in assignment.channels}
    names = {step.index: _name_of(instance, step) for step in assignment.steps}
    methods = {step.index: _callable_of(instance, step, constants, communicators) for step in assignment.steps}
    overlap = Overlap(assignment, readers, methods, constants, communicators)
    filled = _with_outputs(assignment, methods, writers)
    for probe in probes:
        methods = {index: probe.method(steps[index], names[index], method) for index, method in methods.items()}
    readers, writers = probe_ends(probes, assignment.channels, overlap.readers, writers)
    fused = _fuse(assignment, steps, channels)
    if fused is not None:
        read, step, write = fused
        reader, writer = readers[read.channel], writers[write.channel]
        call = _call_on(step, methods[step.index], constants)
        keeps = channels[read.channel].transport in DEVICE
        actions = _relay(reader.try_read, call, writer.try_write, names[step.index], failure, keeps)
        return Code(actions, [reader.ready, writer.has_room], [], [])

    numbers: dict[Source, int] = {}
    for step in assignment.steps:
        for source in (*step.sources, *(Source(step.index, output) for output in range(step.num_returns))):
            numbers.setdefault(source, len(numbers))
    code = Code([], [], [None] * len(numbers) if cells is None else cells, [])
    for place, operation in enumerate(assignment.operations):
        if len(code.actions) > place:
            continue  # gathered by the previous READ
        step = steps[operation.step]
        if operation.kind == READ:
            _add_reads(code, step, _inlets(assignment, place, readers, channels, numbers), numbers)
        elif operation.kind == COMPUTE:
            code.actions.append(_compute(step, methods[step.index], code.cells, numbers, constants, names[step.index], failure))
            code.waits.append(_always)
        else:
            channel, writer = channels[operation.channel], writers[operation.channel]
            cell = numbers[channel.source]
            make_write = _write_bare if channel.bare else _write
            action = make_write(writer.try_write, code.cells, cell, names[step.index], failure)
            if channel.index in filled:
                action = _then_forget(action, code.cells, cell)
            code.actions.append(overlap.before_write(channel, action))
            code.waits.append(writer.has_room)
    return code


def _with_outputs(assignment: Assignment, methods: dict[int, Callable[..., Any]], writers: Mapping[int, ChannelWriter]) -> set[int]:
    """Let methods fill the memory of the only channel that carries a result that no step here uses; returns the channels' numbers."""
    used = Counter(channel.source for channel in assignment.channels if channel.index in writers)
    used.update(source for step in assignment.steps for source in step.sources)
    steps = {step.index: step for step in assignment.steps if step.num_returns == 1 and step.group < 0}
    filled = set()
    for channel in assignment.channels:
        if channel.source.step in steps and channel.index in writers and not channel.bare and used[channel.source] == 1:
            outputs = writers[channel.index].outputs()
            if outputs is not None:
                methods[channel.source.step] = with_outputs(methods[channel.source.step], outputs)
                filled.add(channel.index)
    return filled


def _inlets(
    assignment: Assignment, place: int, readers: Mapping[int, ChannelReader], channels: Mapping[int, Route], numbers: dict[Source, int]
) -> list[Inlet]:
    """A READ whose channel blocks stays alone."""
    found: list[Inlet] = []
    step = assignment.operations[place].step
    for operation in assignment.operations[place:]:
        if operation.kind != READ or operation.step != step:
            break
        channel = channels[operation.channel]
        blocking = channel.transport in BLOCKING
        if blocking and found:
            break
        users = sum(channel.source in each.sources for each in assignment.steps)
        is_relayed = sum(each.source == channel.source for each in assignment.channels) > 1
        found.append(Inlet(readers[channel.index], numbers[channel.source], users == 1 and not (blocking or is_relayed)))
        if blocking:
            break
    return found


def _add_reads(code: Code, step: Step, inlets: list[Inlet], numbers: dict[Source, int]) -> None:
    first = inlets[0]
    gathered = {inlet.cell for inlet in inlets}
    others = [numbers[source] for source in step.sources if numbers[source] not in gathered]
    if len(inlets) == 1 and not others:
        code.actions.append(_read(first.try_read, code.cells, first.cell))
        code.waits.append(first.reader.ready)
        return
    # The program never reaches the positions of the others.
    code.actions.extend([read_all(inlets, code.cells, others)] * len(inlets))
    code.waits.extend([any_ready(inlets)] * len(inlets))
    code.inlets.extend(inlets)


def _name_of(instance: Any, step: Step) -> str:
    return step.method if step.function >= 0 else f"{type(instance).__name__}.{step.method}"


def _callable_of(instance: Any, step: Step, constants: list[Any], communicators: Mapping[int, Communicator]) -> Callable[..., Any]:
    if step.function >= 0:
        constant = constants[step.function]
        if isinstance(constant, CommunicatorCall):
            return partial(constant.collective.through, communicators[constant.number])
        function: Callable[..., Any] = constant
        return function
    name = step.method
    if name == "__ray_call__":
        return lambda function, /, *args, **kwargs: function(instance, *args, **kwargs)
    method = bound_method(instance, name, type(instance))
    if inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
        raise NotImplementedError(f"{type(instance).__name__}.{name} is a generator: in a compiled graph a method returns its value")
    return to_the_end(method) if inspect.iscoroutinefunction(method) else method


# ------------------------------------------------------------------------------------------ actions
def _fuse(assignment: Assignment, steps: dict[int, Step], channels: dict[int, Route]) -> tuple[Operation, Step, Operation] | None:
    """READ, COMPUTE, WRITE of one step with one value if that is the whole program, else None."""
    operations = assignment.operations
    if [operation.kind for operation in operations] != ["READ", "COMPUTE", "WRITE"]:
        return None
    read, compute, write = operations
    step = steps[compute.step]
    if step.keywords or step.num_returns != 1 or step.group >= 0 or channels[write.channel].bare:
        return None
    if any(argument.nested for argument in step.arguments):
        return None
    return read, step, write


def _call_on(step: Step, method: Callable[..., Any], constants: list[Any]) -> Callable[[Any], Any]:
    if len(step.arguments) == 1 and step.arguments[0] == Argument(step.sources[0]):
        return method
    parts = [_part(argument, constants) for argument in step.arguments]
    if len(parts) == 1:
        only = parts[0]
        return lambda value: method(only(value))
    return lambda value: method(*[part(value) for part in parts])


def _part(argument: Argument, constants: list[Any]) -> Callable[[Any], Any]:
    if argument.source is None:
        constant = constants[argument.constant]
        return lambda _value: constant
    return (lambda value: value) if argument.key is None else picker(argument.key, argument.by)


def _relay(
    try_read: Callable[[], Any], method: Callable[[Any], Any], try_write: Callable[[Any], bool], name: str, failure: Fail, keeps: bool
) -> list[Action]:
    """`keeps`: release the value after the answer is sent, since releasing a device tensor takes a driver call. A ring's memory is released
    before, so that the writer finds its slot free when it has the answer.
    """
    kept: list[Any] = []

    def relay() -> int:
        value = try_read()
        if value is NOTHING:
            return 0
        answer = value
        try:
            if value.__class__ is not Failed:
                # POINT graph value read
                answer = method(value)
            if not keeps:
                value = None
            # POINT graph value computed
            if try_write(answer):
                return 2
        except Exception as error:
            answer = Failed(failure(error, name))
        except SystemExit as error:
            error.__dict__["step"] = name  # for the error text
            raise
        kept.append(answer)
        return 1

    def resume() -> int:
        if not _send(try_write, kept[0], name, failure):
            return 0
        kept.clear()
        return 1

    return [relay, resume]


def _read(try_read: Callable[[], Any], cells: list[Any], cell: int) -> Action:
    def read() -> int:
        value = try_read()
        if value is NOTHING:
            return 0
        # POINT graph cell read
        cells[cell] = value
        return 1

    return read


def _write(try_write: Callable[[Any], bool], cells: list[Any], cell: int, name: str, failure: Fail) -> Action:
    def write() -> int:
        # POINT graph cell due
        return 1 if _send(try_write, cells[cell], name, failure) else 0

    return write


def _then_forget(write: Action, cells: list[Any], cell: int) -> Action:
    def write_last() -> int:
        if not write():
            return 0
        cells[cell] = None
        return 1

    return write_last


def _write_bare(try_write: Callable[[Any], bool], cells: list[Any], cell: int, name: str, failure: Fail) -> Action:
    def write() -> int:
        value = cells[cell]
        return 1 if try_write(value if value.__class__ is Failed else None) else 0

    return write


def _send(try_write: Callable[[Any], bool], value: Any, name: str, failure: Fail) -> bool:
    """A value that cannot be serialized is replaced by the reason."""
    try:
        return try_write(value)
    except Exception as error:
        return try_write(Failed(failure(error, name)))


def _compute(
    step: Step,
    method: Callable[..., Any],
    cells: list[Any],
    numbers: dict[Source, int],
    constants: list[Any],
    name: str,
    failure: Fail,
) -> Action:
    needed = [numbers[source] for source in step.sources]
    targets = [numbers[Source(step.index, output)] for output in range(step.num_returns)]
    failed = Failed if step.group < 0 else Failed.fatally
    arguments = [_getter(argument, cells, numbers, constants) for argument in step.arguments]
    keywords = [(word, _getter(argument, cells, numbers, constants)) for word, argument in step.keywords]

    def call() -> Any:
        for cell in needed:
            if cells[cell].__class__ is Failed:
                return cells[cell]
        try:
            if keywords:
                return method(*[get() for get in arguments], **{word: get() for word, get in keywords})
            return method(*[get() for get in arguments])
        except Exception as error:
            return failed(failure(error, name))
        except SystemExit as error:
            error.__dict__["step"] = name
            raise

    if step.num_returns == 1:
        target = targets[0]

        def compute() -> int:
            cells[target] = call()
            return 1

        return compute

    def compute_several() -> int:
        result = call()
        if result.__class__ is not Failed:
            try:
                result = _several(result, len(targets), name)
            except Exception as error:
                result = Failed(failure(error, name))
        for position, cell in enumerate(targets):
            cells[cell] = result if result.__class__ is Failed else result[position]
        return 1

    return compute_several


def _several(result: Any, wanted: int, name: str) -> tuple[Any, ...]:
    values = tuple(result)
    if len(values) != wanted:
        raise ValueError(f"Task returned {len(values)} objects, but num_returns={wanted}: {name}")
    return values


def _getter(argument: Argument, cells: list[Any], numbers: dict[Source, int], constants: list[Any]) -> Callable[[], Any]:
    if argument.nested:
        return filler(constants[argument.constant], [_getter(each, cells, numbers, constants) for each in argument.nested])
    if argument.source is None:
        constant = constants[argument.constant]
        return lambda: constant
    cell = numbers[argument.source]
    if argument.key is None:
        return lambda: cells[cell]
    pick = picker(argument.key, argument.by)
    return lambda: pick(cells[cell])
