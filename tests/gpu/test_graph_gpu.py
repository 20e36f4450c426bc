"""Graphs whose tensors stay on a real GPU: the tests of `tests/gpu/graph_rows.py`, and what only torch's CUDA tensors have."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import mray
from bench.gpu_work import CudaWork, Work
from mray.dag import InputNode

pytest.register_assert_rewrite("tests.gpu.graph_rows")  # before the import

from tests.gpu import graph_rows  # noqa: E402
from tests.gpu.actors import Maker, Taker  # noqa: E402
from tests.gpu.graph_rows import actor, chain, compiled, count, pair, result, results, session, shared  # noqa: E402
from tests.gpu.torch_actors import Captured, TorchMaker, TorchTaker  # noqa: E402

__all__ = ["actor", "pair", "session", "shared"]

# torch, cupy and NVML warn of what does not concern us.
pytestmark = pytest.mark.filterwarnings("default")

globals().update({name: test for name, test in vars(graph_rows).items() if name.startswith("test_")})


@pytest.fixture(scope="module")
def work() -> Iterator[Work]:
    pytest.importorskip("torch")
    yield CudaWork()
    gc.collect()


@pytest.fixture
def torch_pair(actor: Any) -> tuple[Any, Any]:
    return actor(TorchMaker), actor(TorchTaker)


# ------------------------------------------------------------------------------------------------- tensors
KINDS = (
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "channels_last", "expanded", "strided", "diagonal", "flipped",
    "conjugated", "negated", "zero_dim", "one_of_many", "parameter_data", "empty",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tensor_arrives_as_it_was(torch_pair, kind):
    maker, taker = torch_pair
    with InputNode() as value:
        root = taker.compare.bind(maker.make.bind(value), value)
    with compiled(root) as graph:
        for _ in range(3):
            assert result(graph, kind) == "equal"


def test_a_dense_memory_format_is_kept(torch_pair):
    maker, taker = torch_pair
    with InputNode() as value:
        root = taker.strides.bind(maker.make.bind(value))
    with compiled(root) as graph:
        assert result(graph, "channels_last") == mray.get(maker.strides_of.remote("channels_last"))


@pytest.mark.parametrize("kind", ["inference", "own_pool"])
def test_tensors_of_inference_mode_and_of_a_pool_of_the_users_travel(torch_pair, kind):
    maker, taker = torch_pair
    with InputNode() as value:
        root = taker.compare.bind(maker.make.bind(value), value)
    with compiled(root) as graph:
        assert result(graph, kind) == "equal"


# --------------------------------------------------------------------------------------------- CUDA graphs
def test_a_cuda_graph_is_replayed_over_inputs_at_fixed_addresses(actor):
    maker, captured = actor(TorchMaker), actor(Captured)
    with InputNode() as value:
        made = maker.reuse.bind(value).with_tensor_transport(_static_shape=True)
        root = captured.step.bind(made)
    in_flight = 2
    with compiled(root, _max_inflight_executions=in_flight) as graph:
        found = [value for _ in range(10) for value in results(graph, range(in_flight))]
    assert found == [2.0 * number + 1 for number in range(in_flight)] * 10
    captures, replays = mray.get(captured.counts.remote())
    assert captures + replays == 10 * in_flight
    assert 1 <= captures <= in_flight + 1


def test_a_cuda_graph_is_captured_in_a_method_whose_outputs_leave_the_actor(actor):
    captured, taker = actor(Captured), actor(Taker)
    with compiled(chain(captured.output, taker.ends)) as graph:
        for number in range(6):
            assert result(graph, number) == (64, number + 1, number + 1)


# ---------------------------------------------------------------------------------------------- allocators
@pytest.mark.parametrize("configuration", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_tensors_of_other_allocators_of_torch_travel_too(shared, monkeypatch, configuration):
    if mray.is_initialized():
        shared.stop()
    # Without `preload`: torch reads them when it is loaded.
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", configuration)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", configuration)
    with mray.init(num_cpus=4, num_gpus=1, logging_level="ERROR"):
        maker, taker = (mray.remote(num_gpus=0.5, num_cpus=0)(cls).remote() for cls in (TorchMaker, Taker))
        with compiled(chain(maker.full, taker.ends)) as graph:
            assert [result(graph, number) for number in range(8)] == [(100, number, number) for number in range(8)]
            assert count(graph) == 8
        assert mray.get(maker.allocator.remote()) == configuration
        del maker, taker, graph
        gc.collect()


# -------------------------------------------------------------------------------------------- several GPUs
def test_a_tensor_goes_from_gpu_to_gpu(shared, work):
    if work.torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if mray.is_initialized():
        shared.stop()
    with mray.init(num_cpus=4, num_gpus=2, preload=["torch"], logging_level="ERROR"):
        maker, taker = (mray.remote(num_gpus=1, num_cpus=0)(cls).remote() for cls in (Maker, Taker))
        with compiled(chain(maker.full, taker.describe)) as graph:
            for number in range(5):
                on_device, _name, found = result(graph, number)
                assert on_device
                assert found.tolist() == [number] * 100
        del maker, taker, graph
        gc.collect()
