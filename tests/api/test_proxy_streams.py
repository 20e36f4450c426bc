"""Remote variables: steps are sent without waiting, and nobody waits for what waits for him."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from mray.proxy import IRemoteInterpreter, RemoteInterpreterFactory, Var


@pytest.fixture
def rif(ray_session: ModuleType) -> RemoteInterpreterFactory:
    return RemoteInterpreterFactory(ray_session)


@pytest.fixture
def env(rif: RemoteInterpreterFactory, request: pytest.FixtureRequest) -> Iterator[IRemoteInterpreter]:
    yield rif.create(num_cpus=0)
    request.node.funcargs.pop("env")


class Box:
    """Hides a variable from the place where arguments are unwrapped: the function gets it as a variable."""

    def __init__(self, var: Any) -> None:
        self.var = var


class Gate:
    """An object whose `wait` returns once `open` was called."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def wait(self, value: Any = None) -> Any:
        self.event.wait()
        return value

    def open(self) -> None:
        self.event.set()


# ---------------------------------------------------------------------------------------- pipelining
def test_a_chain_is_sent_without_waiting_for_any_of_it(env: IRemoteInterpreter) -> None:
    gate = env.put(Gate)()

    class Thing:
        def __init__(self, a: Any) -> None:
            self.a = a

        def f(self, x: int) -> int:
            return x

    x = env.put([[gate.wait(Thing)]])
    result = x[0][0](1).f(3) * 2
    assert isinstance(result, Var)
    opener = threading.Thread(target=lambda: gate.open().fetch())
    opener.start()
    assert result.fetch() == 6
    opener.join()


def test_steps_begin_without_anybody_asking_for_results(env: IRemoteInterpreter, eventually: Any, tmp_path: Any) -> None:
    env.import_("pathlib").Path(str(tmp_path / "mark")).touch()
    eventually((tmp_path / "mark").exists)


def test_the_steps_of_a_thread_are_done_in_order_whatever_they_carry(env: IRemoteInterpreter) -> None:
    log = env.put([])
    for number in range(50):
        log.append(number)
        log.append([number])
        log[-1] = (number, {"x": number})
    assert log.fetch() == [item for number in range(50) for item in (number, (number, {"x": number}))]


def test_what_is_sent_is_what_it_was_when_it_was_given(env: IRemoteInterpreter) -> None:
    values = [1, 2]
    there = env.put(values)
    values.append(3)
    assert there.fetch() == [1, 2]


def test_what_is_passed_on_is_what_it_was_at_that_step(rif: RemoteInterpreterFactory, env: IRemoteInterpreter) -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 0
            self.written = threading.Event()

        def __getstate__(self) -> int:
            self.written.wait(0.3)  # for the next step, which must not come in between
            return self.value

        def __setstate__(self, value: int) -> None:
            self.value = value
            self.written = threading.Event()
            self.written.set()

        def write(self) -> None:
            self.value += 1
            self.written.set()

    there = env.put(Counter)
    counter = there()
    ref = counter.fetch_ref()
    counter.write()
    assert rif.ray.get(ref).value == 0
    counter = there()
    value = rif.create(num_cpus=0).run(lambda counter: counter.value, (counter,))
    counter.write()
    assert value.fetch() == 0


