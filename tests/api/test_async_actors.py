"""Actors with ``async def`` methods: one event loop for everything that the actor does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import os
import signal
import threading
import time
from typing import Any

import pytest


def test_methods_run_beside_each_other(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Gate:
        def __init__(self) -> None:
            self.open = asyncio.Event()

        async def wait(self) -> str:
            await self.open.wait()
            return "through"

        async def release(self) -> None:
            self.open.set()

    gate = Gate.remote()
    waiting = [gate.wait.remote() for _ in range(50)]
    ray.get(gate.release.remote())
    assert ray.get(waiting) == ["through"] * 50


def test_sync_methods_async_methods_and_the_constructor_share_one_thread_with_a_running_loop(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.at_first = threading.get_ident(), id(asyncio.get_running_loop())
            self.ticks = 0
            self.task = asyncio.get_running_loop().create_task(self.tick())

        async def tick(self) -> None:
            while True:
                self.ticks += 1
                await asyncio.sleep(0.001)

        def sync(self) -> tuple[int, int]:
            return threading.get_ident(), id(asyncio.get_running_loop())

        async def asynchronous(self) -> tuple[int, int]:
            while self.ticks < 3:
                await asyncio.sleep(0.001)
            return threading.get_ident(), id(asyncio.get_running_loop())

        def first(self) -> tuple[int, int]:
            return self.at_first

    actor = Actor.remote()
    assert len(set(ray.get([actor.sync.remote(), actor.asynchronous.remote(), actor.first.remote()]))) == 1


@pytest.mark.differs("Ray begins the calls of an async actor in any order, mray in the order in which they came")
def test_no_more_calls_run_than_max_concurrency_and_they_begin_in_order(ray_session: Any, engine: str) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=3)
    class Actor:
        def __init__(self) -> None:
            self.now = self.most = 0
            self.order: list[int] = []

        async def call(self, number: int) -> None:
            self.order.append(number)
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.002)
            self.now -= 1

        async def seen(self) -> tuple[int, list[int]]:
            return self.most, self.order

    actor = Actor.remote()
    ray.get([actor.call.remote(number) for number in range(30)])
    most, order = ray.get(actor.seen.remote())
    assert most == 3
    assert (order if engine == "mray" else sorted(order)) == list(range(30))


def test_a_coroutine_awaits_refs_and_waits_for_several(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    @ray.remote
    def fail() -> None:
        raise KeyError("lost")

    @ray.remote
    class Actor:
        async def awaits(self) -> list[Any]:
            one = await double.remote(1)
            several = await asyncio.gather(*[double.remote(number) for number in range(20)])
            done, pending = await asyncio.wait([asyncio.ensure_future(double.remote(7))])
            try:
                await fail.remote()
            except KeyError as error:
                name = error.args[0].args if hasattr(error.args[0], "args") else error.args
            return [one, several, [each.result() for each in done], len(pending), name]

        def blocks(self, ref: list[Any]) -> int:
            return ray.get(ref[0])

    actor = Actor.remote()
    assert ray.get(actor.awaits.remote()) == [2, [2 * number for number in range(20)], [14], 0, ("lost",)]
    assert ray.get(actor.blocks.remote([double.remote(21)])) == 42


def test_each_coroutine_has_its_own_runtime_context(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def who(self, ready: int) -> tuple[str | None, str | None, str | None]:
            await asyncio.sleep(0.001 * ready)
            context = ray.get_runtime_context()
            child = await asyncio.create_task(self.child())
            assert child == context.get_task_id()
            return context.get_task_id(), context.get_task_name(), context.get_task_function_name()

        async def child(self) -> str | None:
            return ray.get_runtime_context().get_task_id()

    actor = Actor.remote()
    refs = [actor.who.remote(5 - number) for number in range(5)] + [actor.who.options(name="named").remote(1)]
    told = ray.get(refs)
    assert [task_id for task_id, _name, _function in told] == [ref.task_id().hex() for ref in refs]
    assert [name for _task_id, name, _function in told] == ["Actor.who"] * 5 + ["named"]
    assert all(function.endswith("Actor.who") for _task_id, _name, function in told)


def test_an_error_of_a_coroutine_has_the_traceback_of_the_user(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def fail(self) -> None:
            await asyncio.sleep(0)
            raise ValueError("from the coroutine")

        async def several(self) -> tuple[int, int]:
            return 1, 2

    actor = Actor.remote()
    with pytest.raises(ValueError, match="from the coroutine") as caught:
        ray.get(actor.fail.remote())
    assert "Actor.fail()" in str(caught.value) and "in fail" in str(caught.value)
    assert ray.get(list(actor.several.options(num_returns=2).remote())) == [1, 2]


def test_cancelling_raises_cancelled_error_inside_and_queued_calls_never_run(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Actor:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.begun = asyncio.Event()

        async def hang(self, name: str) -> None:
            self.begun.set()
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.seen.append(name)
                raise

        async def swallow(self) -> int:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.seen.append("swallowed")
            return 5

        async def begins(self) -> None:
            await self.begun.wait()

        async def told(self) -> list[str]:
            return self.seen

    actor = Actor.remote()
    hanging = actor.hang.remote("first")
    ray.get(actor.begins.remote())
    swallowing = actor.swallow.remote()
    queued = actor.hang.remote("queued")
    ray.cancel(queued)
    for ref in (hanging, swallowing):
        ray.cancel(ref)
    for ref in (hanging, swallowing, queued):
        with pytest.raises(ray.exceptions.TaskCancelledError, match=ref.task_id().hex()):
            ray.get(ref, timeout=30)
    seen = ray.get(actor.told.remote())
    assert "first" in seen and "queued" not in seen
    with pytest.raises(ValueError, match="force=True is not supported"):
        ray.cancel(actor.hang.remote("x"), force=True)


def test_2500_calls_are_cancelled_at_once(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def hang(self) -> None:
            await asyncio.sleep(1000)

        async def ping(self) -> str:
            return "alive"

    actor = Actor.remote()
    refs = [actor.hang.remote() for _ in range(2500)]
    for ref in refs:
        ray.cancel(ref)
    for ref in refs:
        with pytest.raises(ray.exceptions.TaskCancelledError):
            ray.get(ref, timeout=60)
    assert ray.get(actor.ping.remote()) == "alive"


def test_is_canceled_is_not_for_async_actors(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def ask(self) -> bool:
            return ray.get_runtime_context().is_canceled()

    with pytest.raises(RuntimeError, match="This method is not supported in an async actor"):
        ray.get(Actor.remote().ask.remote())


def test_exit_actor_lets_what_runs_finish_and_cannot_be_caught(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.leaving = asyncio.Event()

        async def slow(self) -> str:
            await self.leaving.wait()
            await asyncio.sleep(0.05)
            return "finished"

        async def leave(self) -> str:
            self.leaving.set()
            try:
                ray.actor.exit_actor()
            except ray.exceptions.AsyncioActorExit:
                pass
            return "caught"

    actor = Actor.remote()
    slow = actor.slow.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match=r"exit_actor\(\)"):
        ray.get(actor.leave.remote(), timeout=30)
    assert ray.get(slow, timeout=30) == "finished"


def test_sigterm_lets_running_methods_finish(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def slow(self) -> str:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.1)
            return "finished"

    actor = Actor.remote()
    assert ray.get(actor.slow.remote(), timeout=30) == "finished"
    with pytest.raises(ray.exceptions.ActorDiedError, match="SIGTERM"):
        ray.get(actor.slow.remote(), timeout=30)


def test_the_death_of_an_actor_reaches_hundreds_of_calls_in_flight(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def hang(self) -> None:
            await asyncio.sleep(1000)

        async def die(self) -> None:
            os._exit(17)

    actor = Actor.remote()
    refs = [actor.hang.remote() for _ in range(300)]
    actor.die.remote()
    for ref in refs:
        with pytest.raises(ray.exceptions.ActorDiedError, match="exit code 17|The actor died unexpectedly"):
            ray.get(ref, timeout=30)


def test_a_driver_awaits_many_refs(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def echo(self, value: int) -> int:
            return value

    actor = Actor.remote()

    async def gather(count: int) -> list[int]:
        return list(await asyncio.gather(*[actor.echo.remote(number) for number in range(count)]))

    async def first(count: int) -> int:
        done, pending = await asyncio.wait([asyncio.ensure_future(actor.echo.remote(number)) for number in range(count)])
        assert not pending
        return sum(future.result() for future in done)

    before = threading.active_count()
    assert asyncio.run(gather(2000)) == list(range(2000))
    assert asyncio.run(first(100)) == sum(range(100))
    assert threading.active_count() <= before + 2


def test_a_timeout_while_awaiting_loses_nothing(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.open = asyncio.Event()

        async def wait(self) -> int:
            await self.open.wait()
            return 3

        async def release(self) -> None:
            self.open.set()

    async def ask() -> int:
        actor = Actor.remote()
        ref = actor.wait.remote()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, 0.05)
        await actor.release.remote()
        return await ref

    assert asyncio.run(ask()) == 3


def test_a_loop_that_other_threads_run_in_turn_awaits_in_each(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def later(self, value: int) -> int:
            await asyncio.sleep(0.02)
            return value

    actor = Actor.remote()
    loop = asyncio.new_event_loop()

    async def ask(value: int) -> int:
        return await actor.later.remote(value)

    got: list[int] = []
    for number in range(4):
        thread = threading.Thread(target=lambda number=number: got.append(loop.run_until_complete(ask(number))))
        thread.start()
        assert ray.get(actor.later.remote(number)) == number  # this thread waits, and may read, meanwhile
        thread.join()
    loop.close()
    assert got == [0, 1, 2, 3]


def test_several_loops_await_beside_each_other(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def echo(self, value: int) -> int:
            return value

    actor = Actor.remote()

    async def ask(start: int) -> list[int]:
        got = [await actor.echo.remote(start + number) for number in range(50)]
        return got + list(await asyncio.gather(*[actor.echo.remote(start + number) for number in range(50, 100)]))

    results: dict[int, list[int]] = {}

    def run(start: int) -> None:
        results[start] = asyncio.run(ask(start))

    threads = [threading.Thread(target=run, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {start: list(range(start, start + 100)) for start in range(0, 4000, 1000)}


def test_a_ref_is_awaited_by_many_and_more_than_once(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.open = asyncio.Event()

        async def wait(self) -> list[int]:
            await self.open.wait()
            return [1, 2]

        async def release(self) -> None:
            self.open.set()

    actor = Actor.remote()

    async def read(ref: Any) -> list[int]:
        return await ref

    async def ask() -> list[list[int]]:
        ref = actor.wait.remote()
        readers = [asyncio.ensure_future(read(ref)) for _ in range(5)]
        await actor.release.remote()
        return [*await asyncio.gather(*readers), await ref, await ref.as_future(), ref.future().result(30)]

    assert asyncio.run(ask()) == [[1, 2]] * 8


@pytest.mark.only("mray", "local")  # Ray runs graphs and calls of async actors on threads of their own
def test_a_graph_and_ordinary_calls_share_the_loop_and_hold_each_other_up_only_shortly(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.open = asyncio.Event()
            self.loops: set[int] = set()

        async def wait(self) -> str:
            self.loops.add(id(asyncio.get_running_loop()))
            await self.open.wait()
            return "through"

        async def step(self, value: int) -> int:
            self.loops.add(id(asyncio.get_running_loop()))
            await asyncio.sleep(0)
            return value + 1

        def plain(self, value: int) -> int:
            return value * 2

        async def release(self) -> int:
            self.open.set()
            return len(self.loops)

    actor = Actor.remote()
    waiting = actor.wait.remote()
    with ray.dag.InputNode() as inp:
        graph = actor.plain.bind(actor.step.bind(inp)).experimental_compile()
    for number in range(50):
        ref = graph.execute(number)
        assert ray.get(actor.step.remote(number), timeout=60) == number + 1
        assert ray.get(ref, timeout=60) == 2 * (number + 1)
    assert ray.get(actor.release.remote(), timeout=60) == 1
    assert ray.get(waiting, timeout=60) == "through"
    graph.teardown()


@pytest.mark.only("mray", "mray-on-ray", "ray")  # in one process the level of the driver's log is the actor's
def test_get_inside_a_coroutine_works_and_warns_once(ray_session: Any, capfd: Any, eventually: Any) -> None:
    ray = ray_session

    @ray.remote
    def slow(value: int) -> int:
        time.sleep(0.05)
        return value

    @ray.remote
    class Actor:
        async def blocks(self) -> list[int]:
            return [ray.get(slow.remote(1)), ray.get(slow.remote(2))]

    assert ray.get(Actor.remote().blocks.remote(), timeout=60) == [1, 2]
    said = ""

    def heard() -> bool:
        nonlocal said
        said += "".join(capfd.readouterr())
        return "Using blocking ray.get inside async actor." in said

    eventually(heard)
    assert said.count("Using blocking ray.get") == 1


@pytest.mark.only("mray")  # asks from another process; Ray lists tasks through its dashboard, which tests do not start
def test_what_runs_is_listed_as_running(ray_session: Any, eventually: Any) -> None:
    ray = ray_session
    state = importlib.import_module("mray.util.state")

    @ray.remote
    class Actor:
        async def hang_visibly(self) -> None:
            await asyncio.sleep(1000)

    actor = Actor.remote()
    refs = [actor.hang_visibly.remote() for _ in range(3)]
    eventually(lambda: [task.state for task in state.list_tasks(limit=10_000) if task.name == "Actor.hang_visibly"] == ["RUNNING"] * 3)
    del refs


def test_a_call_inherits_no_context_variable_from_the_one_that_it_waited_for(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=1)
    class Actor:
        def __init__(self) -> None:
            self.variable = contextvars.ContextVar("variable", default="unset")

        async def set(self, value: str) -> str:
            before = self.variable.get()
            self.variable.set(value)
            await asyncio.sleep(0.01)
            return before

    actor = Actor.remote()
    assert ray.get([actor.set.remote(str(number)) for number in range(5)]) == ["unset"] * 5


def test_a_loop_that_is_closed_while_a_value_is_awaited_keeps_it_from_nobody(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.gate = asyncio.Event()

        async def open(self) -> None:
            self.gate.set()

        async def pass_gate(self) -> int:
            await self.gate.wait()
            return 7

    actor = Actor.remote()
    ref = actor.pass_gate.remote()

    async def begin() -> None:
        ref.as_future()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    future = ref.future()
    loop.close()
    actor.open.remote()
    assert ray.get(ref) == 7
    assert future.result(30) == 7


def test_a_method_that_cancels_every_task_of_its_loop_leaves_no_call_unanswered(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Actor:
        async def cancel_all(self) -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        async def echo(self, value: int) -> int:
            return value

    actor = Actor.remote()
    assert ray.get(actor.echo.remote(0)) == 0
    # Some of them have come and not taken their first step.
    refs = [actor.cancel_all.remote(), *[actor.echo.remote(number) for number in range(20)]]
    for ref in refs:
        with contextlib.suppress(ray.exceptions.TaskCancelledError):
            ray.get(ref, timeout=30)
    assert ray.get(actor.echo.remote(1), timeout=30) == 1


# ------------------------------------------------------------------------------------------ constructors
def test_an_async_constructor_is_awaited_before_the_first_call(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    def double(number: int) -> int:
        return 2 * number

    class A:
        async def __init__(self, number: int, *, more: int = 0) -> None:
            await asyncio.sleep(0.05)
            self.loop = asyncio.get_running_loop()
            self.number = await double.remote(number) + more

        def value(self) -> int:
            return self.number  # type: ignore[no-any-return]

    class B(A):
        async def same_loop(self) -> bool:
            return self.loop is asyncio.get_running_loop()

    for cls in (A, B):  # the first has no other coroutine
        actor = ray.remote(num_cpus=0)(cls).remote(3, more=1)
        assert ray.get(actor.value.remote()) == 7
    assert ray.get(actor.same_loop.remote())


def test_an_async_constructor_that_raises_is_told_as_others_are(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        async def __init__(self) -> None:
            await asyncio.sleep(0)
            raise ValueError("not today")

        async def value(self) -> None:
            pass

    with pytest.raises(ray.exceptions.ActorDiedError, match=r"(?s)error raised in its creation task.*A\.__init__.*not today"):
        ray.get(A.remote().value.remote())


def test_an_attribute_of_the_instance_does_not_hide_a_coroutine(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        def __init__(self) -> None:
            self.value = 1  # type: ignore[assignment]

        async def value(self) -> tuple[str, Any]:
            return "method", self.value

    assert ray.get(A.remote().value.remote()) == ("method", 1)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_the_methods_of_an_actor_are_those_of_its_class_whatever_class_its_object_takes_on(ray_session: Any, is_async: bool) -> None:
    ray = ray_session

    class Open:
        def state(self) -> str:
            return "open"

    class Door:
        def close(self) -> str:
            self.__class__ = Open  # type: ignore[assignment]
            return type(self).__name__

        def state(self) -> str:
            return "of the door"

        def knock(self) -> str:
            return "knocked"

    class AsyncDoor(Door):
        async def wait(self) -> None:
            pass

    door = ray.remote(num_cpus=0)(AsyncDoor if is_async else Door).remote()
    assert ray.get(door.close.remote()) == "Open"
    assert ray.get([door.state.remote(), door.knock.remote()]) == ["of the door", "knocked"]


def test_a_call_of_a_method_that_its_class_has_lost_ends_no_actor(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        async def lost(self) -> None:
            pass

        async def lose(self) -> None:
            del type(self).lost

    actor = A.remote()
    ray.get(actor.lose.remote())
    with contextlib.suppress(AttributeError):  # Ray knows it still
        ray.get(actor.lost.remote())
    assert ray.get(actor.__ray_ready__.remote())


def test_the_loop_runs_for_other_threads_whatever_its_own_does(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.over = threading.Event()
            self.answers: set[bool] = set()
            self.asking = threading.Thread(target=self.ask, daemon=True)
            self.asking.start()

        def ask(self) -> None:
            while not self.over.is_set():
                self.answers.add(self.loop.is_running())

        async def value(self) -> bool:
            return self.loop.is_running()

        async def again(self) -> str:
            waiting = asyncio.sleep(0)
            try:
                self.loop.run_until_complete(waiting)
            except RuntimeError as error:
                return str(error).lower().strip(".")
            finally:
                waiting.close()
            return "ran"

        async def stop(self) -> set[bool]:
            self.over.set()
            self.asking.join()
            return self.answers

    actor = A.remote()
    assert all(ray.get(actor.value.remote()) for _ in range(50))
    assert ray.get(actor.again.remote()) == "this event loop is already running"
    assert ray.get(actor.stop.remote()) == {True}


@pytest.mark.only("mray", "local")
def test_plain_methods_of_mrays_own_run_without_a_task_and_in_their_turn(ray_session):
    ray = ray_session

    class Actor:
        def __init__(self):
            self.seen = []
            self.variable = contextvars.ContextVar("variable", default=0)

        async def later(self, value):
            self.seen.append(value)
            await asyncio.sleep(0)
            return value

        def at_once(self, value):
            before = self.variable.get()
            self.variable.set(value)
            self.seen.append(value)
            if value == "fail":
                raise ValueError(f"cannot take {value}")
            task = asyncio.current_task()
            return value, before, task is None, ray.get_runtime_context().get_task_id()

        at_once.__mray_at_once__ = True

        def tell(self):
            return self.seen

    actor = ray.remote(num_cpus=0)(Actor).remote()
    refs = [(actor.later if number % 3 else actor.at_once).remote(number) for number in range(300)]
    found = ray.get(refs)
    assert [value if number % 3 else value[0] for number, value in enumerate(found)] == list(range(300))
    plain = found[::3]
    assert {before for _value, before, *_rest in plain} == {0}
    assert [task for *_rest, task in plain] == [ref.task_id().hex() for ref in refs[::3]]
    assert ray.get(actor.tell.remote()) == list(range(300))
    with pytest.raises(ValueError, match="cannot take fail"):
        ray.get(actor.at_once.remote("fail"))
    assert ray.get(actor.at_once.options(name="named").remote("again"))[0] == "again"
    assert ray.get(actor.at_once.remote("alone"))[2]
