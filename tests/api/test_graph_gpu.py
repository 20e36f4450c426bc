"""Edges between GPUs, on pretended ones: which transport carries what, that values arrive, and that nothing of the device is left."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mray._channel.select import CUDA_IPC, NCCL, PINNED, SHM
from mray._common.log import logger
from mray._device.exports import MOST_AHEAD
from mray._device.platform import forget_platform, platform
from mray._gpu.cuda_ipc import trim_pools
from mray.dag import output
from mray.testing import null
from mray.testing.null import NullPlatform
from mray.testing.null_stream import CAPACITY

pytestmark = pytest.mark.only("mray")

SCOPE = f"test-graph-gpu-{os.getpid()}"
#: Whether the driver sees devices decides by which transport it is served.
DEVICES = f"8,scope={SCOPE}"


@pytest.fixture(scope="module", autouse=True)
def _pretended_devices():
    before = os.environ.get("MRAY_NULL_DEVICES")
    os.environ["MRAY_NULL_DEVICES"] = DEVICES
    forget_platform()
    yield
    if before is None:
        del os.environ["MRAY_NULL_DEVICES"]
    else:
        os.environ["MRAY_NULL_DEVICES"] = before
    forget_platform()


@pytest.fixture
def _forgotten(ray, eventually):
    """Ends the session that tests share, and with it what this process has of its devices."""
    gc.collect()
    ray.shutdown()
    eventually(trim_pools)
    forget_platform()
    gc.collect()


@pytest.fixture
def fresh(_forgotten, fresh):
    return fresh


@pytest.fixture
def session(ray, init, monkeypatch, eventually):
    """Starts a session of a machine with these pretended devices; nothing of them is left in the end."""

    def begin(devices, num_gpus=4, **options):
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{devices},scope={SCOPE}")
        init(num_cpus=4, num_gpus=num_gpus, **options)

    yield begin
    gc.collect()
    ray.shutdown()
    eventually(trim_pools)
    monkeypatch.undo()
    forget_platform()


class Actor:
    """Makes arrays on its first device, and looks at what comes."""

    def __init__(self):
        self.kept = []

    def make(self, value):
        return null.full(1000, value)

    def fault_at(self, value):
        """A thousand of it; with 3 a kernel goes wrong after the method has returned."""
        array = null.full(1000, value) if isinstance(value, int) else value * 1
        if value == 3 if isinstance(value, int) else 3 in value.tolist():
            hold = null.hold()
            platform().devices[0].launch(0, lambda: 1 // 0)
            threading.Timer(0.2, hold.release).start()
        return array * 1

    def fill(self, value, keeps=False):
        array = output(1000)
        self.kept = [array[3:]] if keeps else []
        return array.fill_(value)

    def kept_set(self):
        return {element for array in self.kept for element in array.tolist()}

    def make_large(self, value):
        return null.full(1 << 20, value, dtype="uint8")

    def make_on(self, device):
        return null.full(10, device, device=device)

    def make_shape(self, size):
        return null.ones(size)

    def pair(self, value):
        return null.full(10, value), null.full(10, value + 1)

    def mixed(self, value):
        return {"array": null.full(10, value), "more": [null.full((2, 3), value + 1), np.arange(4), "text"], "number": value}

    def double(self, array):
        return array * 2

    def add(self, *arrays):
        total = arrays[0]
        for array in arrays[1:]:
            total = total + array
        return total

    def echo(self, value):
        return value

    def keep_and_return(self, value):
        self.kept.append(null.full(10, value))
        return self.kept[-1]

    def kept_sums(self):
        return [float(array.sum()) for array in self.kept]

    def look(self, value):
        return type(value).__name__, value.tolist() if hasattr(value, "tolist") else value

    def sum(self, *values):
        return [float(value.sum()) for value in values]

    def where(self, value):
        return type(value).__name__, getattr(value, "device", None)

    def fail_on(self, value, bad):
        if float(value.numpy()[0]) == bad:
            raise KeyError("this one")
        return value * 1

    def synchronizations(self):
        return platform().synchronizations

    def pid(self):
        return os.getpid()

    def die_when_asked(self):
        module = importlib.import_module("mray._gpu.gpus")
        module.offer = lambda *_arguments: os._exit(1)

    def is_looking(self):
        from mray._device import platform as module

        return os.getpid() in module._known

    def visible(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]

    def end(self, value):
        if value == "die":
            os._exit(1)
        return null.full(10, float(value))


@pytest.fixture
def actor(ray_session):
    """Makes actors with a fraction of a GPU, by default half of one."""

    def make(num_gpus=0.5):
        return ray_session.remote(num_cpus=0, num_gpus=num_gpus)(Actor).remote()

    return make


@pytest.fixture
def compiled():
    """Compiles graphs that are torn down at the end."""
    graphs = []

    def compile_graph(dag, **options):
        graphs.append(dag.experimental_compile(**options))
        return graphs[-1]

    yield compile_graph
    while graphs:
        graphs.pop().teardown()


def transports(graph):
    """(writer's method or "input", number of readers) -> transport."""
    steps = graph._plan.graph.steps
    return {
        (steps[channel.source.step].method if channel.source.step >= 0 else "input", *_readers(graph, channel)): channel.transport
        for channel in graph._plan.channels
    }


def _readers(graph, channel):
    names = {"": "driver", **{step.actor: step.method for step in reversed(graph._plan.graph.steps)}}
    return tuple(names[reader] for reader in channel.readers)


def used_bytes():
    """Of all processes on all devices, but for what this one only keeps for its next arrays."""
    return sum(total - free for free, total in (device.memory() for device in platform().devices))


# --------------------------------------------------------------------------------------------- an idle driver
@pytest.mark.parametrize("cut_off", ["", ",ipc=0", ",words=0"], ids=["reads", "no memory", "no words"])
def test_a_driver_that_had_not_used_its_gpu_tries_when_tensors_come(ray, session, compiled, monkeypatch, cut_off):
    monkeypatch.setattr(NullPlatform, "is_in_use", lambda _self: False)
    said = []
    monkeypatch.setattr(logger, "warning", lambda text, *words: said.append(text % words))
    session(f"1{cut_off}", num_gpus=1)
    environment = {"env_vars": {"MRAY_NULL_DEVICES": f"1,scope={SCOPE}"}}
    a = ray.remote(num_cpus=0, num_gpus=0.5, runtime_env=environment)(Actor).remote()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.make.bind(inp))
    assert transports(graph)["make", "driver"] == CUDA_IPC
    for number in range(6):
        array = ray.get(graph.execute(number))
        assert isinstance(array, null.NullArray)
        assert set(array.tolist()) == {number}
        del array
    (edge,) = [each for each in graph.statistics()["channels"].values() if each.get("device_refused", 0)]
    assert (edge["device_refused"], edge["device_unopened"]) == ((6, 1) if cut_off else (2, 0))
    assert ["make to the driver carries tensors through host memory" in each for each in said] == [True] * bool(cut_off)
    graph.teardown()


