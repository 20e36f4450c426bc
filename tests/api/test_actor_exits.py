"""How an actor ends whose code leaves: `sys.exit` in all its forms, and `exit_actor` outside of calls.

``sys.exit(0)`` and `exit_actor` are the end. Any other `SystemExit` is a death like others: restarts and retries apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

#: On Ray nobody who waits for an async actor that has raised SystemExit is ever answered.
KINDS = ["sync", "threaded", pytest.param("async", marks=pytest.mark.only("mray", "local"))]
DEATHS = [(1,), (), ("text",), (3,), (True,), (2**40 + 1,)]


@pytest.fixture
def leaver(ray: Any) -> Any:
    """``leaver(kind, **options).remote(folder, *where)``: an actor that notes in the folder what runs in it."""

    class Leaver:
        def __init__(self, folder: Any, *words: Any) -> None:
            import atexit

            self.folder = folder
            self.note("began")
            atexit.register(self.note, "atexit")
            if words:
                sys.exit(*words[1:])

        def note(self, what: str) -> None:
            with open(f"{self.folder}/notes", "a") as file:
                file.write(what + "\n")

        def __ray_shutdown__(self) -> None:
            self.note("shut down")

        def pid(self) -> int:
            return os.getpid()

        def slowly(self, seconds: float) -> str:
            time.sleep(seconds)
            return "done"

        def leave(self, *words: Any) -> None:
            sys.exit(*words)

        def terminate(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                time.sleep(60)
            finally:
                self.note("finally")

        def leave_once(self, *words: Any) -> str:
            try:
                os.mkdir(f"{self.folder}/left")
            except FileExistsError:
                return "the second time"
            sys.exit(*words)

        def leave_amidst(self, *words: Any) -> Any:
            yield 1
            sys.exit(*words)

    class AsyncLeaver(Leaver):
        async def slowly(self, seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

        async def leave(self, *words: Any) -> None:
            await asyncio.sleep(0.01)
            sys.exit(*words)

    def make(kind: str, **options: Any) -> Any:
        options = {"num_cpus": 0, **({"max_concurrency": 3} if kind == "threaded" else {}), **options}
        return ray.remote(**options)(AsyncLeaver if kind == "async" else Leaver)

    return make


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().split("\n")[:-1]


# -------------------------------------------------------------------------------------------- sys.exit
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", DEATHS)
def test_sys_exit_is_a_death_that_is_retried_after_a_restart(ray_session, leaver, tmp_path, kind, words):
    ray = ray_session
    actor = leaver(kind, max_restarts=1, max_task_retries=1).remote(tmp_path)
    assert ray.get(actor.leave_once.remote(*words), timeout=60) == "the second time"
    assert sorted(notes(tmp_path)) == ["atexit", "began", "began", "shut down"]


@pytest.mark.parametrize("kind", KINDS)
def test_sys_exit_without_retries_fails_the_call_and_the_actor_is_restarted(ray_session, leaver, tmp_path, kind, eventually):
    ray = ray_session
    actor = leaver(kind, max_restarts=1).remote(tmp_path)
    first = ray.get(actor.pid.remote())
    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(actor.leave.remote(1), timeout=60)
    eventually(lambda: notes(tmp_path).count("began") == 2)
    assert ray.get(actor.pid.options(max_task_retries=-1).remote(), timeout=60) != first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", DEATHS)
def test_sys_exit_without_restarts_is_the_end(ray_session, leaver, tmp_path, kind, words, engine):
    ray = ray_session
    actor = leaver(kind).remote(tmp_path)
    with pytest.raises(ray.exceptions.ActorDiedError, match="its worker process has died") as caught:
        ray.get(actor.leave.remote(*words), timeout=60)
    if engine == "mray":
        assert f"leave raised {SystemExit(*words)!r}" in str(caught.value)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote())


@pytest.mark.parametrize("kind", KINDS)
def test_sys_exit_with_0_is_the_end_whatever_is_left_of_restarts_and_retries(ray_session, leaver, tmp_path, kind):
    ray = ray_session
    actor = leaver(kind, max_restarts=2, max_task_retries=2).remote(tmp_path)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.leave_once.remote(0), timeout=60)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote(), timeout=60)
    assert notes(tmp_path).count("began") == 1


def test_sigterm_is_an_exit_of_the_call_that_runs_and_a_death(ray_session, leaver, tmp_path):
    ray = ray_session
    actor = leaver("sync", max_restarts=1).remote(tmp_path)
    first = ray.get(actor.pid.remote())
    with pytest.raises(ray.exceptions.ActorUnavailableError):
        ray.get(actor.terminate.remote(), timeout=60)
    assert ray.get(actor.pid.options(max_task_retries=-1).remote(), timeout=60) != first
    assert sorted(set(notes(tmp_path)) - {"finally"}) == ["atexit", "began", "shut down"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [0, 1])
def test_sys_exit_in_a_generator_comes_after_its_items(ray_session, leaver, tmp_path, kind, code):
    ray = ray_session
    actor = leaver(kind).remote(tmp_path)
    items = actor.leave_amidst.remote(code)
    assert ray.get(next(items), timeout=60) == 1
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(next(items), timeout=60)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("code", [0, 1])
def test_what_runs_beside_sys_exit_comes_to_its_end(ray_session, leaver, tmp_path, kind, code):
    ray = ray_session
    actor = leaver(kind).remote(tmp_path)
    slow = actor.slowly.remote(1.0)
    ray.get(actor.pid.remote())
    gone = actor.leave.remote(code)
    assert ray.get(slow, timeout=60) == "done"
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(gone, timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constructor_that_raises_system_exit_is_tried_again(ray_session, leaver, tmp_path, kind):
    ray = ray_session
    actor = leaver(kind, max_restarts=1).remote(tmp_path, "exit", 1)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.options(max_task_retries=-1).remote(), timeout=60)
    assert notes(tmp_path).count("began") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_constructor_that_exits_with_0_is_not_tried_again(ray_session, leaver, tmp_path, kind):
    ray = ray_session
    actor = leaver(kind, max_restarts=1).remote(tmp_path, "exit", 0)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.pid.remote(), timeout=60)
    assert notes(tmp_path).count("began") == 1


def test_who_waits_is_told_although_it_holds_what_the_actor_owns(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Owner:
        def give(self):
            return [ray.put("a value")]

        def leave(self):
            sys.exit(1)

    owner = Owner.remote()
    kept = ray.get(owner.give.remote())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(owner.leave.remote(), timeout=60)
    assert len(kept) == 1


@pytest.mark.only("mray", "local")
def test_sys_exit_in_a_task_that_outlives_its_call_is_a_death(ray_session, eventually):
    """Ray never answers again."""
    ray = ray_session

    @ray.remote(max_restarts=1, num_cpus=0, concurrency_groups={"other": 2})
    class A:
        async def begin(self, code):
            async def leave():
                await asyncio.sleep(0.05)
                sys.exit(code)

            self.task = asyncio.create_task(leave())
            return os.getpid()

        async def pid(self):
            return os.getpid()

    for group in (None, "other"):
        actor = A.remote()
        first = ray.get(actor.begin.options(concurrency_group=group).remote(2))
        eventually(lambda actor=actor, first=first: ray.get(actor.pid.options(max_task_retries=-1).remote()) != first)
        ray.get(actor.begin.options(concurrency_group=group).remote(0))
        with pytest.raises(ray.exceptions.ActorDiedError):
            while True:
                ray.get(actor.pid.remote())


# ------------------------------------------------------------------------------------------ exit_actor
@pytest.fixture
def background(ray: Any) -> Any:
    exit_actor = ray.actor.exit_actor

    class Background:
        async def in_a_task(self, seconds=0.05, stay=0.0):
            async def leave():
                await asyncio.sleep(seconds)
                exit_actor()

            self.task = asyncio.create_task(leave())
            await asyncio.sleep(stay)
            return os.getpid()

        async def in_a_callback(self):
            asyncio.get_running_loop().call_later(0.05, exit_actor)
            return os.getpid()

        async def slowly(self, seconds):
            await asyncio.sleep(seconds)
            return "done"

        async def ping(self):
            return "alive"

    return ray.remote(num_cpus=0)(Background)


@pytest.mark.parametrize("method", ["in_a_task", "in_a_callback"])
def test_exit_actor_in_what_outlives_its_call_ends_the_actor(ray_session, background, method, eventually):
    ray = ray_session
    actor = background.options(max_restarts=1).remote()
    ray.get(getattr(actor, method).remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="exit the actor|exit_actor"):
        while True:
            ray.get(actor.ping.remote(), timeout=60)
    time.sleep(0.2)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.ping.remote(), timeout=60)


def test_exit_actor_beside_calls_lets_them_finish_and_begins_none(ray_session, background):
    ray = ray_session
    actor = background.remote()
    slow = actor.slowly.remote(1.0)
    staying = actor.in_a_task.remote(0.05, 0.5)
    assert ray.get(slow, timeout=60) == "done"
    for ref in (staying, actor.ping.remote()):
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(ref, timeout=60)


@pytest.mark.only("mray")
def test_exit_actor_in_the_background_is_no_mistake_that_asyncio_tells_of(run_program):
    """Ray shows "Task exception was never retrieved"."""
    done = run_program(
        """
        import asyncio, threading, time
        import ENGINE as ray
        from ENGINE.actor import exit_actor

        class A:
            async def begin(self):
                async def leave():
                    exit_actor()
                asyncio.create_task(leave())
            async def ping(self):
                pass

        class T:
            def begin(self):
                threading.Thread(target=exit_actor).start()
            def ping(self):
                pass

        ray.init(num_cpus=1, logging_level="error")
        for cls, options in ((A, {}), (T, {}), (T, {"max_concurrency": 2})):
            actor = ray.remote(num_cpus=0, **options)(cls).remote()
            actor.begin.remote()
            try:
                while True:
                    ray.get(actor.ping.remote())
            except ray.exceptions.ActorDiedError:
                pass
        ray.shutdown()
        """
    )
    assert done.stderr == done.stdout == ""


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 2}], ids=["sync", "threaded"])
def test_exit_actor_in_a_thread_ends_an_actor_that_has_nothing_to_do(ray_session, options, eventually, tmp_path):
    ray = ray_session
    exit_actor = ray.actor.exit_actor
    note = str(tmp_path / "ended")

    def leave():
        time.sleep(0.05)
        with contextlib.suppress(SystemExit):  # which pytest tells of, in its own process
            exit_actor()

    @ray.remote(num_cpus=0, max_restarts=1, **options)
    class A:
        def begin(self):
            threading.Thread(target=leave, daemon=True).start()

        def ping(self):
            return "alive"

        def __ray_shutdown__(self):
            open(note, "w").close()

    actor = A.remote()
    ray.get(actor.begin.remote())
    eventually(lambda: os.path.exists(note))
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.ping.remote(), timeout=60)


def test_exit_actor_in_a_thread_lets_the_call_finish_that_runs_and_begins_none(ray_session):
    ray = ray_session
    exit_actor = ray.actor.exit_actor

    def leave():
        with contextlib.suppress(SystemExit):
            exit_actor()

    @ray.remote(num_cpus=0)
    class A:
        def begin_and_stay(self):
            thread = threading.Thread(target=leave)
            thread.start()
            thread.join()
            time.sleep(0.3)
            return "done"

        def ping(self):
            return "alive"

    actor = A.remote()
    staying, queued = actor.begin_and_stay.remote(), actor.ping.remote()
    assert ray.get(staying, timeout=60) == "done"
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(queued, timeout=60)


@pytest.mark.parametrize("is_async", [False, True])
def test_exit_actor_that_a_constructor_catches_ends_the_actor(ray_session, is_async):
    ray = ray_session
    exit_actor = ray.actor.exit_actor

    class A:
        def __init__(self, catch):
            try:
                exit_actor()
            except BaseException:
                if not catch:
                    raise

        def ping(self):
            return "alive"

    class B(A):
        async def wait(self):
            pass

    for catch in (False, True):
        actor = ray.remote(num_cpus=0, max_restarts=1)(B if is_async else A).remote(catch)
        with pytest.raises(ray.exceptions.ActorDiedError, match="exit_actor"):
            ray.get(actor.ping.remote(), timeout=60)


# ------------------------------------------------------------------------------------------ in a graph
@pytest.mark.differs("a compiled graph does not survive an actor's restart, so its calls fail as those of a dead actor")
def test_sys_exit_in_a_graph_is_a_death_and_the_actor_is_restarted(ray_session, leaver, tmp_path, engine):
    ray = ray_session
    actor = leaver("sync", max_restarts=1).remote(tmp_path)
    with ray.dag.InputNode() as code:
        graph = actor.leave.bind(code).experimental_compile()
    with pytest.raises(ray.exceptions.ActorDiedError if engine == "mray" else ray.exceptions.ActorUnavailableError):
        ray.get(graph.execute(1), timeout=60)
    assert ray.get(actor.pid.options(max_task_retries=-1).remote(), timeout=60) > 0
    assert sorted(notes(tmp_path)) == ["atexit", "began", "began", "shut down"]


@pytest.mark.parametrize("leave", ["exit_actor", "sys.exit(0)", "async exit_actor"])
def test_leaving_in_a_graph_is_the_end(ray_session, leave, engine):
    ray = ray_session
    if leave.startswith("async") and engine == "ray":
        pytest.skip("Ray's graphs run no coroutines")
    exit_actor = ray.actor.exit_actor

    class A:
        def leave(self, _value):
            sys.exit(0) if leave == "sys.exit(0)" else exit_actor()

        def ping(self):
            return "alive"

    class B(A):
        async def leave(self, _value):
            exit_actor()

    actor = ray.remote(num_cpus=0, max_restarts=1)(B if leave.startswith("async") else A).remote()
    with ray.dag.InputNode() as value:
        graph = actor.leave.bind(value).experimental_compile()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(graph.execute(1), timeout=60)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(actor.ping.remote(), timeout=60)


@pytest.mark.only("mray")
def test_exit_actor_is_the_end_although_the_death_is_heard_of_first(ray_session, eventually):
    ray = ray_session
    from mray._api.current import current_backend

    @ray.remote(num_cpus=0, max_restarts=3)
    class A:
        def pid(self):
            return os.getpid()

        def leave(self):
            ray.actor.exit_actor()

    other, actor = A.remote(), A.remote()
    pids = ray.get([other.pid.remote(), actor.pid.remote()])
    node = current_backend().client.info["node_pid"]
    os.kill(node, signal.SIGSTOP)
    try:
        # The node comes to the actor's end behind that of another, before it reads what the actor has said.
        for pid, end in zip(pids, (lambda: os.kill(pids[0], signal.SIGKILL), lambda: actor.leave.remote()), strict=True):
            left = end()
            eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
    finally:
        os.kill(node, signal.SIGCONT)
    for ref in (left, actor.pid.remote()):
        with pytest.raises(ray.exceptions.ActorDiedError, match="exit_actor"):
            ray.get(ref, timeout=60)
