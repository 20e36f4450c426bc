"""Which CPUs lie where, and who is pinned to which; on folders that look like ``/sys``, without a process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.options import check_actor_options, check_task_options
from mray._decide.scheduler import events
from mray._decide.scheduler.affinity import AUTO, FAR, LINKED, NODE, ROOT, SWITCH, CpuLoads, Topology
from mray._decide.scheduler.resources import UNIT
from mray._decide.scheduler.scheduler import Scheduler
from mray._device import topology
from mray._device.nvml import ask_links
from mray._device.topology import bus_distance, cpus_near, gpu_distances, numa_nodes, parse_cpu_list, read_topology
from mray._ipc.discovery import Gpu, machine_gpus
from mray.testing.null_topology import shares


# -------------------------------------------------------------------------------------------- reading
@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A machine of two sockets, their CPUs interleaved as hyperthreads are, a node of memory only, and a GPU at the second socket."""
    for node, cpus in {0: "0-3,8-11", 1: "4-7,12-15", 2: ""}.items():
        folder = tmp_path / "devices/system/node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    (tmp_path / "devices/system/node/possible").write_text("0-2\n")
    slot = tmp_path / "bus/pci/devices/0000:c1:00.0"
    slot.mkdir(parents=True)
    (slot / "local_cpulist").write_text("4-7,12-15\n")
    return tmp_path