# --------------------------------------------------------------------------------------------- selection
def test_a_reader_on_the_same_gpu_reads_the_one_copy_there_is(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.make.bind(inp)))
    assert transports(graph)["make", "sum"] == CUDA_IPC
    for number in range(10):
        assert ray.get(graph.execute(number)) == [1000.0 * number]
    counters = next(each for name, each in graph.statistics()["channels"].items() if name.startswith("make"))
    assert (counters["written"], counters["device_copied"]) == (10, 10)


def test_actors_on_gpus_that_reach_each_other_use_the_same_way(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(1), actor(1)
    with ray.dag.InputNode() as inp:
        graph = compiled(b.look.bind(a.make_on.bind(inp)))
    assert transports(graph)["make_on", "look"] == CUDA_IPC
    assert ray.get(graph.execute(0)) == ("NullArray", [0.0] * 10)


def test_a_graph_without_gpus_asks_nobody_and_goes_through_shared_memory(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(0), actor(0)
    forget_platform()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.echo.bind(inp)))
    assert set(transports(graph).values()) == {SHM}
    assert ray.get(graph.execute(5)) == 5
    assert not ray.get(a.is_looking.remote())
    assert not Actor.is_looking(None)


def test_one_value_goes_to_each_of_its_readers_as_it_can(ray_session, actor, compiled):
    """To an actor without GPUs through the host, to the others not; the driver gets arrays on its device."""
    ray = ray_session
    a, b, plain = actor(), actor(), actor(0)
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp)
        graph = compiled(ray.dag.MultiOutputNode([made, b.double.bind(made), plain.where.bind(made), b.sum.bind(made)]))
    found = transports(graph)
    assert found["make", "double", "driver"] == CUDA_IPC or found["make", "driver", "double"] == CUDA_IPC
    assert found["make", "where"] == SHM
    assert found["input", "make"] == CUDA_IPC
    for number in range(5):
        made, doubled, seen, sums = ray.get(graph.execute(number))
        assert (made.tolist(), doubled.tolist()) == ([number] * 1000, [2 * number] * 1000)
        assert sums == [1000.0 * number]
        assert seen[0] == "NullArray"
    names = [name for name in graph.statistics()["channels"] if name.startswith("make")]
    assert len(names) == 2
    assert all(" to " in name for name in names)


def test_input_goes_to_several_kinds_of_actors(ray_session, actor, compiled):
    ray = ray_session
    a, plain = actor(), actor(0)
    with ray.dag.InputNode() as inp:
        graph = compiled(ray.dag.MultiOutputNode([a.sum.bind(inp), plain.where.bind(inp), inp]))
    assert (transports(graph)["input", "sum"], transports(graph)["input", "where", "driver"]) == (CUDA_IPC, SHM)
    for number in range(3):
        sums, seen, back = ray.get(graph.execute(null.full(8, number)))
        assert (sums, seen[0], back.tolist()) == ([8.0 * number], "NullArray", [number] * 8)
    assert ray.get(graph.execute(np.ones(3)))[0] == [3.0]


def test_the_driver_is_both_ends(ray_session, actor, compiled):
    ray = ray_session
    a = actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(a.double.bind(inp))
    assert set(transports(graph).values()) == {CUDA_IPC}
    kept = [ray.get(graph.execute(null.full(100, number))) for number in range(20)]
    assert [float(array.sum()) for array in kept] == [200.0 * number for number in range(20)]
    assert graph._input.writer.statistics()["device_copied"] == 20


