"""Clients of MPS, without a process: whose workers they are, the names of their GPUs, the commands about them, and edges between them."""

from __future__ import annotations

import pytest

from mray._decide.scheduler.records import SHARED
from mray._device import libcuda, topology
from mray._device.cuda import find_platform
from mray._device.mps_control import terminations
from mray._graph.compiler.shared_gpus import edges_between_parts
from mray._ipc.discovery import Gpu
from tests.unit.fake_cuda import FakeCuda, FakeMachine
from tests.unit.graphs import make_graph
from tests.unit.test_scheduler import Stage


@pytest.mark.parametrize("mps", [False, True])
def test_a_worker_with_a_part_of_a_gpu_is_used_for_the_whole_only_where_it_is_no_client(mps: bool) -> None:
    stage = Stage({"CPU": 4}, [0, 1], mps=mps)
    stage.ask(GPU=0.5)
    [(_, lease, part, _, ids)] = stage.grants()
    assert ids == [0]
    assert stage.scheduler.workers.workers[part].gpus == ((0, SHARED) if mps else (0,))
    stage.give_back(lease)
    stage.ask(GPU=0.5)
    [(_, lease, again, _, _)] = stage.grants()
    assert again == part
    stage.give_back(lease)
    stage.ask(GPU=1)
    [(_, lease, whole, _, ids)] = stage.grants()
    assert ids == [0]
    assert (whole == part) is not mps
    stage.give_back(lease)
    stage.ask(GPU=0.5)
    [(_, _, last, _, _)] = stage.grants()
    assert (last == whole) is not mps


def test_gpus_are_named_by_uuids_where_their_numbers_are_known_to_be_places_on_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRAY_NULL_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    there = [Gpu(0, "GPU-a", "H1"), Gpu(1, "GPU-b", "H1"), Gpu(2, "", "H1")]
    monkeypatch.setattr(topology.discovery, "machine_gpus", lambda: there)
    ids = [1, 0, 2, 7, "GPU-c", "MIG-d"]
    found = {1: "GPU-b", 0: "GPU-a", "GPU-c": "GPU-c", "MIG-d": "MIG-d"}
    assert topology.uuids(ids) == found
    there[1].model = "H2"
    assert topology.uuids(ids) == {"GPU-c": "GPU-c", "MIG-d": "MIG-d"}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert topology.uuids(ids) == found
    monkeypatch.setenv("MRAY_NULL_DEVICES", "2")
    assert topology.uuids([1, 0]) == {1: "GPU-null-1", 0: "GPU-null-0"}


def test_clients_are_terminated_on_each_server_that_there_is() -> None:
    assert terminations("17\n18\n", [3]) == ["terminate_client 17 3", "terminate_client 18 3"]
    assert terminations("17\n", [3, 4]) == ["terminate_client 17 3", "terminate_client 17 4"]
    assert terminations("", [3]) == terminations(None, [3]) == terminations("no servers", [3]) == []


@pytest.mark.parametrize(("attributes", "is_client"), [({}, None), ({libcuda.MPS_ENABLED: 0}, False), ({libcuda.MPS_ENABLED: 1}, True)])
def test_a_device_tells_whether_mps_shares_it_as_far_as_the_driver_does(attributes: dict[int, int], is_client: bool | None) -> None:
    machine = FakeMachine()
    machine.devices[0].attributes.update(attributes)
    platform = find_platform(FakeCuda(machine).lib)
    assert platform is not None
    assert platform.devices[0].is_mps_client() is is_client


def test_edges_between_parts_are_those_with_a_fraction_at_both_ends() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("c", (0, 1)), ("a", (2,)), ("b", (1,)))
    options = {"a": {"num_gpus": 0.5}, "b": {"num_gpus": 0.25}, "c": {"num_gpus": 1}, "d": {"num_gpus": None}}
    assert edges_between_parts(graph, options) == [("a", "b")]
    assert edges_between_parts(graph, {**options, "c": {"num_gpus": 0.1}}) == [("a", "b"), ("a", "c"), ("b", "c"), ("c", "a")]
    assert edges_between_parts(graph, {}) == []