def test_a_batch_goes_in_one_message(env: IRemoteInterpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    x = env.put(1)
    x.fetch()
    sent: list[int] = []
    connection_type = type(env.connection)
    ask, send = connection_type.ask, connection_type.send
    monkeypatch.setattr(connection_type, "ask", lambda self, *rest: sent.append(len(pickle.loads(rest[2]))) or ask(self, *rest))
    monkeypatch.setattr(connection_type, "send", lambda self, *rest: sent.append(len(pickle.loads(rest[2]))) or send(self, *rest))
    with env.batch():
        for _ in range(500):
            x = x + 1
        time.sleep(0.02)  # longer than steps wait for company by themselves
        assert sent == []
    assert sent == [500]
    monkeypatch.undo()
    assert x.fetch() == 501


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("way", ["send", "ask", "alone"])
def test_an_interrupt_while_steps_are_sent_neither_loses_nor_repeats_any(
    env: IRemoteInterpreter, monkeypatch: pytest.MonkeyPatch, way: str, sent: bool
) -> None:
    log = env.put([])
    append = log.append
    log.fetch()
    connection = type(env.connection)
    method = "ask" if way == "ask" else "send"
    whole = getattr(connection, method)
    left = [None]

    def interrupted(self: Any, *rest: Any) -> Any:
        if left and left.pop() is None:
            if sent:
                whole(self, *rest)
            raise KeyboardInterrupt
        return whole(self, *rest)

    with env.batch():  # the sender keeps out of it
        append(1)
        monkeypatch.setattr(connection, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.stream().send() if way == "send" else len(log) if way == "ask" else append([2])
        monkeypatch.undo()
        append(3)
    append(4)
    found = [item for item in log.fetch() if item != [2]]  # of the step itself that was interrupted nobody knows
    assert found == [1, 3, 4]


def test_threads_do_not_wait_for_each_other(env: IRemoteInterpreter) -> None:
    gate = env.put(Gate)()
    gate.event.is_set().fetch()
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(gate.wait("through").fetch()))
    waiting.start()
    assert (env.put(1) + 1).fetch() == 2
    assert results == []
    gate.open().fetch()
    waiting.join()
    assert results == ["through"]


def test_a_variable_of_one_thread_serves_another_before_it_is_there(env: IRemoteInterpreter) -> None:
    gate = env.put(Gate)()
    gate.event.is_set().fetch()
    late = gate.wait(5)
    results: list[Any] = []
    other = threading.Thread(target=lambda: results.append((late + 1).fetch()))
    other.start()
    threading.Thread(target=lambda: gate.open().fetch()).start()
    other.join()
    assert results == [6]


def test_what_fails_unseen_is_told_to_the_thread_that_asked_for_it(env: IRemoteInterpreter) -> None:
    items = env.put([0])
    told: list[BaseException] = []
    failed, looked = threading.Event(), threading.Event()

    def write() -> None:
        items[7] = 1
        env.stream().send()
        failed.set()
        looked.wait()
        try:
            items.fetch()
        except IndexError as error:
            told.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    failed.wait()
    try:
        assert [items.fetch() for _ in range(20)] == [[0]] * 20
    finally:
        looked.set()
        writing.join()
    assert len(told) == 1


def test_many_threads_use_one_variable(env: IRemoteInterpreter) -> None:
    counter = env.put([0])
    threads = [threading.Thread(target=lambda: [counter.append(1).fetch() for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counter) == 81


# ----------------------------------------------------------------------------------------- deadlocks
def test_a_function_uses_variables_of_its_own_interpreter(env: IRemoteInterpreter) -> None:
    number = env.put(20)

    @env.function
    def f(box: Any, direct: int) -> int:
        assert type(direct) is int
        return (box.var + direct + 1).fetch()  # type: ignore[no-any-return]

    assert f(Box(number), number).fetch() == 41
    env["number"] = 1

    @env.function
    def g(box: Any) -> Any:
        env = box.var
        env["number"] += 1
        return env["number"].fetch(), [item.fetch() for item in env.put([1, 2])]

    assert g(Box(env)).fetch() == (2, [1, 2])


def test_interpreters_fetch_from_each_other_at_the_same_time(rif: RemoteInterpreterFactory) -> None:
    a, b = rif.create(num_cpus=0), rif.create(num_cpus=0)

    def meet(mine: Any, theirs: Any, value: Any) -> Any:
        """Both are inside of this at once, before either fetches."""
        mine.var.open().fetch()
        theirs.var.wait().fetch()
        return value.var.fetch()

    gate_a, gate_b = a.put(Gate)(), b.put(Gate)()
    of_a, of_b = a.put("of a"), b.put("of b")
    at_a = a.run(meet, (Box(gate_a), Box(gate_b), Box(of_b)))
    at_b = b.run(meet, (Box(gate_b), Box(gate_a), Box(of_a)))
    assert (at_a.fetch(), at_b.fetch()) == ("of b", "of a")


def test_results_go_back_and_forth_between_interpreters(rif: RemoteInterpreterFactory) -> None:
    a, b = rif.create(num_cpus=0), rif.create(num_cpus=0)
    x, y = a.put(1), b.put(1)
    for _ in range(10):
        x, y = x + y, y + x
    assert x.fetch() == y.fetch() == 2**10


def test_interpreters_call_each_other_many_levels_deep(rif: RemoteInterpreterFactory) -> None:
    def descend(depth: int, here: Any, there: Any) -> int:
        if depth == 0:
            return 0
        return 1 + there.var(depth - 1, there, here).fetch()  # type: ignore[no-any-return]

    a, b = rif.create(num_cpus=0), rif.create(num_cpus=0)
    at_a, at_b = a.put(descend), b.put(descend)
    assert at_a(30, Box(at_a), Box(at_b)).fetch() == 30


def test_drivers_and_tasks_share_an_interpreter(rif: RemoteInterpreterFactory, env: IRemoteInterpreter) -> None:
    ray = rif.ray
    items = env.put([])

    @ray.remote(num_cpus=0)
    def work(items: Any, number: int) -> str:
        items.append(number).fetch()
        return repr(items + [number])[:4]  # noqa: RUF005  (the operator is meant)

    assert set(ray.get([work.remote(items, number) for number in range(6)])) == {"Var@"}
    assert sorted(items.fetch()) == list(range(6))


# ---------------------------------------------------------------------------------------- DAG nodes
@pytest.mark.filterwarnings("ignore:DAGNode")  # Ray deprecates `execute`
def test_methods_of_variables_are_nodes_of_graphs(ray_session: ModuleType, rif: RemoteInterpreterFactory) -> None:
    ray = ray_session

    class Model:
        def __init__(self, scale: int) -> None:
            self.scale = scale

        def forward(self, x: int, extra: int = 0) -> int:
            return x * self.scale + extra

    first, second = rif.create(num_cpus=0), rif.create(num_cpus=0)
    one, two = first.put(Model)(2), second.put(Model)(10)
    five = second.put(5)
    with ray.dag.InputNode() as inp:
        dag = two.forward.bind(one.forward.bind(inp), extra=five)
    assert ray.get(dag.execute(3)) == 65
    compiled = dag.experimental_compile()
    try:
        assert [ray.get(compiled.execute(number)) for number in range(3)] == [5, 25, 45]
        one.scale = 3
        one.scale.fetch()
        assert ray.get(compiled.execute(1)) == 35
    finally:
        compiled.teardown()


@pytest.mark.filterwarnings("ignore:DAGNode")  # Ray deprecates `execute`
def test_a_variable_is_an_argument_of_a_node_of_any_actor(ray_session: ModuleType, env: IRemoteInterpreter) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Reader:
        def read(self, var: Any, x: int) -> int:
            return (var + x).fetch()  # type: ignore[no-any-return]

    reader = Reader.remote()
    with ray.dag.InputNode() as inp:
        dag = reader.read.bind(env.put(5), inp)
    assert ray.get(dag.execute(2)) == 7