def test_a_session_of_gpus_that_cannot_reach_each_other(session, ray, compiled):
    session("2,peer=0", num_gpus=2)
    a, b = (ray.remote(num_cpus=0, num_gpus=1)(Actor).remote() for _ in range(2))
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.make.bind(inp)))
    assert transports(graph)["make", "sum"] == PINNED
    for number in range(5):
        assert ray.get(graph.execute(number)) == [1000.0 * number]
    graph.teardown()
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match=r"no peer access") as caught:
        b.sum.bind(a.make.bind(inp).with_tensor_transport("cuda_ipc")).experimental_compile()
    for part in ("Actor(", a._id.hex()[:8], b._id.hex()[:8], "GPU-null-0", "GPU-null-1", 'transport="auto" would work'):
        assert part in str(caught.value)


# --------------------------------------------------------------------------------------------- IPC that does not work
@pytest.fixture
def cut_off(session, ray):
    """Makes two actors on one GPU, of which the second cannot open memory (or events, or ...) of others."""
    session("1", num_gpus=1)

    def make(*lacks, reader_first=False):
        devices = ",".join([f"1,scope={SCOPE}", *(f"{lack}=0" for lack in lacks)])
        environments = [{}, {"runtime_env": {"env_vars": {"MRAY_NULL_DEVICES": devices}}}]
        return [ray.remote(num_cpus=0, num_gpus=0.3, **options)(Actor).remote() for options in environments]

    return make


@pytest.mark.parametrize(
    ("lacks", "transport", "back", "words"),
    [("ipc", PINNED, CUDA_IPC, "through pinned host memory"), ("words", SHM, SHM, "host memory")],
)
def test_a_pair_without_ipc_goes_the_next_way_with_one_warning(cut_off, ray, compiled, lacks, transport, back, words):
    a, b = cut_off(lacks)
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp)
        root = ray.dag.MultiOutputNode([b.sum.bind(made), b.where.bind(made), a.sum.bind(b.make_large.bind(inp))])
    with pytest.warns(RuntimeWarning, match="cannot open") as warned:
        graph = compiled(root)
    told = [str(each.message) for each in warned if a._id.hex()[:8] in str(each.message)]
    pids = [ray.get(member.pid.remote()) for member in (a, b)]
    # The first actor opens the memory that the second has; whoever has no stream memory operations waits for nobody, and nobody for it.
    assert len(told) == (2 if lacks == "words" else 1)
    for part in (
        words,
        *(f"(pid {pid})" for pid in pids),
        "no stream memory operations" if lacks == "words" else "this pretended device has no IPC",
        "timelines" if lacks == "words" else "memory",
    ):
        assert part in told[0]
    found = transports(graph)
    assert (found["make", "sum"], found["make_large", "make"]) == (transport, back)
    for number in range(3):
        assert ray.get(graph.execute(number))[::2] == [[1000.0 * number], [float(number << 20)]]


def test_a_way_that_was_asked_for_and_cannot_be_opened_is_refused_when_the_graph_is_compiled(cut_off, ray):
    a, b = cut_off("ipc")
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="cannot open what") as caught:
        b.sum.bind(a.make.bind(inp).with_tensor_transport("cuda_ipc")).experimental_compile()
    assert "this pretended device has no IPC" in str(caught.value)


def test_a_death_while_pairs_are_tried_is_told(cut_off, ray):
    a, b = cut_off("ipc")
    ray.get(a.die_when_asked.remote())
    with ray.dag.InputNode() as inp, pytest.raises(ray.exceptions.ActorDiedError):
        b.sum.bind(a.make.bind(inp)).experimental_compile()


def test_what_was_tried_holds_no_memory(session, ray, compiled, eventually):
    session("1", num_gpus=1)
    a, b = (ray.remote(num_cpus=0, num_gpus=0.3)(Actor).remote() for _ in range(2))
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.make.bind(inp)))
    assert transports(graph)["make", "sum"] == CUDA_IPC
    assert used_bytes() == 0


# -------------------------------------------------------------------------------------------------- NCCL
@pytest.fixture
def apart(session, ray):
    """Makes actors on GPUs of their own, which do not reach each other."""
    session("4,peer=0")
    return lambda count: [ray.remote(num_cpus=0, num_gpus=1)(Actor).remote() for _ in range(count)]


@pytest.mark.parametrize("overlap", [False, True])
def test_edges_over_nccl(apart, ray, compiled, overlap):
    a, b, c = apart(3)
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp).with_tensor_transport("nccl")
        mixed = c.echo.bind(a.mixed.bind(inp).with_tensor_transport())
        own = b.double.bind(b.make.bind(inp))
        graph = compiled(ray.dag.MultiOutputNode([b.add.bind(own, made), mixed]), _overlap_gpu_communication=overlap)
    found = transports(graph)
    assert (found["make", "make"], found["mixed", "echo"]) == (NCCL, NCCL)
    assert len(graph._plan.groups) == 1
    for number in range(6):
        total, back = ray.get(graph.execute(number))
        assert set(total.tolist()) == {3.0 * number}
        assert (back["array"].tolist(), back["more"][1].tolist(), back["number"]) == ([number] * 10, [0, 1, 2, 3], number)


