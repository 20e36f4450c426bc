"""Tests of graphs whose tensors stay on a GPU that the actors share, and their fixtures.

`tests/gpu/test_graph_gpu.py` runs them on a real GPU, `tests/api/test_graph_gpu_rows.py` on a pretended one. They differ in the fixture
`work`, which each of them has: `bench.gpu_work`.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mray
from bench.gpu_work import Work
from mray._device.platform import forget_platform
from mray.dag import InputNode, MultiOutputNode
from mray.exceptions import ActorDiedError
from tests.gpu.actors import Maker, Taker

#: Seconds that a result may take before the test fails.
PATIENCE = 60.0


# --------------------------------------------------------------------------------------------- what they use
class Shared:
    """The session that the tests of a file share."""

    def __init__(self, flag: Any) -> None:
        self.flag = flag
        self.check: Callable[[], None] | None = None
        self.pretends = False

    def start(self, work: Work, belongings: Any) -> None:
        now, check = belongings
        before = now()
        self.pretends = work.name == "null"
        # A process keeps the files that it has opened of a real GPU.
        self.check = lambda: check(before) if self.pretends else None
        mray.init(num_cpus=16, num_gpus=1, preload=list(work.preload), logging_level="ERROR")
        self.flag.running = True

    def stop(self) -> None:
        gc.collect()
        mray.shutdown()
        self.flag.running = False
        if self.pretends:
            forget_platform()
        check, self.check = self.check, None
        if check is not None:
            check()


@pytest.fixture(scope="module")
def shared(work: Work, shared_session: Any) -> Iterator[Shared]:
    shared = Shared(shared_session)
    yield shared
    shared.stop()


@pytest.fixture
def session(shared: Shared, work: Work, belongings: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """A session with one GPU."""
    if not mray.is_initialized() or shared.check is None:
        mray.shutdown()
        shared.start(work, belongings)
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed:
        # The resources of a failed test must not starve the next one.
        shared.check = None
        shared.stop()
    gc.collect()


@pytest.fixture
def actor(session: None) -> Callable[..., Any]:
    """Makes an actor that has a tenth of the GPU."""

    def make(cls: type, *, share: float = 0.1, **options: Any) -> Any:
        gc.collect()  # nodes of graphs refer to each other, and to actors
        return mray.remote(num_gpus=share, num_cpus=0, **options)(cls).remote()

    return make


@pytest.fixture
def pair(actor: Callable[..., Any]) -> tuple[Any, Any]:
    return actor(Maker), actor(Taker)


@contextlib.contextmanager
def compiled(root: Any, **options: Any) -> Iterator[Any]:
    graph = root.experimental_compile(**options)
    try:
        yield graph
    finally:
        graph.teardown()


def chain(*methods: Any) -> Any:
    with InputNode() as value:
        root: Any = value
        for method in methods:
            root = method.bind(root)
    return root


def result(graph: Any, *arguments: Any) -> Any:
    return mray.get(graph.execute(*arguments), timeout=PATIENCE)


def results(graph: Any, values: Any) -> list[Any]:
    """With as many in flight as the values are."""
    return [mray.get(ref, timeout=PATIENCE) for ref in [graph.execute(value) for value in values]]


def count(graph: Any) -> int:
    """Tensors that its edges have copied, each once."""
    return sum(each.get("device_copied", 0) for each in graph.statistics()["channels"].values())


# ------------------------------------------------------------------------------------------------- values
def test_a_tensor_goes_from_actor_to_actor_with_one_copy_and_without_a_wait(pair):
    maker, taker = pair
    with compiled(chain(maker.full, taker.queue)) as graph:
        result(graph, 0)
        waits = mray.get([maker.synchronizations.remote(), taker.synchronizations.remote()])
        copied = count(graph)
        for number in range(1, 21):
            result(graph, number)
        assert mray.get([maker.synchronizations.remote(), taker.synchronizations.remote()]) == waits
        assert count(graph) == copied + 20
    assert mray.get(taker.result_value.remote()) == [21]


def test_four_actors_share_a_gpu_and_copy_once_an_edge(actor):
    maker, *stages = [actor(cls, share=0.25) for cls in (Maker, Taker, Taker, Taker)]
    with compiled(chain(maker.full, stages[0].add, stages[1].add, stages[2].ends)) as graph:
        assert results(graph, range(10)) == [(100, number + 2, number + 2) for number in range(10)]
        assert count(graph) == 30


def test_each_of_several_readers_has_the_tensor_for_itself(actor):
    maker, takers = actor(Maker), [actor(Taker) for _ in range(3)]
    with InputNode() as value:
        made = maker.full.bind(value)
        root = MultiOutputNode([taker.write.bind(made, 100 + number) for number, taker in enumerate(takers)])
    with compiled(root) as graph:
        for number in range(5):
            assert result(graph, number) == [[100], [101], [102]]


def test_a_tensor_that_two_methods_of_an_actor_use_arrives_once(actor):
    maker, taker = actor(Maker), actor(Taker)
    with InputNode() as value:
        made = maker.full.bind(value)
        root = MultiOutputNode([taker.total.bind(made), taker.total.bind(made, made)])
    with compiled(root) as graph:
        assert result(graph, 3) == [300, 600]
        assert count(graph) == 1


def test_tensors_inside_of_values_stay_on_the_device(pair):
    maker, taker = pair
    with compiled(chain(maker.nested, taker.unpack)) as graph:
        for number in range(5):
            assert result(graph, number) == ([number] * 7, [[number + 1] * 2] * 3, "text", [number] * 7, number)
        assert count(graph) >= 10


DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_arrives_as_it_was(pair, dtype):
    maker, taker = pair
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    with compiled(chain(maker.put, taker.describe)) as graph:
        on_device, name, found = result(graph, array)
    assert (on_device, name) == (True, dtype)
    np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (1, 1, 1), (5, 1, 7), (2, 3, 4, 5, 6)], ids=str)
def test_every_shape_arrives_as_it_was(pair, shape):
    maker, taker = pair
    array = np.arange(np.prod(shape, dtype=int), dtype="int32").reshape(shape)
    with compiled(chain(maker.put, taker.describe)) as graph:
        on_device, _name, found = result(graph, array)
    assert on_device
    np.testing.assert_array_equal(found, array, strict=True)


VIEWS = {"transposed": lambda array: array.T, "gaps": lambda array: array[:, ::2], "offset": lambda array: array[1:]}


@pytest.mark.parametrize("how", VIEWS)
def test_views_that_are_not_in_order_arrive_as_they_look(pair, how):
    maker, taker = pair
    array = np.arange(60, dtype="float32").reshape(6, 10)
    with InputNode() as value:
        root = taker.describe.bind(maker.viewed.bind(value, how))
    with compiled(root) as graph:
        _on_device, _name, found = result(graph, array)
    np.testing.assert_array_equal(found, VIEWS[how](array), strict=True)


def test_shapes_may_change_from_message_to_message(pair):
    maker, taker = pair
    sizes = [1 + (number * 2654435761) % 100_000 for number in range(60)]
    with compiled(chain(maker.sized, taker.ends)) as graph:
        for first in range(0, 60, 6):
            part = sizes[first : first + 6]
            assert results(graph, part) == [(size, size, size) for size in part]


# ------------------------------------------------------------------------------------------ whose memory
def test_tensors_that_are_held_are_not_written_over(pair):
    maker, taker = pair
    with compiled(chain(maker.full, taker.hold)) as graph:
        for number in range(100):  # more than an edge lends
            result(graph, number)
        assert mray.get(taker.held_values.remote()) == list(range(100))
        mray.get(taker.let_go.remote())
        for number in range(100, 110):
            result(graph, number)
        assert mray.get(taker.held_values.remote()) == list(range(100, 110))


def test_what_is_held_outlives_the_graph(pair):
    maker, taker = pair
    with compiled(chain(maker.full, taker.hold)) as graph:
        for number in range(5):
            result(graph, number)
    with compiled(chain(maker.full, taker.ends)) as graph:
        results(graph, range(5))
    assert mray.get(taker.held_values.remote()) == list(range(5))


def test_a_consumer_that_writes_to_its_tensor_changes_nobody_elses(pair):
    maker, taker = pair
    with InputNode() as value:
        root = taker.write.bind(maker.keep.bind(value), 77)
    with compiled(root) as graph:
        for number in range(5):
            assert result(graph, number) == [77]
        assert count(graph) == 5
    assert mray.get(maker.kept_values.remote()) == list(range(5))


def test_a_producer_may_write_over_what_it_has_returned(pair):
    maker, taker = pair
    with compiled(chain(maker.reuse, taker.ends)) as graph:
        for _ in range(3):
            assert results(graph, range(8)) == [(1 << 16, number, number) for number in range(8)]


def test_a_driver_may_write_over_what_it_has_sent(actor, work):
    taker = actor(Taker)
    buffer = work.full((1 << 16,), 0)
    with compiled(chain(taker.ends)) as graph:
        refs = []
        for number in range(8):
            buffer.fill_(number)
            refs.append(graph.execute(buffer))
        assert [mray.get(ref, timeout=PATIENCE) for ref in refs] == [(1 << 16, number, number) for number in range(8)]


# -------------------------------------------------------------------------------------------------- order
def test_a_late_kernel_delays_its_readers_stream_and_nobody_on_the_host(pair):
    maker, taker = pair
    with compiled(chain(maker.late, taker.queue)) as graph:
        early = [result(graph, number) for number in range(3)]
        assert True in early, "the consumer waited for the producer's kernel"
        assert mray.get(taker.result_value.remote()) == [3]


def test_late_kernels_are_read_in_order(pair):
    maker, taker = pair
    with compiled(chain(maker.late, taker.ends)) as graph:
        assert results(graph, range(4)) == [(1 << 16, number, number) for number in range(4)]


def test_memory_is_not_used_again_before_a_late_kernel_has_read_it(pair):
    maker, taker = pair
    for make in (maker.reuse, maker.full):
        mray.get(taker.let_go.remote())
        with compiled(chain(make, taker.read_late)) as graph:
            for number in range(5):
                result(graph, number)
            assert mray.get(taker.held_values.remote()) == list(range(5))


def test_methods_may_work_on_streams_of_their_own(pair):
    maker, taker = pair
    with compiled(chain(maker.on_side_stream, taker.on_side_stream)) as graph:
        assert results(graph, range(6)) == [number + 1 for number in range(6)]


def test_static_shapes_arrive_at_a_few_addresses_again_and_again(pair):
    maker, taker = pair
    in_flight = 3
    with InputNode() as value:
        made = maker.reuse.bind(value).with_tensor_transport(_static_shape=True)
        root = taker.address.bind(made)
    with compiled(root, _max_inflight_executions=in_flight) as graph:
        found = [result for _ in range(10) for result in results(graph, range(in_flight))]
    assert [number for _address, number in found] == list(range(in_flight)) * 10
    assert len({address for address, _number in found}) <= in_flight + 1


# ------------------------------------------------------------------------------------------- driver, hints
def test_the_driver_sends_and_gets_tensors_of_the_device(actor, work):
    first, second = actor(Taker), actor(Taker)
    with compiled(chain(first.add, second.add)) as graph:
        for number in range(10):
            found = result(graph, work.full((50,), number))
            assert work.is_on_device(found)
            assert work.get(found).tolist() == [number + 2] * 50
            del found


def test_results_that_the_driver_holds_are_not_written_over(actor, work):
    maker = actor(Maker)
    with compiled(chain(maker.full)) as graph:
        held = [result(graph, number) for number in range(20)]
        assert [int(work.get(tensor)[0]) for tensor in held] == list(range(20))
        del held


def test_a_hint_brings_tensors_to_the_host(pair):
    maker, taker = pair
    with InputNode() as value:
        root = taker.describe.bind(maker.full.bind(value).with_tensor_transport(device="cpu"))
    with compiled(root) as graph:
        for number in range(3):
            on_device, _name, found = result(graph, number)
            assert not on_device
            assert found.tolist() == [number] * 100


def test_an_error_travels_instead_of_a_tensor(pair):
    maker, taker = pair
    with compiled(chain(maker.fail, taker.ends)) as graph, pytest.raises(ValueError, match="no tensor 4"):
        result(graph, 4)


# ------------------------------------------------------------------------------------------------- deaths
def test_the_death_of_the_producer_is_told_and_leaves_the_consumer_whole(actor):
    maker, taker = actor(Maker), actor(Taker)
    with compiled(chain(maker.full, taker.hold)) as graph:
        for number in range(4):
            result(graph, number)
        assert mray.get(taker.held_values.remote()) == list(range(4))
        maker.die.remote()
        with pytest.raises(ActorDiedError):
            for number in range(1000):
                result(graph, number)
    assert mray.get(taker.held_values.remote())[:4] == list(range(4))
    other = actor(Maker)
    with compiled(chain(other.full, taker.ends)) as graph:
        assert results(graph, range(5)) == [(100, number, number) for number in range(5)]


def test_the_death_of_the_consumer_is_told_and_leaves_the_producer_whole(actor):
    maker, taker = actor(Maker), actor(Taker)
    with compiled(chain(maker.keep, taker.hold)) as graph:
        for number in range(4):
            result(graph, number)
        taker.die.remote()
        with pytest.raises(ActorDiedError):
            for number in range(1000):
                result(graph, number)
    assert mray.get(maker.kept_values.remote())[:4] == list(range(4))
    other = actor(Taker)
    with compiled(chain(maker.full, other.ends)) as graph:
        assert results(graph, range(5)) == [(100, number, number) for number in range(5)]


# ------------------------------------------------------------------------------------------------- memory
def test_graphs_that_come_and_go_leave_no_memory_of_the_device_behind(pair, eventually):
    maker, taker = pair

    def use() -> None:
        with compiled(chain(maker.reuse, taker.drop)) as graph:
            results(graph, range(8))

    for _ in range(3):
        use()
    before = mray.get(taker.free.remote())
    for _ in range(5):
        use()
    eventually(lambda: mray.get(taker.free.remote()) >= before - (2 << 20), what="the memory of graphs that were torn down")


def test_actors_that_are_killed_leave_no_memory_of_the_device_behind(actor, eventually):
    survivor = actor(Taker)
    free = []
    for number in range(4):
        maker = actor(Maker)
        graph = chain(maker.reuse, survivor.drop).experimental_compile()
        results(graph, range(3))
        mray.kill(maker)
        with pytest.raises(ActorDiedError):
            for _ in range(1000):
                result(graph, number)
        graph.teardown()
        del graph, maker
        if free:
            eventually(lambda: mray.get(survivor.free.remote()) >= free[0] - (2 << 20), what="the memory of an actor that was killed")
        else:
            mray.get(survivor.free.remote())
            eventually(lambda: _settles(survivor), what="free memory of the device to settle")
            free.append(mray.get(survivor.free.remote()))


def _settles(survivor: Any) -> bool:
    seen = {mray.get(survivor.free.remote()) for _ in range(20)}
    return len(seen) == 1
