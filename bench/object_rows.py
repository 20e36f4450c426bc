"""Measurements of large values: made in shared memory, as arguments, spilled, with buffers out of band; `measure.py` runs them.

An array that is made in shared memory by mray is an ordinary one on Ray, which has none.
"""

from __future__ import annotations

import importlib
import pickle
import time
from typing import Any

from measure import echo_actor, session, times

MIB = 1 << 20
STORE = 1 << 30


def new_array(ray: Any, size: int) -> Any:
    """An array of bytes, in shared memory where there is such."""
    import numpy

    if ray.__name__ != "mray":
        return numpy.empty(size, numpy.uint8)
    return importlib.import_module("mray.util.shared").empty(size, numpy.uint8)


def zero_copy_put_get(ray: Any, mebibytes: int) -> list[float]:
    """Of `put` and `get`, not of making and filling the array."""
    samples = []
    with session(ray, object_store_memory=STORE):
        for _ in range(23):
            array = new_array(ray, mebibytes * MIB)
            array[...] = 1
            start = time.perf_counter()
            value = ray.get(ray.put(array))
            samples.append(time.perf_counter() - start)
            assert value[-1] == 1
            del array, value
    return samples[3:]


def zero_copy_put_get_1m(ray: Any) -> list[float]:
    return zero_copy_put_get(ray, 1)


def zero_copy_put_get_64m(ray: Any) -> list[float]:
    return zero_copy_put_get(ray, 64)


def zero_copy_echo_16m(ray: Any) -> list[float]:
    dag = importlib.import_module(f"{ray.__name__}.dag")
    with session(ray, object_store_memory=STORE):
        actor = echo_actor(ray).remote()
        array = new_array(ray, 16 * MIB)
        array[...] = 1
        with dag.InputNode() as given:
            echo = actor.echo.bind(given)
        graph = echo.experimental_compile(_buffer_size_bytes=17 * MIB)
        try:
            return times(lambda: ray.get(graph.execute(array)), 100, 20)
        finally:
            graph.teardown()


def zero_copy_batches(ray: Any) -> list[float]:
    """An item of a generator of batches of 12 MiB, each made, sent and summed up in part."""

    class Loader:
        def batches(self, count: int) -> Any:
            for number in range(count):
                batch = new_array(ray, 12 * MIB)
                batch[...] = number
                yield batch

    with session(ray, object_store_memory=STORE):
        loader = ray.remote(Loader).remote()

        def read() -> None:
            for number, ref in enumerate(loader.batches.options(num_returns="streaming").remote(30)):
                assert ray.get(ref)[-1] == number

        return [each / 30 for each in times(read, 5, 1)]


def get_1m(ray: Any) -> list[float]:
    return _gets_1m(ray, 1)


def get_1m_again(ray: Any) -> list[float]:
    return _gets_1m(ray, 2)


def _gets_1m(ray: Any, look: int) -> list[float]:
    """Of a value that an actor has made, the first or second time; the value is read once at its end."""
    import numpy

    class Maker:
        def make(self) -> Any:
            return numpy.ones(MIB, numpy.uint8)

    samples = []
    with session(ray, object_store_memory=STORE):
        maker = ray.remote(Maker).remote()
        for _ in range(220):
            ref = maker.make.remote()
            ray.wait([ref])
            for _look in range(look):
                start = time.perf_counter()
                value = ray.get(ref)
                seconds = time.perf_counter() - start
                assert value[-1] == 1
                del value
            samples.append(seconds)
            del ref
    return samples[20:]


def argument_16m(ray: Any) -> list[float]:
    import numpy

    array = numpy.ones(16 * MIB, dtype=numpy.uint8)

    class Reader:
        def size(self, value: Any) -> int:
            return int(value.nbytes)

    with session(ray, object_store_memory=STORE):
        reader = ray.remote(Reader).remote()
        return times(lambda: ray.get(reader.size.remote(array)), 50, 10)


# ------------------------------------------------------------------------------------------ spilling
SPILLED, SPILLED_BYTES, ROOM = 20, 100 * 10**6, 150 * 10**6


def spill_results(ray: Any) -> list[float]:
    """Twenty results of one task, through a store that has room for one, and a look at the first."""
    import numpy

    @ray.remote(num_returns=SPILLED)
    def many() -> list[Any]:
        return [numpy.ones(SPILLED_BYTES, numpy.uint8) for _ in range(SPILLED)]

    def call() -> None:
        assert ray.get(many.remote()[0])[-1] == 1

    with session(ray, object_store_memory=ROOM):
        return times(call, 3, warmup=1)


def spill_items(ray: Any) -> list[float]:
    """The same as items of a generator, all of which are kept."""
    import numpy

    @ray.remote(num_returns="streaming")
    def items() -> Any:
        for _ in range(SPILLED):
            yield numpy.ones(SPILLED_BYTES, numpy.uint8)

    def call() -> None:
        refs = list(items.remote())
        assert ray.get(refs[0])[-1] == 1

    with session(ray, object_store_memory=ROOM):
        return times(call, 3, warmup=1)


# ------------------------------------------------------------------------------------------ out of band
class Buffers:
    """Any type of the user's that pickles its memory out of band."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Buffers, (pickle.PickleBuffer(self.memory),)


def out_of_band(ray: Any, value: Any) -> list[float]:
    with session(ray, object_store_memory=STORE):
        actor = echo_actor(ray).remote()
        ref = ray.put(value)
        ray.get(actor.echo.remote(ref))
        return times(lambda: ray.get(ray.put(value)), 30, 6)


def columns() -> dict[str, Any]:
    import numpy

    return {f"column {number}": numpy.arange(MIB, dtype=numpy.float64) for number in range(4)}


def buffers_8m(ray: Any) -> list[float]:
    return out_of_band(ray, Buffers(bytearray(8 * MIB)))


def table_32m(ray: Any) -> list[float]:
    return out_of_band(ray, importlib.import_module("pyarrow").table(columns()))


def frame_32m(ray: Any) -> list[float]:
    return out_of_band(ray, importlib.import_module("pandas").DataFrame(columns()))


def polars_32m(ray: Any) -> list[float]:
    return out_of_band(ray, importlib.import_module("polars").DataFrame(columns()))