def test_ranks_share_a_gpu_where_nccl_can_and_is_told_so(session, ray, compiled, monkeypatch):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    monkeypatch.setenv("MRAY_NULL_NCCL_VERSION", "23000")
    session("1", num_gpus=1)
    a, b = (ray.remote(num_cpus=0, num_gpus=0.5)(Actor).remote() for _ in range(2))
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.make.bind(inp).with_tensor_transport("nccl")))
    assert transports(graph)["make", "sum"] == NCCL
    assert [ray.get(graph.execute(number)) for number in range(4)] == [[1000.0 * number] for number in range(4)]


@pytest.mark.parametrize("overlap", [False, True])
def test_collectives_over_nccl(apart, ray, compiled, overlap):
    collective = importlib.import_module("mray.experimental.collective")
    actors = apart(3)
    with ray.dag.InputNode() as inp:
        summed = collective.allreduce.bind([member.make.bind(inp) for member in actors], transport="nccl")
        doubled = actors[0].double.bind(summed[0]).with_tensor_transport("nccl")
        outputs = [actors[2].add.bind(summed[2], doubled), summed[1]]
        graph = compiled(ray.dag.MultiOutputNode(outputs), _overlap_gpu_communication=overlap)
    for number in range(5):
        last, second = ray.get(graph.execute(number))
        assert (set(last.tolist()), set(second.tolist())) == ({9.0 * number}, {3.0 * number})


def test_an_error_before_a_collective_over_nccl_ends_the_graph_and_hangs_nobody(apart, ray):
    collective = importlib.import_module("mray.experimental.collective")
    a, b = apart(2)
    with ray.dag.InputNode() as inp:
        parts = [a.fail_on.bind(a.make.bind(inp), 3), b.make.bind(inp)]
        summed = collective.allreduce.bind(parts, transport="nccl")
        graph = ray.dag.MultiOutputNode([a.sum.bind(summed[0]), b.sum.bind(summed[1])]).experimental_compile()
    assert ray.get(graph.execute(1)) == [[2000.0]] * 2
    with pytest.raises((KeyError, ray.exceptions.RayChannelError)):
        ray.get(graph.execute(3))
    graph.teardown()
    assert ray.get(b.look.remote(1)) == ("int", 1)


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reducescatter"])
def test_collectives_without_a_communicator_go_along_the_edges(ray_session, actor, compiled, name):
    ray = ray_session
    collective = importlib.import_module("mray.experimental.collective")
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        results = getattr(collective, name).bind([a.make.bind(inp), b.double.bind(b.make.bind(inp))])
        graph = compiled(ray.dag.MultiOutputNode([a.echo.bind(results[0]), b.echo.bind(results[1])]))
    assert CUDA_IPC in transports(graph).values()
    wanted = {"allreduce": [6.0] * 1000, "allgather": [2.0] * 1000 + [4.0] * 1000, "reducescatter": [6.0] * 500}[name]
    for _ in range(3):
        assert [result.tolist() for result in ray.get(graph.execute(2))] == [wanted] * 2


def test_a_collective_over_nccl_on_one_gpu_is_refused(session, ray):
    collective = importlib.import_module("mray.experimental.collective")
    session("1", num_gpus=1)
    a, b = (ray.remote(num_cpus=0, num_gpus=0.5)(Actor).remote() for _ in range(2))
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="share GPU 0 .* Leave the transport out"):
        ray.dag.MultiOutputNode(collective.allreduce.bind([a.make.bind(inp), b.make.bind(inp)], transport="nccl")).experimental_compile()


# ---------------------------------------------------------------------------------------------- refusals
def test_nccl_on_one_gpu_is_refused_before_anything_runs(ray_session, actor):
    ray = ray_session
    by_gpu = {}
    for member in [actor() for _ in range(3)]:  # of a session with two GPUs
        by_gpu.setdefault(ray.get(member.visible.remote()), []).append(member)
    a, b, *_rest = max(by_gpu.values(), key=len)
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="share GPU 0") as caught:
        b.sum.bind(a.make.bind(inp).with_tensor_transport("nccl")).experimental_compile()
    for part in (f"Actor({a._id.hex()[:8]})", f"Actor({b._id.hex()[:8]})", "GPU-null-", 'transport="auto" would work: it goes by CUDA IPC'):
        assert part in str(caught.value)
    assert ray.get(a.sum.remote(np.ones(3))) == [3.0]


def test_a_device_that_an_actor_lacks_is_refused(ray_session, actor, monkeypatch):
    """An actor without num_gpus sees all devices, so it takes part when it is asked to; one that is shown none cannot."""
    ray = ray_session
    a = actor()
    blind = ray.remote(num_cpus=0, runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": ""}})(Actor).remote()
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="does not have an accelerator assigned by Ray: it sees no GPU"):
        blind.sum.bind(a.make.bind(inp).with_tensor_transport("cuda_ipc")).experimental_compile()
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="Driver cannot participate in the communicator group"):
        a.make.bind(inp).with_tensor_transport("nccl").experimental_compile()
    with ray.dag.InputNode() as inp, pytest.raises(ValueError, match="DAG inputs cannot be transferred via accelerator"):
        a.make.bind(inp.with_tensor_transport("nccl")).experimental_compile()


@pytest.mark.parametrize("transport", ["cuda_ipc", "accelerator"])
def test_actors_without_gpus_of_their_own_take_part_when_asked_to(ray_session, actor, compiled, transport):
    ray = ray_session
    a, b = actor(0), actor(0)
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp.with_tensor_transport(transport)).with_tensor_transport(transport)
        graph = compiled(b.double.bind(made).with_tensor_transport(transport))
    assert set(transports(graph).values()) == {CUDA_IPC}
    assert ray.get(graph.execute(3)).tolist() == [6.0] * 1000


