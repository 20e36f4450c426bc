"""Concurrency groups: a group whose calls all wait holds up no other."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from typing import Any

import pytest


def test_a_blocked_group_blocks_no_other(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 2, "compute": 1})
    class Actor:
        def __init__(self) -> None:
            self.open = threading.Event()
            self.local = threading.local()

        @ray.method(concurrency_group="io")
        def wait(self) -> int:
            self.open.wait(60)
            return threading.get_ident()

        @ray.method(concurrency_group="compute")
        def compute(self, number: int) -> tuple[int, int, bool]:
            order = getattr(self.local, "order", 0)
            self.local.order = order + 1
            return number, order, threading.current_thread() is threading.main_thread()

        def plain(self) -> int:
            return threading.get_ident()

        def release(self) -> None:
            self.open.set()

    actor = Actor.remote()
    waiting = [actor.wait.remote() for _ in range(3)]
    # In its order, on its one thread, which is not the main one.
    assert ray.get([actor.compute.remote(number) for number in range(20)], timeout=60) == [(n, n, False) for n in range(20)]
    assert len(set(ray.get([actor.plain.remote() for _ in range(5)], timeout=60))) == 1
    in_another = actor.plain.options(concurrency_group="compute").remote()
    in_the_blocked = actor.plain.options(concurrency_group="io").remote()
    assert ray.get(in_another, timeout=60) != ray.get(actor.plain.remote(), timeout=60)
    assert ray.wait([in_the_blocked], timeout=0.05)[0] == []
    ray.get(actor.release.remote(), timeout=60)
    threads = ray.get(waiting, timeout=60)
    assert len(set(threads)) == 2 and ray.get(in_the_blocked, timeout=60) in threads


def test_a_group_of_one_thread_has_the_same_thread_for_all_its_calls(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 1})
    class Store:
        def __init__(self) -> None:
            self.local = threading.local()

        @ray.method(concurrency_group="io")
        def open(self) -> None:
            self.local.value = 7
            self.rows = sqlite3.connect(":memory:")  # it serves the thread that made it alone

        @ray.method(concurrency_group="io")
        def value(self) -> int | None:
            return getattr(self.local, "value", None)

        @ray.method(concurrency_group="io")
        def one(self) -> int:
            number: int = self.rows.execute("select 1").fetchone()[0]
            return number

        def plain(self) -> tuple[int, bool]:
            return threading.get_ident(), threading.current_thread() is threading.main_thread()

    store = Store.remote()
    ray.get(store.open.remote(), timeout=60)
    assert {ray.get(store.value.remote(), timeout=60) for _ in range(1000)} == {7}
    assert {ray.get(store.one.remote(), timeout=60) for _ in range(1000)} == {1}
    # So has the default group beside it.
    ((_thread, is_main),) = {ray.get(store.plain.remote(), timeout=60) for _ in range(1000)}
    assert not is_main


def test_async_methods_of_a_group_share_its_own_loop(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 2, "other": 2})
    class Actor:
        @ray.method(concurrency_group="io")
        async def one(self) -> tuple[int, int]:
            return threading.get_ident(), id(asyncio.get_running_loop())

        @ray.method(concurrency_group="io")
        async def two(self) -> tuple[int, int]:
            await asyncio.sleep(0)
            return threading.get_ident(), id(asyncio.get_running_loop())

        @ray.method(concurrency_group="other")
        async def other(self) -> tuple[int, int]:
            return threading.get_ident(), id(asyncio.get_running_loop())

        @ray.method(concurrency_group="other")
        async def block(self) -> str | None:
            time.sleep(0.2)
            return ray.get_runtime_context().get_task_id()

        async def plain(self) -> tuple[int, int]:
            return threading.get_ident(), id(asyncio.get_running_loop())

    actor = Actor.remote()
    one, two, other, plain = ray.get([actor.one.remote(), actor.two.remote(), actor.other.remote(), actor.plain.remote()], timeout=60)
    assert one == two
    assert len({one, other, plain}) == 3
    blocked = actor.block.remote()
    assert ray.get(actor.one.remote(), timeout=60) == one
    assert ray.get(blocked, timeout=60) == blocked.task_id().hex()


def test_a_coroutine_of_a_group_awaits_refs_and_is_cancelled(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    def double(value: int) -> int:
        return 2 * value

    @ray.remote(concurrency_groups={"io": 4})
    class Actor:
        def __init__(self) -> None:
            self.begun = threading.Event()

        @ray.method(concurrency_group="io")
        async def awaits(self) -> list[int]:
            return list(await asyncio.gather(*[double.remote(number) for number in range(10)]))

        @ray.method(concurrency_group="io")
        async def hang(self) -> None:
            self.begun.set()
            await asyncio.sleep(1000)

        async def begins(self) -> None:
            while not self.begun.is_set():
                await asyncio.sleep(0.001)

    actor = Actor.remote()
    assert ray.get(actor.awaits.remote(), timeout=60) == [2 * number for number in range(10)]
    hanging = actor.hang.remote()
    ray.get(actor.begins.remote(), timeout=60)
    ray.cancel(hanging)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(hanging, timeout=60)


def test_groups_are_declared_by_the_class(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 2})
    class Undeclared:
        @ray.method(concurrency_group="elsewhere")
        def method(self) -> None: ...

    with pytest.raises(AssertionError):
        Undeclared.remote()

    @ray.remote(concurrency_groups={"io": 2})
    class Actor:
        def method(self) -> int:
            return 1

    with pytest.raises(ValueError, match=r"Setting 'concurrency_groups' is not supported in '\.options\(\)'"):
        Actor.options(concurrency_groups={"x": 1})


@pytest.mark.differs("Ray's actor dies of a call to a group that does not exist; mray fails that call")
def test_a_call_to_a_group_that_does_not_exist(ray_session: Any, engine: str) -> None:
    ray = ray_session

    @ray.remote(concurrency_groups={"io": 2})
    class Actor:
        def method(self) -> int:
            return 1

    actor = Actor.remote()
    error = ValueError if engine == "mray" else ray.exceptions.ActorDiedError
    with pytest.raises(error, match="no concurrency group 'nowhere'" if engine == "mray" else None):
        ray.get(actor.method.options(concurrency_group="nowhere").remote(), timeout=60)
    if engine == "mray":
        assert ray.get(actor.method.remote(), timeout=60) == 1

    @ray.remote
    class Plain:
        def method(self) -> int:
            return 1

    with pytest.raises(error):
        ray.get(Plain.remote().method.options(concurrency_group="nowhere").remote(), timeout=60)


@pytest.mark.differs("Ray takes it, and the actor's process says so as it dies of it")
def test_a_group_of_no_calls_is_refused_where_it_is_written(ray_session: Any, engine: str) -> None:
    ray = ray_session

    class Actor:
        def method(self) -> int:
            return 1

    if engine == "mray":
        with pytest.raises(ValueError, match="takes numbers of calls from 1 to 4294967295, but 'io' has 0"):
            ray.remote(concurrency_groups={"io": 0})(Actor)
        return
    actor = ray.remote(concurrency_groups={"io": 0})(Actor).remote()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.method.remote(), timeout=60)
