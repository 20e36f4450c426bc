"""Benchmarks of objects: put and get over sizes and kinds.

pytest bench/bench_objects.py -o addopts= -o python_files="bench_*.py"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import mray

KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB]


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=1 << 30)
    yield
    mray.shutdown()


def test_put_of_a_small_value(benchmark: Any) -> None:
    benchmark(lambda: mray.put("hello"))


def test_get_of_a_small_value(benchmark: Any) -> None:
    ref = mray.put("hello")
    benchmark(lambda: mray.get(ref))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size // KIB}KiB")
def test_put_of_an_array(benchmark: Any, size: int) -> None:
    array = numpy.ones(size, dtype=numpy.uint8)
    benchmark(lambda: mray.put(array))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size // KIB}KiB")
def test_plain_copy_of_an_array(benchmark: Any, size: int) -> None:
    """The yardstick for `put`."""
    source, target = numpy.ones(size, dtype=numpy.uint8), numpy.zeros(size, dtype=numpy.uint8)
    benchmark(lambda: numpy.copyto(target, source))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size // KIB}KiB")
def test_get_of_an_array(benchmark: Any, size: int) -> None:
    ref = mray.put(numpy.ones(size, dtype=numpy.uint8))
    benchmark(lambda: mray.get(ref))


@pytest.mark.parametrize("size", [KIB, MIB, 16 * MIB], ids=lambda size: f"{size // KIB}KiB")
def test_an_array_there_and_back(benchmark: Any, size: int) -> None:
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    actor, array = mray.remote(Echo).remote(), numpy.ones(size, dtype=numpy.uint8)
    mray.get(actor.echo.remote(array))
    benchmark(lambda: mray.get(actor.echo.remote(array)))


def test_a_list_of_a_thousand_refs(benchmark: Any) -> None:
    refs = [mray.put(i) for i in range(1000)]
    benchmark(lambda: mray.get(refs))