@pytest.mark.parametrize("transport", ["shm", "cpu"])
def test_who_wants_host_memory_gets_it(ray_session, actor, compiled, transport):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.where.bind(a.make.bind(inp).with_tensor_transport(transport)))
    assert transports(graph)["make", "where"] == SHM
    assert ray.get(graph.execute(3)) == ("NullArray", 0)


# ------------------------------------------------------------------------------------------------ values
def test_a_chain_copies_once_for_each_edge(ray_session, actor, compiled):
    ray = ray_session
    members = [actor(0.25) for _ in range(4)]
    with ray.dag.InputNode() as inp:
        value = members[0].make_large.bind(inp)
        for member in members[1:]:
            value = member.double.bind(value)
        graph = compiled(value)
    for number in range(10):
        back = ray.get(graph.execute(number))
        assert back.shape == (1 << 20,)
        assert int(back[12345].item()) == 8 * number
        del back
    counters = graph.statistics()["channels"]
    assert sum(each["device_copied"] for each in counters.values()) == 40
    graph.teardown()


def test_fan_out_over_several_gpus_and_fan_in(ray_session, actor, compiled):
    ray = ray_session
    a, near, far = actor(), actor(), actor()
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp)
        parts = [near.double.bind(made), far.sum.bind(made), a.double.bind(made)]
        graph = compiled(ray.dag.MultiOutputNode([a.add.bind(parts[0], parts[2]), parts[1]]))
    for number in range(6):
        total, sums = ray.get(graph.execute(number))
        assert (total.tolist(), sums) == ([4 * number] * 1000, [1000.0 * number])


def test_nested_values_keep_what_is_no_array(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.mixed.bind(inp)))
    for number in range(5):
        back = ray.get(graph.execute(number))
        assert back["array"].tolist() == [number] * 10
        assert back["more"][0].tolist() == [[number + 1] * 3] * 2
        assert (back["more"][1].tolist(), back["more"][2], back["number"]) == ([0, 1, 2, 3], "text", number)


