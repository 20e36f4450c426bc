"""How many calls an actor takes, and in which order."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest


def test_more_pending_calls_than_the_limit_are_refused(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_pending_calls=3, max_concurrency=3)
    class Actor:
        def __init__(self) -> None:
            self.open = threading.Event()

        def wait(self) -> None:
            self.open.wait(60)

        def release(self) -> None:
            self.open.set()

    actor = Actor.remote()
    waiting = [actor.wait.remote(), actor.release.remote(), actor.wait.remote()]
    ray.get(waiting, timeout=60)  # those that are answered do not count
    ray.get(actor.__ray_call__.remote(lambda self: self.open.clear()))
    waiting = [actor.wait.remote() for _ in range(3)]
    with pytest.raises(ray.exceptions.PendingCallsLimitExceeded, match="The task wait could not be submitted to .* more than 3 tasks are"):
        actor.wait.remote()
    ray.kill(actor)
    for ref in waiting:
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(ref, timeout=60)


def test_the_limit_counts_calls_that_wait_for_the_actor_to_begin(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_pending_calls=2)
    class Actor:
        def __init__(self) -> None:
            time.sleep(0.2)

        def method(self) -> int:
            return 1

    actor = Actor.remote()
    refs = []
    with pytest.raises(ray.exceptions.PendingCallsLimitExceeded):
        while True:
            refs.append(actor.method.remote())
    assert ray.get(refs, timeout=60) == [1] * len(refs)
    assert ray.get(actor.method.remote(), timeout=60) == 1


def test_the_limit_goes_with_a_handle_that_is_passed_on(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_pending_calls=2)
    class Actor:
        def wait(self) -> None:
            time.sleep(60)

    @ray.remote
    def flood(actor: Any) -> int:
        refs = []
        for _ in range(9):
            try:
                refs.append(actor.wait.remote())
            except ray.exceptions.PendingCallsLimitExceeded:
                break
        return len(refs)

    actor = Actor.remote()
    assert ray.get(flood.remote(actor), timeout=60) == 2
    ray.kill(actor)


def test_a_call_overtakes_one_that_waits_for_its_arguments_only_where_that_is_allowed(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote(max_concurrency=2)
    class Gate:
        def __init__(self) -> None:
            self.open = threading.Event()

        def wait(self) -> int:
            self.open.wait(60)
            return 7

        def release(self) -> None:
            self.open.set()

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, value: int) -> list[int]:
            self.seen.append(value)
            return self.seen

    gate = Gate.remote()
    for options, overtakes in (({}, False), ({"allow_out_of_order_execution": True}, True), ({"max_concurrency": 1}, False)):
        actor = Actor.options(**options).remote()
        ray.get(actor.__ray_ready__.remote())
        ray.get(gate.__ray_call__.remote(lambda self: self.open.clear()))
        first = actor.note.remote(gate.wait.remote())
        second = actor.note.remote(1)
        if overtakes:
            assert ray.get(second, timeout=60) == [1]
        else:
            assert ray.wait([second], timeout=0.1)[0] == []
        ray.get(gate.release.remote(), timeout=60)
        assert ray.get(first, timeout=60) == ([1, 7] if overtakes else [7])
        assert ray.get(second, timeout=60) == ([1] if overtakes else [7, 1])


def test_actors_that_run_calls_beside_each_other_cannot_promise_an_order(ray_session: Any) -> None:
    ray = ray_session

    @ray.remote
    class Async:
        async def method(self) -> None: ...

    @ray.remote
    class Sync:
        def method(self) -> None: ...

    with pytest.raises(ValueError, match="If you're using async actors, Ray can't execute actor tasks in order"):
        Async.options(allow_out_of_order_execution=False).remote()
    with pytest.raises(ValueError, match="If you're using multi-threaded actors, Ray can't execute actor tasks in order"):
        Sync.options(allow_out_of_order_execution=False, max_concurrency=2).remote()
    Sync.options(allow_out_of_order_execution=False).remote()
