"""Programs of actors, run without processes: channels are in-process, the clock is nobody's."""

from __future__ import annotations

import dataclasses
import pickle
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mray._channel.base import NOTHING, Failed
from mray._channel.select import CUDA_IPC, SHM
from mray._graph.actor.coroutines import event_loop
from mray._graph.actor.loop import GraphService, Program
from mray._graph.channel_ends import ChannelEnds
from mray._graph.compiler.compile import plan_graph
from mray._graph.holes import Hole
from mray._graph.plan import DIRECT, DRIVER, INPUT, PART, SPLIT, Argument, Assignment, Graph, Source, Step
from mray._ipc.spin import AdaptiveSpinner
from tests.inproc import InprocReader, InprocWriter
from tests.unit.graphs import make_graph


def _named(name: str) -> Any:
    def method(self: Actor, *args: Any) -> Any:
        self.calls.append((name, *args))
        if "bad" in args:
            raise ValueError(name)
        return (name, *args)

    return method


class Actor:
    """Counts its calls."""

    vars().update({f"m{number}": _named(f"m{number}") for number in range(12)})

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def weigh(self, first: Any, second: Any, factor: int = 1) -> Any:
        return first * factor + second

    def pair(self, value: Any) -> Any:
        return value, -value

    async def later(self, value: Any) -> Any:
        return value

    def several(self, value: Any) -> Any:
        yield value

    def kind(self, value: Any) -> Any:
        return type(value).__name__


class World:
    """All actors of a graph in this process, and the driver's ends."""

    def __init__(self, graph: Graph, constants: Sequence[Any] = (), capacity: int = 4, transport: str = SHM) -> None:
        plan = plan_graph(graph, capacity)
        self.actors = {actor: Actor() for actor in graph.actors}
        ends = {endpoint: ChannelEnds() for endpoint in (DRIVER, *graph.actors)}
        for channel in plan.channels:
            writer = InprocWriter(len(channel.readers), capacity)
            ends[channel.writer].writers[channel.index] = writer
            for number, reader in enumerate(channel.readers):
                ends[reader].readers[channel.index] = writer.reader(number)
        self.programs = []
        for actor, instance in self.actors.items():
            used = (channel for channel in plan.channels if actor == channel.writer or actor in channel.readers)
            channels = tuple(dataclasses.replace(channel, transport=transport) for channel in used)
            steps = tuple(step for step in graph.steps if step.actor == actor)
            assignment = Assignment("g", actor, "", "", "", steps, plan.schedule[actor], channels, {}, (0, b""))
            self.programs.append(
                Program(assignment, instance, ends[actor], list(constants), lambda error, name: pickle.dumps((name, error)))
            )
        (channel,) = plan.channels_of(INPUT)
        self.input = ends[DRIVER].writers[channel.index]
        self.leaves: list[Any] = [ends[DRIVER].readers[self._index(plan, Argument(leaf))] for leaf in graph.leaves]
        self.outputs: list[Any] = [ends[DRIVER].readers[self._index(plan, output)] for output in graph.outputs]

    @staticmethod
    def _index(plan: Any, output: Argument) -> int:
        assert output.source is not None
        index: int = plan.channel_to(output.source, DRIVER).index
        return index

    def run(self) -> None:
        """Until nobody can move."""
        while True in [program.run(lambda: False) for program in self.programs]:
            pass

    def execute(self, value: Any) -> list[Any]:
        assert self.input.try_write(value)
        self.run()
        return [output.try_read() for output in self.outputs]


def test_one_step_reads_computes_and_writes() -> None:
    world = World(make_graph(("a", (-1,))))
    assert world.execute(1) == [("m0", 1)]
    assert world.execute(2) == [("m0", 2)]
    assert world.programs[0].executions == 2


@pytest.mark.parametrize(("transport", "order"), [(SHM, ["let go", "sent"]), (CUDA_IPC, ["sent", "let go"])])
def test_memory_of_a_ring_is_let_go_of_before_the_answer_and_a_tensor_of_a_device_after_it(
    monkeypatch: pytest.MonkeyPatch, transport: str, order: list[str]
) -> None:
    found: list[str] = []
    send = InprocWriter.try_write

    def try_write(writer: InprocWriter, value: Any) -> bool:
        if value == "Counter":
            found.append("sent")
        return send(writer, value)

    monkeypatch.setattr(InprocWriter, "try_write", try_write)
    graph = make_graph(("a", (-1,)))
    graph = dataclasses.replace(graph, steps=(dataclasses.replace(graph.steps[0], method="kind"),))
    world = World(graph, transport=transport)
    value = Counter()
    weakref.finalize(value, found.append, "let go")
    world.input.try_write(value)
    del value
    world.run()
    assert found == order


