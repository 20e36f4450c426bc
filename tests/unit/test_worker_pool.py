"""Which job of a worker pool a member's death takes, in whatever order its jobs fail."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from mray.exceptions import ActorDiedError
from mray.util import _worker_pool
from mray.util._worker_pool import MemberPool, PoolJob


class Answer:
    """The ref of a call, and what comes of it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.callback: Callable[[], None] | None = None

    def come(self, error: BaseException | None = None) -> None:
        self.error = error
        assert self.callback is not None
        self.callback()


class Method:
    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls

    def options(self, **_options: Any) -> Method:
        return self

    def remote(self, *args: Any) -> Answer:
        self._calls.append((answer := Answer(), args))
        return answer


class Handle:
    """A member that answers when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[Answer, Any]] = []
        self.others: list[tuple[Answer, Any]] = []

    def __getattr__(self, name: str) -> Method:
        return Method(self.calls if name == "call" else self.others)


class Backend:
    def then(self, ref: Answer, callback: Callable[[], None], *, soon: bool = True) -> None:
        ref.callback = callback

    def get(self, refs: list[Answer], timeout: float | None) -> list[int]:
        if refs[0].error is not None:
            raise refs[0].error
        return [1]

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None: ...


class Noted(PoolJob):
    """A job that notes how it ended."""

    __slots__ = ("end",)

    def settle(self, success: bool, value: Any) -> None:
        how = "done" if success else type(value).__name__
        assert not hasattr(self, "end"), f"it ended twice: {self.end}, {how}"
        self.end = how


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """The members that worker pools have hired."""
    hired: list[Handle] = []

    class Class:
        def options(self, **_options: Any) -> Class:
            return self

        def remote(self) -> Handle:
            hired.append(Handle())
            return hired[-1]

    # No job takes any time: one that seems to, on a busy machine, has fewer sent ahead of it.
    monkeypatch.setattr(_worker_pool, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(_worker_pool, "current_backend", Backend)
    monkeypatch.setattr(_worker_pool, "remote", lambda **_options: lambda _class: Class())
    return hired


@pytest.mark.parametrize("order", [*permutations(range(4))], ids=str)
@pytest.mark.parametrize("answered", [0, 1])
def test_a_death_takes_the_first_job_without_an_answer_and_the_others_run_in_their_order(
    members: list[Handle], order: tuple[int, ...], answered: int
) -> None:
    pool = MemberPool(1, traceback_type=RuntimeError)
    pool._depth = 5
    members[0].others[0][0].come()
    code = pool.code_of(abs)
    jobs = [Noted(code, "call", number) for number in range(5)]
    pool.submit(*jobs)
    calls = [answer for answer, _args in members[0].calls]
    assert len(calls) == 5
    died = calls[answered:][:4]
    # An answer that came in time may be heard between the deaths.
    for place, number in enumerate(order):
        if place == 2 and answered:
            calls[0].come()
        died[number].come(ActorDiedError())
    if not answered:
        calls[4].come(ActorDiedError())
    assert [getattr(job, "end", None) for job in jobs[: answered + 1]] == ["done", "ActorDiedError"][1 - answered :]
    members[1].others[0][0].come()
    assert [args[1] for _answer, args in members[1].calls] == list(range(answered + 1, 5))
    for answer, _args in members[1].calls:
        answer.come()
    assert [job.end for job in jobs[answered + 1 :]] == ["done"] * (4 - answered)


def test_jobs_behind_a_death_fail_with_a_pool_that_does_not_mend(members: list[Handle]) -> None:
    pool = MemberPool(1, traceback_type=RuntimeError, mends=False)
    pool._depth = 3
    members[0].others[0][0].come()
    jobs = [Noted(pool.code_of(abs), "call", number) for number in range(4)]
    pool.submit(*jobs)
    for answer, _args in reversed(members[0].calls):
        answer.come(ActorDiedError())
    assert [job.end for job in jobs] == ["ActorDiedError"] * 4
    assert isinstance(pool.broken, ActorDiedError)


def test_a_closed_pool_takes_no_more_jobs(members: list[Handle]) -> None:
    pool = MemberPool(1, traceback_type=RuntimeError)
    pool.close()
    with pytest.raises(RuntimeError, match="the pool takes no more jobs"):
        pool.submit(Noted(pool.code_of(abs), "call", 1))