def test_several_returns_travel_each_by_itself(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        first, second = a.pair.options(num_returns=2).bind(inp)
        graph = compiled(ray.dag.MultiOutputNode([b.sum.bind(second), b.sum.bind(first)]))
    assert ray.get(graph.execute(3)) == [[40.0], [30.0]]


def test_each_array_keeps_its_device(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(0), actor(0)
    with ray.dag.InputNode() as inp:
        made = a.make_on.bind(inp).with_tensor_transport("cuda_ipc")
        graph = compiled(ray.dag.MultiOutputNode([b.where.bind(made), b.look.bind(made), made]))
    for device in (0, 5, 0, 7):
        where, seen, back = ray.get(graph.execute(device))
        assert (where, seen, back.device) == (("NullArray", device), ("NullArray", [float(device)] * 10), device)


def test_what_a_method_keeps_is_copied_and_stays_its_own(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.double.bind(a.keep_and_return.bind(inp)))
    results = [ray.get(graph.execute(number)) for number in range(5)]
    assert ray.get(a.kept_sums.remote()) == [10.0 * number for number in range(5)]
    assert [float(result.sum()) for result in results] == [20.0 * number for number in range(5)]
    counters = next(each for name, each in graph.statistics()["channels"].items() if name.startswith("keep"))
    assert counters["device_copied"] == 5


def channel_of(graph, name):
    return next(counters for label, counters in graph.statistics()["channels"].items() if name in label)


@pytest.mark.parametrize("reader", ["an actor", "the driver"])
def test_a_result_that_is_made_where_its_reader_looks_is_not_copied(ray_session, actor, compiled, reader):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        filled = a.fill.bind(inp)
        graph = compiled(b.sum.bind(filled) if reader == "an actor" else filled.with_tensor_transport("cuda_ipc"))
    for number in range(20):
        result = ray.get(graph.execute(number))
        assert result == [1000.0 * number] if reader == "an actor" else set(result.tolist()) == {number}
        del result
        for device in platform().devices:
            platform().synchronize(device, 0)  # so that its memory is free
    counters = channel_of(graph, "fill")
    assert counters["device_copied"] + counters["device_handed"] == 20
    assert counters["device_handed"] >= 10


def test_a_result_of_which_its_maker_keeps_a_view_is_copied(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.double.bind(a.fill.bind(inp[0], inp[1])))
    for number in range(12):
        assert set(ray.get(graph.execute(number, number % 3 == 0)).tolist()) == {2.0 * number}
        if number % 3 == 0:
            assert ray.get(a.kept_set.remote()) == {number}


def test_a_result_for_several_readers_and_its_own_actor_is_an_ordinary_one(ray_session, actor, compiled):
    ray = ray_session
    a, b, c = actor(0.25), actor(0.25), actor(0.25)
    with ray.dag.InputNode() as inp:
        filled = a.fill.bind(inp)
        graph = compiled(ray.dag.MultiOutputNode([b.sum.bind(filled), c.sum.bind(filled), a.sum.bind(filled)]))
    for number in range(6):
        assert ray.get(graph.execute(number)) == [[1000.0 * number]] * 3
    assert channel_of(graph, "fill")["device_handed"] == 0


def test_a_step_among_others_of_its_actor_fills_memory_of_its_edge(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(ray.dag.MultiOutputNode([b.sum.bind(a.fill.bind(inp)), b.sum.bind(a.make.bind(inp))]))
    for number in range(20):
        assert ray.get(graph.execute(number)) == [[1000.0 * number]] * 2
    assert channel_of(graph, "fill")["device_handed"] >= 10
    assert channel_of(graph, "make")["device_handed"] == 0


def test_a_value_that_its_own_actor_uses_too_is_copied(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp)
        graph = compiled(ray.dag.MultiOutputNode([b.sum.bind(made), a.sum.bind(made)]))
    for number in range(4):
        assert ray.get(graph.execute(number)) == [[1000.0 * number]] * 2


@pytest.mark.parametrize(("device", "kind"), [("cpu", "ndarray"), ("gpu", "NullArray"), ("cuda", "NullArray"), ("default", "NullArray")])
def test_values_arrive_on_the_device_of_the_hint(ray_session, actor, compiled, device, kind):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.where.bind(a.make.bind(inp).with_tensor_transport(device=device)))
    assert ray.get(graph.execute(1))[0] == kind


@pytest.mark.parametrize(("promise", "good", "bad"), [("_static_shape", 2, 3), ("_direct_return", 2, "text")])
def test_a_broken_promise_ends_the_graph(ray_session, actor, compiled, promise, good, bad):
    ray = ray_session
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        method = a.make_shape if promise == "_static_shape" else a.echo
        graph = compiled(b.look.bind(method.bind(inp).with_tensor_transport("cuda_ipc", **{promise: True})))
    values = [null.ones(good) if promise == "_direct_return" else good for _ in range(2)]
    for value in values:
        assert ray.get(graph.execute(value))[0] == "NullArray"
    with pytest.raises(ValueError, match="DAG will shut down"):
        ray.get(graph.execute(bad))
    with pytest.raises(ray.exceptions.RayChannelError):
        graph.execute(good)
    assert ray.get(a.look.remote(1)) == ("int", 1)


# ---------------------------------------------------------------------------------------------- failures
def test_an_exception_is_a_value_and_the_graph_goes_on(ray_session, actor, compiled):
    ray = ray_session
    a, b, c = actor(0.25), actor(0.25), actor(0.25)
    with ray.dag.InputNode() as inp:
        graph = compiled(c.sum.bind(b.fail_on.bind(a.make.bind(inp), 3)))
    for number in range(6):
        if number == 3:
            with pytest.raises(KeyError, match="this one"):
                ray.get(graph.execute(number))
        else:
            assert ray.get(graph.execute(number)) == [1000.0 * number]


def test_a_full_device_is_an_error_that_names_the_edge(session, ray, compiled):
    session("1,memory=33554432", num_gpus=1)
    a, b = (ray.remote(num_cpus=0, num_gpus=0.5)(Actor).remote() for _ in range(2))
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.echo.bind(inp.with_tensor_transport("shm"))))
    third = null.zeros(12 << 20, dtype="uint8")
    with pytest.raises(ray.exceptions.RayTaskError, match=r"DeviceOutOfMemoryError: the edge from Actor\(.*\).echo to Actor\(.*\).sum"):
        ray.get(graph.execute(third))
    del third
    assert ray.get(graph.execute(np.ones(3))) == [3.0]


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_the_death_of_an_actor_is_told_and_leaves_nothing_on_the_device(session, ray, eventually, who):
    session("2")
    actor = ray.remote(num_cpus=0, num_gpus=0.5)(Actor).remote
    a, b = actor(), actor()
    with ray.dag.InputNode() as inp:
        graph = (b.double.bind(a.end.bind(inp)) if who == "producer" else b.end.bind(a.echo.bind(inp))).experimental_compile()
    kept = ray.get(graph.execute(1 if who == "producer" else 2))
    assert float(kept.sum()) == 20.0
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(graph.execute("die"))
    with pytest.raises(ray.exceptions.ActorDiedError):
        graph.execute(1)
    assert float((kept + 1).sum()) == 30.0
    del kept
    graph.teardown()
    ray.kill(b if who == "producer" else a)
    eventually(lambda: trim_pools() and not used_bytes())


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_a_fault_in_a_kernel_ends_its_actor_and_all_hear_the_name_of_it(session, ray, eventually, who):
    session("2")
    actor = ray.remote(num_cpus=0, num_gpus=0.5, max_restarts=1)(Actor).remote
    a, b = actor(), actor()
    before = ray.get([a.pid.remote(), b.pid.remote()])
    with ray.dag.InputNode() as inp:
        first, second = (a.fault_at, b.sum) if who == "producer" else (a.make, b.fault_at)
        root = second.bind(first.bind(inp)) if who == "producer" else b.sum.bind(second.bind(first.bind(inp)))
    graph = root.experimental_compile()
    assert ray.get(graph.execute(2)) == [2000.0]
    with pytest.raises(ray.exceptions.RayError, match="CUDA_ERROR_LAUNCH_FAILED") as caught:
        ray.get(graph.execute(3), timeout=60)
    if who == "producer":  # a consumer may hear of it in its own next call first
        assert isinstance(caught.value, ray.exceptions.ActorDiedError)
    eventually(lambda: isinstance(caught_from(ray, graph), ray.exceptions.ActorDiedError))
    assert "CUDA_ERROR_LAUNCH_FAILED" in str(caught_from(ray, graph))
    graph.teardown()
    # It works again in another process, as it may.
    eventually(lambda: _pids(ray, a, b) not in (None, before))
    with ray.dag.InputNode() as inp:
        graph = b.sum.bind(a.make.bind(inp)).experimental_compile()
    assert ray.get(graph.execute(4)) == [4000.0]
    graph.teardown()


