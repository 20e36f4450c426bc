"""Actors with ``max_concurrency``: threads that are kept."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest


def test_calls_run_beside_each_other_on_at_most_so_many_threads_that_are_kept(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=3)
    class Actor:
        def __init__(self) -> None:
            self.local = threading.local()
            self.barrier = threading.Barrier(3)

        def meet(self) -> tuple[int, int]:
            self.barrier.wait(30)
            self.local.calls = getattr(self.local, "calls", 0) + 1
            return threading.get_ident(), self.local.calls

    actor = Actor.remote()
    rounds = [ray.get([actor.meet.remote() for _ in range(3)], timeout=60) for _ in range(4)]
    threads = {thread for each in rounds for thread, _calls in each}
    assert len(threads) == 3
    assert sorted(calls for thread, calls in rounds[-1]) == [4, 4, 4]


@pytest.mark.only("mray", "local")  # Ray begins them all at once, and dies of so many
def test_threads_begin_when_they_are_needed(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=100_000)
    class Actor:
        def count(self) -> int:
            return len(os.listdir("/proc/self/task"))

    actor = Actor.remote()
    assert max(ray.get([actor.count.remote() for _ in range(10)])) < 200


def test_each_thread_has_its_own_runtime_context(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=4)
    class Actor:
        def __init__(self) -> None:
            self.barrier = threading.Barrier(4)

        def who(self) -> tuple[str | None, str | None]:
            self.barrier.wait(30)
            context = ray.get_runtime_context()
            return context.get_task_id(), context.get_task_name()

        def fail(self) -> None:
            raise ValueError("of this thread")

    actor = Actor.remote()
    refs = [actor.who.remote() for _ in range(4)]
    assert ray.get(refs, timeout=60) == [(ref.task_id().hex(), "Actor.who") for ref in refs]
    with pytest.raises(ValueError, match="of this thread") as caught:
        ray.get(actor.fail.remote())
    assert "ray::Actor.fail()" in str(caught.value)


def test_a_thread_that_waits_for_an_object_holds_up_no_other(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Actor:
        def __init__(self) -> None:
            self.open = threading.Event()

        def gate(self) -> int:
            self.open.wait(60)
            return 5

        def release(self) -> None:
            self.open.set()

    @ray.remote(max_concurrency=2)
    class Waiter:
        def wait(self, ref: list[Any]) -> int:
            return ray.get(ref[0])

        def echo(self, value: bytes) -> int:
            return len(value)

    gate, waiter = Actor.remote(), Waiter.remote()
    waiting = waiter.wait.remote([gate.gate.remote()])
    assert ray.get([waiter.echo.remote(b"x" * 300_000) for _ in range(20)], timeout=60) == [300_000] * 20
    ray.get(gate.release.remote())
    assert ray.get(waiting, timeout=60) == 5


def test_cancelling_only_tells_a_thread_and_queued_calls_never_run(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Actor:
        def __init__(self) -> None:
            self.begun = threading.Event()
            self.seen: list[str] = []

        def work(self, name: str) -> str:
            self.seen.append(name)
            self.begun.set()
            while not ray.get_runtime_context().is_canceled():
                time.sleep(0.002)
            self.seen.append(f"{name} saw it")
            return "returned"

        def begins(self) -> None:
            self.begun.wait(60)

        def told(self) -> list[str]:
            return self.seen

    actor = Actor.remote()
    first = actor.work.remote("first")
    ray.get(actor.begins.remote())
    second = actor.work.remote("second")
    queued = actor.work.remote("queued")
    for ref in (queued, first, second):
        ray.cancel(ref)
    for ref in (first, second, queued):
        with pytest.raises(ray.exceptions.TaskCancelledError):
            ray.get(ref, timeout=60)
    seen = ray.get(actor.told.remote())
    assert "first saw it" in seen and "queued" not in seen


def test_exit_actor_and_sigterm_let_running_methods_finish(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Actor:
        def __init__(self) -> None:
            self.leaving = threading.Event()

        def slow(self) -> str:
            self.leaving.wait(60)
            time.sleep(0.05)
            return "finished"

        def leave(self) -> None:
            self.leaving.set()
            ray.actor.exit_actor()

        def terminate(self) -> str:
            self.leaving.set()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            return "told"

    actor = Actor.remote()
    slow = actor.slow.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match=r"exit_actor\(\)"):
        ray.get(actor.leave.remote(), timeout=30)
    assert ray.get(slow, timeout=30) == "finished"
    actor = Actor.remote()
    slow = actor.slow.remote()
    assert ray.get([slow, actor.terminate.remote()], timeout=30) == ["finished", "told"]
    with pytest.raises(ray.exceptions.ActorDiedError, match="SIGTERM"):
        ray.get(actor.slow.remote(), timeout=30)


@pytest.mark.only("mray")  # Ray waits for the constructor of an async actor; a simulated process has no such signal
@pytest.mark.parametrize("is_async", [False, True])
def test_sigterm_ends_an_actor_that_is_being_constructed(ray_session: Any, tmp_path: Path, is_async: bool) -> None:
    ray = ray_session

    class Actor:
        def __init__(self, where: Path) -> None:
            where.with_suffix(".new").write_text(str(os.getpid()))
            where.with_suffix(".new").rename(where)
            threading.Event().wait()

    class AsyncActor(Actor):
        async def __init__(self, where: Path) -> None:
            super().__init__(where)

    actor = ray.remote(max_concurrency=2)(AsyncActor if is_async else Actor).remote(tmp_path / "pid")
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    with pytest.raises(ray.exceptions.ActorDiedError, match="SIGTERM"):
        ray.get(actor.__ray_ready__.remote(), timeout=30)


def test_exit_actor_in_a_thread_that_a_method_started_ends_the_actor(ray_session: Any) -> None:
    ray = ray_session
    exit_actor = ray.actor.exit_actor

    @ray.remote(max_concurrency=2)
    class Actor:
        def start(self) -> int:
            def leave() -> None:
                with contextlib.suppress(BaseException):
                    exit_actor()

            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            return 1

        def ping(self) -> None:
            pass

    actor = Actor.remote()
    assert ray.get(actor.start.remote()) == 1
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get([actor.ping.remote() for _ in range(3)], timeout=30)


@pytest.mark.only("mray", "local")  # Ray ends those of `multiprocessing`, which exit when their handler raises
def test_a_child_that_a_method_forks_is_ended_by_sigterm(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Actor:
        def fork(self) -> int:
            ready, begun = os.pipe()
            pid = os.fork()
            if not pid:
                os.write(begun, b"!")
                while True:
                    time.sleep(1000)
            os.read(ready, 1)
            os.kill(pid, signal.SIGTERM)
            return os.waitpid(pid, 0)[1]

    assert ray.get(Actor.remote().fork.remote(), timeout=30)


def test_methods_however_brief_run_on_no_other_thread_than_the_actors_own(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=3)
    class Actor:
        def __init__(self) -> None:
            self.local = threading.local()
            self.barrier = threading.Barrier(3)

        def meet(self) -> int:
            self.barrier.wait(30)
            self.local.number = threading.get_ident()
            return threading.get_ident()

        def number(self) -> int | None:
            return getattr(self.local, "number", None)

        def is_main(self) -> bool:
            return threading.current_thread() is threading.main_thread()

    actor = Actor.remote()
    threads = ray.get([actor.meet.remote() for _ in range(3)], timeout=60)
    one_by_one = {ray.get(actor.number.remote(), timeout=60) for _ in range(1500)}
    at_once = set(ray.get([actor.number.remote() for _ in range(1500)], timeout=60))
    assert one_by_one | at_once <= set(threads)
    assert not any(ray.get(actor.is_main.remote(), timeout=60) for _ in range(300))
