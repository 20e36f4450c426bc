"""Tests of graphs whose tensors go between several GPUs, and their fixtures.

`tests/gpu/test_several_gpus.py` runs them on real GPUs, where there are as many, `tests/api/test_several_gpus_rows.py` on pretended ones.
They differ in the fixtures `work`, which is `bench.gpu_work`, and `count`, the number of GPUs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mray
from bench.gpu_work import Work
from mray._common import settings
from mray._device.platform import forget_platform
from mray.dag import InputNode, MultiOutputNode
from tests.gpu.actors import Maker, Taker
from tests.gpu.graph_rows import chain, compiled, result, results

#: How they may reach each other: the value of MRAY_PEER_ACCESS.
WAYS = {"peer access": "1", "through the host": "0"}


@pytest.fixture(scope="module", params=WAYS)
def session(request: pytest.FixtureRequest, work: Work, count: int, shared_session: Any) -> Iterator[None]:
    """A session with several GPUs."""
    mray.shutdown()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRAY_PEER_ACCESS", WAYS[request.param])
        mray.init(num_cpus=16, num_gpus=count, preload=list(work.preload), logging_level="ERROR")
        shared_session.running = True
        yield
        gc.collect()
        mray.shutdown()
        shared_session.running = False
    if work.name == "null":
        forget_platform()


@pytest.fixture
def gpus(session: None, count: int) -> Callable[..., Any]:
    """Makes actors with a GPU each."""

    def make(*classes: type) -> list[Any]:
        if len(classes) > count:
            pytest.skip(f"needs {len(classes)} GPUs")
        gc.collect()  # nodes of graphs refer to each other, and to actors
        return [mray.remote(num_gpus=1, num_cpus=0)(cls).remote() for cls in classes]

    return make


@pytest.mark.parametrize("overlap", [False, True])
def test_tensors_go_between_gpus_and_nobody_on_the_host_waits(gpus, overlap):
    maker, taker = gpus(Maker, Taker)
    with compiled(chain(maker.full, taker.queue), _overlap_gpu_communication=overlap) as graph:
        result(graph, 0)
        waits = mray.get([maker.synchronizations.remote(), taker.synchronizations.remote()])
        results(graph, range(1, 8))
        assert mray.get([maker.synchronizations.remote(), taker.synchronizations.remote()]) == waits
    assert mray.get(taker.result_value.remote()) == [8]


@pytest.mark.parametrize("overlap", [False, True])
def test_late_kernels_are_waited_for_across_gpus(gpus, overlap):
    maker, taker = gpus(Maker, Taker)
    with compiled(chain(maker.late, taker.ends), _overlap_gpu_communication=overlap) as graph:
        assert results(graph, range(3)) == [(1 << 16, number, number) for number in range(3)]


def test_memory_that_a_copy_went_to_is_not_used_again_before_a_late_kernel_has_read_it(gpus):
    maker, taker = gpus(Maker, Taker)
    with compiled(chain(maker.full, taker.read_late)) as graph:
        for number in range(6):
            result(graph, number)
        assert mray.get(taker.held_values.remote()) == list(range(6))


def test_large_tensors_of_changing_sizes_arrive_whole(gpus):
    maker, taker = gpus(Maker, Taker)
    sizes = [3, 5_000_000, 1_000_000, 7_000_001, 3]
    with compiled(chain(maker.sized, taker.ends)) as graph:
        assert results(graph, sizes) == [(size, size, size) for size in sizes]


def test_a_tensor_reaches_many_gpus_by_those_that_have_it_already(gpus):
    maker, *takers = gpus(Maker, Taker, Taker, Taker, Taker)
    with InputNode() as value:
        tensor = maker.reuse.bind(value)
        root = MultiOutputNode([taker.write.bind(tensor, -number) for number, taker in enumerate(takers)])
    with compiled(root) as graph:
        for number in range(5):
            assert result(graph, number) == [[0], [-1], [-2], [-3]]
        edges = [each for each in graph.statistics()["edges"].values() if ".reuse to " in each["name"]]
        assert [len(each["readers"]) for each in edges] == ([2, 2] if settings.has_peer_access() else [4])
        assert len({each["writer"] for each in edges}) == len(edges), "the maker for two of them, and one of these for the other two"
    with InputNode() as value:
        tensor = maker.late.bind(value)
        root = MultiOutputNode([taker.ends.bind(tensor) for taker in takers])
    with compiled(root, _overlap_gpu_communication=True) as graph:
        for number in range(2):
            assert result(graph, number) == [(1 << 16, number, number)] * 4


def test_an_error_reaches_those_behind_a_relay(gpus):
    maker, *takers = gpus(Maker, Taker, Taker, Taker)
    with InputNode() as value:
        tensor = maker.fail.bind(value)
        root = MultiOutputNode([taker.ends.bind(tensor) for taker in takers])
    with compiled(root) as graph, pytest.raises(ValueError, match="no tensor 7"):
        result(graph, 7)