def test_a_graph_that_another_thread_leaves_is_left_before_the_next_program_runs() -> None:
    world = World(make_graph(("a", (-1,))))
    (program,) = world.programs
    host: Any = SimpleNamespace(spinner=AdaptiveSpinner(0.0))
    service = GraphService(host)
    service._set_programs((program,))
    service.leave("g")
    assert not program.closed and service.is_active and service.ready()
    service.run(lambda: True)
    assert program.closed and not service.programs and not service.is_active
    with pytest.raises(ValueError, match="an actor does not handle the request 'dance' about a graph"):
        service.handle("dance", b"", None)


def test_values_stay_inside_an_actor_and_cross_between_actors() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,)), ("b", (1, 0)), ("a", (2, -1))))
    m0 = ("m0", 5)
    m2 = ("m2", ("m1", m0), m0)
    assert world.execute(5) == [("m3", m2, 5)]


def test_a_value_is_the_same_object_inside_an_actor() -> None:
    world = World(make_graph(("a", (-1,)), ("a", (0,)), ("a", (0, 1))))
    world.execute(1)
    (_name, first), (_, passed), (_, again, _second) = world.actors["a"].calls
    assert first == 1
    assert passed is again


def test_a_failure_skips_what_depends_on_it_and_nothing_else() -> None:
    graph = make_graph(("a", (-1,)), ("a", (0,)), ("b", (1,)), ("b", (-1,)), outputs=(2, 3))
    world = World(graph)
    failed, fine = world.execute("bad")
    assert type(failed) is Failed
    name, error = pickle.loads(failed.payload)
    assert (name, str(error)) == ("Actor.m0", "m0")
    assert [call[0] for call in world.actors["a"].calls] == ["m0"]
    assert type(fine) is Failed  # m3 was called with the same value
    assert world.execute("good") == [("m2", ("m1", ("m0", "good"))), ("m3", "good")]


def test_the_first_failure_among_the_arguments_is_passed_on() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (-1,)), ("c", (1, 0))))
    (failed,) = world.execute("bad")
    assert pickle.loads(failed.payload)[0] == "Actor.m1"


def test_a_program_keeps_its_place_when_it_blocks() -> None:
    world = World(make_graph(("a", (-1,)), ("b", (0,)), ("a", (1,))))
    a, b = world.programs
    world.input.try_write(1)
    assert a.run(lambda: False)
    assert not a.run(lambda: False)
    assert not a.ready()
    assert b.run(lambda: False)
    assert a.ready()
    assert a.run(lambda: False)
    assert world.outputs[0].try_read() == ("m2", ("m1", ("m0", 1)))


@pytest.mark.parametrize("graph", [make_graph(("a", (-1,))), make_graph(("a", (-1,)), ("a", (0,)))], ids=["fused", "general"])
def test_a_full_output_blocks_and_loses_nothing(graph: Graph) -> None:
    world = World(graph, capacity=2)
    for number in range(3):
        assert world.input.try_write(number)
        world.run()
    (program,) = world.programs
    assert program.executions == 2
    assert not program.ready()
    output: InprocReader = world.outputs[0]
    assert output.try_read() is not NOTHING
    assert program.ready()
    world.run()
    assert [output.try_read() for _ in range(3)][2] is NOTHING
    assert program.executions == 3


def test_a_program_stops_between_executions_when_calls_are_pending() -> None:
    world = World(make_graph(("a", (-1,))))
    world.input.try_write(1)
    world.input.try_write(2)
    assert world.programs[0].run(lambda: True)
    assert world.programs[0].executions == 1
    assert world.programs[0].ready()


def test_constants_keywords_and_parts_of_the_input() -> None:
    step = Step(0, "a", "weigh", 0, (Argument(INPUT, 1, by=PART), Argument(None, constant=0)), (("factor", Argument(INPUT, "f", by=PART)),))
    world = World(Graph((step,), (Argument(Source(0)),), False, 2, ("f",), SPLIT), constants=[7])
    assert world.execute(((0, 5), {"f": 10})) == [57]


def test_several_returns_are_values_of_their_own() -> None:
    steps = (Step(0, "a", "pair", 0, (Argument(INPUT),), num_returns=2), Step(1, "b", "m1", 0, (Argument(Source(0, 1)),)))
    world = World(Graph(steps, (Argument(Source(0)), Argument(Source(1))), True, 1, (), DIRECT))
    assert world.execute(3) == [3, ("m1", -3)]