def test_a_fault_in_a_kernel_of_a_rank_ends_its_actor_with_the_name_of_it(apart, ray, eventually):
    a, b = apart(2)
    with ray.dag.InputNode() as inp:
        graph = b.sum.bind(a.fault_at.bind(inp).with_tensor_transport("nccl")).experimental_compile()
    assert ray.get(graph.execute(2)) == [2000.0]
    with pytest.raises(ray.exceptions.ActorDiedError, match="CUDA_ERROR_LAUNCH_FAILED"):
        ray.get(graph.execute(3), timeout=60)
    graph.teardown()


def caught_from(ray, graph):
    """The error of the next execution."""
    with pytest.raises(ray.exceptions.RayError) as caught:
        ray.get(graph.execute(4), timeout=60)
    return caught.value


def test_a_fault_in_the_drivers_kernel_ends_its_session_with_the_name_of_it():
    """In a process of its own, whose devices are broken for good."""
    program = """if True:
        import mray
        from mray._device.platform import platform
        from mray.testing import null

        mray.init(num_cpus=4, num_gpus=2, logging_level="ERROR")

        @mray.remote(num_cpus=0, num_gpus=0.5)
        class Actor:
            def sum(self, array):
                return float(array.sum())

        actor = Actor.remote()
        with mray.dag.InputNode() as inp:
            graph = actor.sum.bind(inp.with_tensor_transport("cuda_ipc")).experimental_compile()
        assert mray.get(graph.execute(null.ones(10))) == 10
        hold = null.hold()
        platform().devices[0].launch(0, lambda: 1 // 0)
        result = graph.execute(null.ones(10))
        hold.release()
        for wait in (lambda: mray.get(result), lambda: mray.get(actor.sum.remote(1))):
            try:
                wait()
            except mray.exceptions.RayError as error:
                print("CUDA_ERROR_LAUNCH_FAILED" in str(error))
        mray.shutdown()
        print("end")
    """
    environment = {**os.environ, "MRAY_NULL_DEVICES": f"2,scope={SCOPE}-broken"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["True", "True", "end"], run.stderr


def _pids(ray, *actors):
    try:
        return ray.get([actor.pid.remote() for actor in actors])
    except ray.exceptions.RayError:
        return None


class Held(Actor):
    """Work of it that others wait for is never done, and its thread waits within the driver for theirs."""

    def hold(self):
        self.kept.append(null.hold())

    def make_held(self, value):
        if value:
            self.hold()
        return null.full(1000, value)

    def fill_queues(self, folder, *_array):
        """Queue more than any hardware queue has room for; a file says that it has none, and another one that all was queued."""
        device = platform().devices[0]

        def tell():
            while not device.streams.is_clogged():
                time.sleep(0.005)
            Path(folder, "full").touch()

        threading.Thread(target=tell, daemon=True).start()
        for _ in range(2 * CAPACITY):
            device.launch(device.current_stream(), lambda: None)
        device.streams.current.synchronize()
        Path(folder, "done").touch()

    def use(self, folder, array):
        if folder:
            self.fill_queues(folder)
        return array.shape


@pytest.fixture(params=["one GPU", "two GPUs", "through the host"])
def one_queue(request, session, ray, monkeypatch):
    """Makes two actors whose devices have one hardware queue each."""
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    session({"one GPU": "1", "two GPUs": "2", "through the host": "2,peer=0"}[request.param])
    share = 0.5 if request.param == "one GPU" else 1
    return [ray.remote(num_cpus=0, num_gpus=share)(Held).remote() for _ in range(2)]


def test_a_reader_that_waits_within_the_driver_with_full_queues_goes_on_when_its_writer_is_killed(one_queue, ray, tmp_path, eventually):
    a, b = one_queue
    pid = ray.get(a.pid.remote())
    with ray.dag.InputNode() as inp:
        graph = b.use.bind(inp[1], a.make_held.bind(inp[0])).experimental_compile()
    for _ in range(3):
        assert ray.get(graph.execute(0, "")) == (1000,)
    ref = graph.execute(1, str(tmp_path))
    eventually(lambda: (tmp_path / "full").exists())
    assert not (tmp_path / "done").exists()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: (tmp_path / "done").exists())
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ref)
    graph.teardown()
    assert ray.get(b.make.remote(2)).tolist() == [2] * 1000


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_writer_that_waits_within_the_driver_with_full_queues_goes_on_when_its_reader_is_killed(
    one_queue, ray, tmp_path, eventually, is_closed
):
    a, b = one_queue
    pid = ray.get(b.pid.remote())
    with ray.dag.InputNode() as inp:
        graph = b.use.bind("", a.make.bind(inp)).experimental_compile()
    for number in range(3):
        assert ray.get(graph.execute(number)) == (1000,)
    ray.get(b.hold.remote())
    for number in range(2 * MOST_AHEAD):  # until it has no more blocks, and waits for the stream that is held
        assert ray.get(graph.execute(number)) == (1000,)
    if is_closed:
        graph.teardown()
    filling = a.fill_queues.remote(str(tmp_path))
    eventually(lambda: (tmp_path / "full").exists())
    assert not (tmp_path / "done").exists()
    os.kill(pid, signal.SIGKILL)
    ray.get(filling)
    assert (tmp_path / "done").exists()
    graph.teardown()
    assert ray.get(a.make.remote(2)).tolist() == [2] * 1000