@pytest.mark.parametrize(("text", "cpus"), [("0", (0,)), ("0-2,8\n", (0, 1, 2, 8)), ("", ()), ("3,1-1,0", (0, 1, 3))])
def test_the_kernels_lists_of_cpus_are_read(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_numa_nodes_have_the_cpus_that_may_be_used(system):
    assert numa_nodes(range(16), str(system)) == [(0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)]
    assert numa_nodes([1, 2, 5], str(system)) == [(1, 2), (5,)]
    assert numa_nodes([1, 2], str(system)) == [(1, 2)]


def test_a_kernel_without_numa_is_one_node(tmp_path):
    assert numa_nodes([3, 1], str(tmp_path)) == [(1, 3)]


def test_a_gpu_is_near_the_cpus_of_its_slot(system):
    near = Gpu(0, "GPU-1", "NVIDIA X", "0000:C1:00.0")
    assert cpus_near(near, range(16), str(system)) == (4, 5, 6, 7, 12, 13, 14, 15)
    assert cpus_near(near, [0, 5], str(system)) == (5,)
    assert cpus_near(Gpu(0, "", "", "0000:01:00.0"), range(16), str(system)) == ()
    assert cpus_near(Gpu(0, "", ""), range(16), str(system)) == ()


def test_discovery_tells_the_slots_of_gpus(tmp_path):
    slot = tmp_path / "0000:c1:00.0"
    slot.mkdir()
    (slot / "information").write_text("Model: NVIDIA H200\nGPU UUID: GPU-1\n")
    (gpu,) = machine_gpus(str(tmp_path), str(tmp_path))
    assert gpu.address == "0000:c1:00.0"


@given(st.integers(1, 9), st.sets(st.integers(0, 40), min_size=1))
def test_pretended_gpus_have_shares_of_the_cpus(count, cpus):
    found = shares(count, sorted(cpus))
    assert len(found) == count
    assert all(share and set(share) <= cpus for share in found)
    if count <= len(cpus):
        assert sorted(itertools.chain(*found)) == sorted(cpus)


def test_the_topology_of_pretended_gpus(monkeypatch, system):
    monkeypatch.setenv("MRAY_NULL_DEVICES", "2")
    found = read_topology([0, 1], range(16), str(system))
    assert found.near == {0: tuple(range(8)), 1: tuple(range(8, 16))}
    assert len(found.nodes) == 2


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    """Two sockets: behind a switch at the first two GPUs, at another root of it a third, and a fourth at the second socket."""
    slots = {
        "0000:03:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0",
        "0000:04:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0",
        "0000:05:00.0": "pci0000:00/0000:00:02.0",
        "0000:43:00.0": "pci0000:40/0000:40:01.0",
        "0000:83:00.0": "pci0000:80/0000:80:01.0",
    }
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    for address, place in slots.items():
        folder = tmp_path / "devices" / place / address
        folder.mkdir(parents=True)
        (folder / "local_cpulist").write_text("4-7\n" if address == "0000:83:00.0" else "0-3\n")
        (tmp_path / "bus/pci/devices" / address).symlink_to(folder)
    return tmp_path


def test_gpus_are_as_far_apart_as_the_bus_says(bus):
    one, switch, root, socket, far = [
        Gpu(number, f"GPU-{number}", "", f"0000:{slot}:00.0") for number, slot in enumerate(["03", "04", "05", "43", "83"])
    ]
    assert [bus_distance(one, other, str(bus)) for other in (switch, root, socket, far)] == [SWITCH, ROOT, NODE, FAR]
    assert bus_distance(one, Gpu(9, "", ""), str(bus)) == FAR
    assert gpu_distances([one, switch, far], [("GPU-4", "GPU-0")], str(bus)) == {(0, 1): SWITCH, (0, 4): LINKED, (1, 4): FAR}


def test_nvlink_is_asked_for_by_a_process_of_its_own_and_only_where_it_matters(bus, monkeypatch):
    asked: list[list[str]] = []
    there = [Gpu(number, f"GPU-{number}", "", f"0000:{slot}:00.0") for number, slot in enumerate(["03", "43", "83"])]
    monkeypatch.setattr(topology.discovery, "machine_gpus", lambda: there)
    monkeypatch.setattr(topology, "ask_links", lambda uuids: asked.append(uuids) or [("GPU-0", "GPU-2")])
    two = read_topology([0, "GPU-2"], range(8), str(bus))
    assert asked == []
    assert two.apart(0, "GPU-2") == FAR
    three = read_topology(["GPU-2", 0, 1], range(8), str(bus))
    assert asked == [["GPU-2", "GPU-0", "GPU-1"]]
    assert (three.apart(0, "GPU-2"), three.apart("GPU-2", 0), three.apart(0, 1), three.apart(1, 1)) == (LINKED, LINKED, NODE, LINKED)
    assert read_topology(["MIG-GPU-0/1/0", "MIG-GPU-0/2/0"], range(8), str(bus)).apart("MIG-GPU-0/1/0", "MIG-GPU-0/2/0") == LINKED
    assert read_topology([7, 8], range(8), str(bus)).apart(7, 8) == FAR


def test_the_library_of_a_driver_that_is_not_there_tells_of_no_links():
    assert ask_links(["GPU-1", "GPU-2", "GPU-3"]) == []


def test_islands_of_pretended_gpus(monkeypatch, system):
    monkeypatch.setenv("MRAY_NULL_DEVICES", "4,island=2")
    found = read_topology(range(4), range(16), str(system))
    assert [found.apart(0, other) for other in range(4)] == [LINKED, LINKED, FAR, FAR]


# ------------------------------------------------------------------------------------------- choosing
TWO = Topology([(0, 1, 2, 3), (4, 5, 6, 7)], {0: (4, 5, 6, 7), "GPU-x": (0, 1)})


def test_with_a_gpu_all_cpus_near_it():
    loads = CpuLoads(lambda: TWO)
    assert loads.take(AUTO, [0], UNIT) == (4, 5, 6, 7)
    assert loads.take(AUTO, ["GPU-x", 0], UNIT) == (0, 1, 4, 5, 6, 7)
    assert loads.take(AUTO, [9], UNIT) == (2,)  # nothing is known of that one


def test_without_a_gpu_cpus_of_its_own_in_one_numa_node():
    loads = CpuLoads(lambda: TWO)
    taken = [loads.take(AUTO, [], 2 * UNIT) for _ in range(4)]
    assert sorted(itertools.chain(*taken)) == list(range(8))
    assert all(set(cpus) <= set(node) for cpus in taken for node in TWO.nodes if cpus[0] in node)
    loads.give(taken[2])
    assert loads.take(AUTO, [], 2 * UNIT) == taken[2]


def test_fractions_take_whole_cpus_and_nothing_takes_one():
    loads = CpuLoads(lambda: TWO)
    assert len(loads.take(AUTO, [], 0)) == 1
    assert len(loads.take(AUTO, [], UNIT // 2)) == 1
    assert len(loads.take(AUTO, [], UNIT * 3 // 2)) == 2


def test_what_no_node_holds_takes_from_several():
    loads = CpuLoads(lambda: TWO)
    assert len(set(loads.take(AUTO, [], 6 * UNIT))) == 6
    assert loads.take(AUTO, [], 20 * UNIT) == tuple(range(8))


def test_lists_are_taken_as_they_are_and_others_avoid_them():
    loads = CpuLoads(lambda: TWO)
    assert loads.take([0, 1, 2, 3], [], UNIT) == (0, 1, 2, 3)
    assert set(loads.take(AUTO, [], 2 * UNIT)) <= {4, 5, 6, 7}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10))))
def test_loads_balance(steps):
    loads = CpuLoads(lambda: TWO)
    held: list[tuple[int, ...]] = []
    for takes, units in steps:
        if takes or not held:
            held.append(loads.take(AUTO, [], units * UNIT))
        else:
            loads.give(held.pop(0))
        assert sum(loads.loads.values()) == sum(map(len, held))
        assert set(loads.loads) == set(itertools.chain(*held))


def test_leases_and_actors_are_told_their_cpus_and_give_them_back():
    numbers = itertools.count()
    scheduler = Scheduler({"CPU": 4}, [], (), lambda: f"w{next(numbers)}", lambda: TWO)
    told: list[tuple] = []

    def happen(event: events.Event) -> None:
        for instruction in scheduler.handle(event):
            if hasattr(instruction, "message"):
                told.append(instruction.message)
            elif hasattr(instruction, "environment"):
                happen(events.MemberJoined(instruction.process, 7))
        scheduler.validate()

    happen(events.MemberJoined("driver", 1))
    happen(events.LeaseRequested("driver", 1, {"resources": {"CPU": 2}, "affinity": "auto"}))
    happen(events.LeaseRequested("driver", 2, {"resources": {"CPU": 1}}))
    happen(events.ActorRequested("driver", 0, b"a" * 16, {"affinity": [5], "resources": {}}))
    grants = {message[1]: message for message in told if message[0] == m.LEASE_GRANT}
    assert grants[1][6:] == ([0, 1],)
    assert grants[2][6:] == ()
    (start,) = [message[2] for message in told if message[0] == m.ACTOR_START]
    assert start["cpus"] == [5]
    assert scheduler.cpu_loads.loads == {0: 1, 1: 1, 5: 1}
    happen(events.LeaseReturned("driver", grants[1][2]))
    process = scheduler.actors.records[b"a" * 16].worker.process
    happen(events.MemberDied(process, Cause(m.CAUSE_CRASH, "", 7, -9, None)))
    assert scheduler.cpu_loads.loads == {}


def test_actors_of_one_job_get_gpus_of_one_island():
    numbers = itertools.count()
    apart = {(one, other): LINKED if one % 2 == other % 2 else FAR for one, other in itertools.combinations(range(7), 2)}
    scheduler = Scheduler({"CPU": 4}, range(7), (), lambda: f"w{next(numbers)}", lambda: Topology([(0,)], {}, apart))
    given: dict[bytes, list[int]] = {}

    def happen(event: events.Event) -> None:
        for instruction in scheduler.handle(event):
            if hasattr(instruction, "message") and instruction.message[0] == m.ACTOR_START:
                given[instruction.message[1]] = instruction.message[2]["gpu_ids"]
            elif hasattr(instruction, "environment"):
                happen(events.MemberJoined(instruction.process, 7))
        scheduler.validate()

    happen(events.MemberJoined("one", 1, "job-1"))
    happen(events.MemberJoined("two", 2, "job-2"))
    for driver, actor, count in [("one", b"a", 2), ("two", b"b", 3), ("two", b"c", 1), ("one", b"d", 1)]:
        happen(events.ActorRequested(driver, 0, actor * 16, {"resources": {"GPU": count}}))
    assert list(given.values()) == [[1, 3], [0, 2, 4], [6], [5]]


# ------------------------------------------------------------------------------------------- options
@pytest.mark.parametrize("wrong", ["all", [], [-1], [0, 0], ["0"], [True], [1.0]])
def test_bad_lists_are_refused_where_they_are_written(wrong):
    text = "'cpu_affinity' only accepts None, 'auto' or a non-empty list"
    with pytest.raises(ValueError, match=text):
        check_task_options({"cpu_affinity": wrong}, is_generator=False)
    with pytest.raises(ValueError, match=text):
        check_actor_options({"cpu_affinity": wrong})


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="cpu_affinity"):
        check_task_options({"cpu_affinity": 3}, is_generator=False)


@pytest.mark.parametrize("right", [None, "auto", [0], [3, 1]])
def test_what_may_be_written(right):
    check_task_options({"cpu_affinity": right}, is_generator=False)
