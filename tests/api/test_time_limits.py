"""Time limits on calls, as stopit and func_timeout set them: another thread raises an error in the one that waits.

For mray alone: Ray goes on after such errors too, but a wait of its ends only when what it waits for comes.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.only("mray")


class Limit(Exception):
    """The error that is raised."""


#: As a program may keep it from before a session begins.
set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc


def raise_in(thread: threading.Thread) -> int:
    assert thread.ident is not None
    return int(set_async_exc(ctypes.c_ulong(thread.ident), ctypes.py_object(Limit)))


def limited(act: Callable[[], object], seconds: float) -> str:
    """Do this again and again in another thread until the limit; how it ended."""
    ended: list[str] = []

    def work() -> None:
        try:
            while True:
                act()
        except BaseException as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(seconds)
    assert raise_in(thread) == 1
    thread.join()
    return ended[0]


@pytest.mark.parametrize("kind", ["task", "actor", "put", "wait", "generator", "queue", "graph"])
def test_calls_go_on_after_a_thread_was_ended_in_the_middle_of_any(
    ray_session: ModuleType, kind: str, eventually: Callable[..., None]
) -> None:
    ray = ray_session

    @ray.remote
    def same(value: Any) -> Any:
        return value

    @ray.remote
    def items(value: int) -> Any:
        yield from (value, value + 1)

    @ray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    numbers = itertools.count()
    actor = Echo.remote()
    graph = queue = None
    if kind == "graph":
        with ray.dag.InputNode() as given:
            graph = actor.echo.bind(given).experimental_compile()
    if kind == "queue":
        from importlib import import_module

        queue = import_module(f"{ray.__name__}.util.queue").Queue()

    def act() -> None:
        k = next(numbers)
        if kind == "task":
            assert ray.get(same.remote(k)) == k
        elif kind == "actor":
            assert ray.get(actor.echo.remote(k)) == k
        elif kind == "put":
            assert ray.get(ray.put(np.full(30_000, k)))[-1] == k
        elif kind == "wait":
            refs = [same.remote(k), actor.echo.remote(k)]
            assert ray.wait(refs, num_returns=2) == (refs, [])
        elif kind == "generator":
            assert [ray.get(ref) for ref in items.options(num_returns="streaming").remote(k)] == [k, k + 1]
        elif queue is not None:
            queue.put(k)
            assert queue.get() <= k
        elif graph is not None:
            assert graph.execute(k).get() == k

    for trial in range(20):
        assert limited(act, 0.001 * (trial % 7)) == "Limit"
        eventually(gc.isenabled)  # another thread may read just now
        assert ray.get([same.remote(trial), actor.echo.remote(trial)], timeout=60) == [trial, trial]
    # And no CPU is lent for good: four at once.
    assert ray.get([same.options(num_cpus=4).remote(k) for k in range(2)], timeout=60) == [0, 1]
    if kind != "queue":  # into which the last thread may have put what nobody took
        act()
    if graph is not None:
        graph.teardown()


def test_an_actor_goes_on_after_it_has_ended_threads_of_its_own(ray_session: ModuleType) -> None:
    ray = ray_session

    @ray.remote
    def same(value: Any) -> Any:
        return value

    @ray.remote(num_cpus=0)
    class Limiter:
        def work(self, trials: int) -> int:
            for trial in range(trials):
                ended = []

                def run(ended: list[str] = ended) -> None:
                    try:
                        k = 0
                        while True:
                            k += 1
                            assert ray.get(same.remote(k)) == k
                    except BaseException as error:
                        ended.append(type(error).__name__)

                thread = threading.Thread(target=run)
                thread.start()
                time.sleep(0.003)
                ident = ctypes.c_ulong(thread.ident or 0)
                assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeoutError)) == 1
                thread.join()
                assert ended == ["TimeoutError"], ended
                assert ray.get(same.remote(trial), timeout=60) == trial
            return trials

    limiter = Limiter.remote()
    assert ray.get(limiter.work.remote(15), timeout=120) == 15
    assert ray.get(limiter.work.remote(1), timeout=120) == 1


def test_a_wait_for_what_does_not_come_ends_at_once(ray_session: ModuleType) -> None:
    ray = ray_session

    @ray.remote(num_cpus=0)
    def forever() -> None:
        time.sleep(3600)

    ref = forever.remote()
    assert limited(lambda: ray.get(ref), 0.3) == "Limit"
    ended: list[str] = []

    def second() -> None:
        try:
            ray.get(ref)
        except Limit:
            ended.append("Limit")

    waits = [threading.Thread(target=second) for _ in range(3)]
    for thread in waits:
        thread.start()
    time.sleep(0.2)
    for thread in waits:
        assert raise_in(thread) == 1
        thread.join()
    assert ended == ["Limit"] * 3
    ray.cancel(ref, force=True)