# --------------------------------------------------------------------------------------------- resources
def test_teardown_gives_the_memory_of_edges_back(ray_session, actor, compiled, eventually):
    ray = ray_session
    a, b = actor(), actor()
    # Warm: what the processes keep for arrays of their own.
    ray.get([a.sum.remote(np.ones(3)), b.sum.remote(np.ones(3))])

    def run():
        with ray.dag.InputNode() as inp:
            graph = compiled(b.double.bind(a.keep_and_return.bind(inp)))
        for number in range(20):
            assert ray.get(graph.execute(number)).tolist() == [2 * number] * 10
        graph.teardown()

    run()
    after_one = used_bytes()
    for _ in range(5):
        run()

    def has_gone() -> bool:
        # On a busy machine some memory goes only when the next graph of the same actors ends.
        with ray.dag.InputNode() as inp:
            compiled(b.double.bind(a.keep_and_return.bind(inp))).teardown()
        # The memory of the actor itself is not counted: an array for each execution. (A region of an edge is hundreds of those.)
        return used_bytes() <= after_one + 6 * 20 * 4096

    eventually(has_gone)


def test_teardown_gives_the_memory_of_what_methods_returned_back(ray_session, actor, compiled, eventually):
    ray = ray_session
    a, b = actor(), actor()
    ray.get([a.sum.remote(np.ones(3)), b.sum.remote(np.ones(3))])
    before = used_bytes()
    with ray.dag.InputNode() as inp:
        graph = compiled(b.sum.bind(a.make_shape.bind(inp)))
    assert ray.get(graph.execute(4 << 20)) == [4 << 20]
    assert used_bytes() > before + (16 << 20)
    graph.teardown()
    eventually(lambda: used_bytes() < before + (4 << 20))


def test_events_that_a_killed_process_has_made_leave_no_names(ray_session, actor, eventually):
    ray = ray_session

    def make_name(_self):
        # As the driver does for an event that other processes can open.
        path = f"/dev/shm/cuda.shm.{os.getuid():x}.{os.getpid():x}.1"
        with open(path, "xb") as file:
            file.write(bytes(4096))
        return path

    a, b = actor(), actor()
    killed, living = ray.get([each.__ray_call__.remote(make_name) for each in (a, b)])
    ray.kill(a)
    eventually(lambda: not os.path.exists(killed))
    assert os.path.exists(living)
    ray.kill(b)
    eventually(lambda: not os.path.exists(living))


def test_cuda_counts_gpus_by_their_place_in_processes_of_a_session(ray_session, actor):
    order = "CUDA_DEVICE_ORDER" in os.environ or "CUDA_VISIBLE_DEVICES" in os.environ
    said = os.environ.get("CUDA_DEVICE_ORDER") if order else "PCI_BUS_ID"
    assert ray_session.get(actor().__ray_call__.remote(lambda _self: os.environ.get("CUDA_DEVICE_ORDER"))) == said


def test_graphs_are_compiled_again_over_the_same_actors(ray_session, actor, compiled):
    ray = ray_session
    a, b = actor(), actor()
    for turn in range(5):
        with ray.dag.InputNode() as inp:
            graph = compiled(b.sum.bind(a.make.bind(inp)))
        assert [ray.get(graph.execute(number + turn)) for number in range(3)] == [[1000.0 * (number + turn)] for number in range(3)]
        graph.teardown()


def test_nobody_waits_for_a_device(ray_session, actor, compiled):
    ray = ray_session
    a, b, c = actor(0.25), actor(0.25), actor(0.25)
    with ray.dag.InputNode() as inp:
        graph = compiled(c.double.bind(b.double.bind(a.make.bind(inp))))
    results = [ray.get(graph.execute(0))]
    before = ray.get([member.synchronizations.remote() for member in (a, b, c)]), platform().synchronizations
    results += [ray.get(graph.execute(number)) for number in range(1, 8)]
    assert (ray.get([member.synchronizations.remote() for member in (a, b, c)]), platform().synchronizations) == before
    assert [result.tolist()[0] for result in results] == [4.0 * number for number in range(8)]


def test_late_devices_change_no_result(session, ray, compiled):
    session("4,late=0.01", num_gpus=2)
    a, b, c = (ray.remote(num_cpus=0, num_gpus=0.5)(Actor).remote() for _ in range(3))
    with ray.dag.InputNode() as inp:
        made = a.make.bind(inp)
        graph = compiled(ray.dag.MultiOutputNode([c.add.bind(b.double.bind(made), made), a.double.bind(made)]))
    refs = [graph.execute(number) for number in range(8)]
    for number, ref in enumerate(refs):
        summed, doubled = ray.get(ref)
        assert set(summed.tolist()) == {3.0 * number}
        assert set(doubled.tolist()) == {2.0 * number}
        del summed, doubled
