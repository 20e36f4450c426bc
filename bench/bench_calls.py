"""Benchmarks of calls: tasks, actor methods, waiting, starting.

pytest bench/bench_calls.py -o addopts= -o python_files="bench_*.py"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mray


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    mray.init(num_cpus=2, logging_level="ERROR")
    yield
    mray.shutdown()


@pytest.fixture(scope="module")
def echo() -> Any:
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    return mray.remote(Echo)


@mray.remote
def nothing() -> None:
    return None


def test_task_round_trip(benchmark: Any) -> None:
    benchmark(lambda: mray.get(nothing.remote()))


def test_tasks_in_flight(benchmark: Any) -> None:
    benchmark(lambda: mray.get([nothing.remote() for _ in range(1000)]))


@pytest.mark.parametrize("size", [0, 1_000, 50_000, 1_000_000], ids=lambda size: f"{size}B")
def test_actor_call_round_trip(benchmark: Any, echo: Any, size: int) -> None:
    actor, value = echo.remote(), b"x" * size
    mray.get(actor.echo.remote(value))
    benchmark(lambda: mray.get(actor.echo.remote(value)))


def test_actor_calls_in_flight(benchmark: Any, echo: Any) -> None:
    actor = echo.remote()
    mray.get(actor.echo.remote(1))
    benchmark(lambda: mray.get([actor.echo.remote(1) for _ in range(1000)]))


def test_ref_as_argument(benchmark: Any, echo: Any) -> None:
    actor, ref = echo.remote(), mray.put("value")
    mray.get(actor.echo.remote(ref))
    benchmark(lambda: mray.get(actor.echo.remote(ref)))


def test_chain_of_tasks(benchmark: Any) -> None:
    @mray.remote
    def increment(x: int) -> int:
        return x + 1

    def chain() -> int:
        ref: Any = 0
        for _ in range(20):
            ref = increment.remote(ref)
        return int(mray.get(ref))

    assert benchmark(chain) == 20


def test_wait_for_one_of_many(benchmark: Any) -> None:
    refs = [mray.put(i) for i in range(1000)]
    benchmark(lambda: mray.wait(refs, num_returns=1))


def test_actor_from_nothing_to_first_reply(benchmark: Any, echo: Any) -> None:
    benchmark(lambda: mray.get(echo.remote().echo.remote(1)))