def test_methods_that_cannot_run_are_refused_when_the_program_is_made() -> None:
    def graph(method: str) -> Graph:
        return Graph((Step(0, "a", method, 0, (Argument(INPUT),)),), (Argument(Source(0)),), False, 1, (), DIRECT)

    with pytest.raises(NotImplementedError, match=r"Actor\.several is a generator"):
        World(graph("several"))
    with pytest.raises(AttributeError, match="nowhere"):
        World(graph("nowhere"))


def test_coroutines_run_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mray._graph.actor.coroutines._of_thread", threading.local())
    monkeypatch.setattr("mray._ipc.event_loop.main_loop", lambda: None)  # another test's, which has ended
    world = World(Graph((Step(0, "a", "later", 0, (Argument(INPUT),)),), (Argument(Source(0)),), False, 1, (), DIRECT))
    assert world.execute(1) == [1]
    event_loop().close()


def test_functions_and_arguments_with_holes() -> None:
    nested = Argument(None, constant=1, nested=(Argument(INPUT), Argument(Source(0))))
    steps = (
        Step(0, "a", "double", 0, (Argument(INPUT),), function=0),
        Step(1, "a", "collect", 1, (nested,), function=2),
    )
    template = [Hole(0), {"deep": (Hole(1), Hole(0))}, "constant"]
    graph = Graph(steps, (Argument(Source(1)),), False, 1, (), DIRECT)
    world = World(graph, constants=[lambda value: 2 * value, template, lambda value: value])
    assert world.execute(3) == [[3, {"deep": (6, 3)}, "constant"]]
    assert world.execute(4) == [[4, {"deep": (8, 4)}, "constant"]]


def test_a_leaf_sends_only_that_it_is_there_or_its_error() -> None:
    steps = (Step(0, "a", "m0", 0, (Argument(INPUT),)), Step(1, "b", "m1", 0, (Argument(INPUT),)))
    graph = Graph(steps, (Argument(Source(0)),), False, 1, (), DIRECT, leaves=(Source(1),))
    world = World(graph)
    assert world.execute(1) == [("m0", 1)]
    assert world.leaves[0].try_read() is None
    world.execute("bad")
    assert type(world.leaves[0].try_read()) is Failed


def test_a_step_does_not_wait_for_values_beside_a_failure() -> None:
    steps = (
        Step(0, "a", "m0", 0, (Argument(INPUT),)),
        Step(1, "b", "m1", 0, (Argument(INPUT),)),
        Step(2, "c", "m2", 0, (Argument(Source(0)), Argument(Source(1)))),
    )
    world = World(Graph(steps, (Argument(Source(2)),), False, 1, (), DIRECT))
    slow, failing, last = world.programs
    assert world.input.try_write("bad")
    failing.run(lambda: False)
    last.run(lambda: False)
    assert type(world.outputs[0].try_read()) is Failed
    # The slow one's value of that execution comes later, and is nobody's.
    assert world.input.try_write(1)
    failing.run(lambda: False)
    last.run(lambda: False)
    assert world.outputs[0].try_read() is NOTHING
    slow.run(lambda: False)
    assert last.ready()
    last.run(lambda: False)
    assert world.outputs[0].try_read() == ("m2", ("m0", 1), ("m1", 1))
    assert world.execute(2) == [("m2", ("m0", 2), ("m1", 2))]


def test_what_is_owed_is_thrown_away_while_the_program_is_blocked() -> None:
    steps = (
        Step(0, "a", "m0", 0, (Argument(INPUT),)),
        Step(1, "b", "m1", 0, (Argument(INPUT),)),
        Step(2, "c", "m2", 0, (Argument(Source(0)), Argument(Source(1)))),
    )
    world = World(Graph(steps, (Argument(Source(2)),), False, 1, (), DIRECT), capacity=2)
    slow, failing, last = world.programs
    for _ in range(6):
        assert world.input.try_write("bad")
        failing.run(lambda: False)
        last.run(lambda: False)
        assert type(world.outputs[0].try_read()) is Failed
        slow.run(lambda: False)
        assert last.ready()
        last.run(lambda: False)
    assert not last.ready()


def test_exits_are_not_errors_of_the_method() -> None:
    step = Step(0, "a", "__ray_call__", 0, (Argument(None, constant=0), Argument(INPUT)))

    def leave(_actor: Any, value: Any) -> None:
        raise SystemExit(value)

    world = World(Graph((step,), (Argument(Source(0)),), False, 1, (), DIRECT), constants=[leave])
    world.input.try_write(3)
    with pytest.raises(SystemExit):
        world.run()
