"""Channels of graphs whose endpoints have devices: one for each transport, communicators for those of NCCL; and who is asked at all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mray._api.actor import make_handle
from mray._api.blueprint import ActorBlueprint
from mray._channel.base import Failed
from mray._channel.communicator_edge import EdgeRules
from mray._channel.fan_out import FanOutWriter
from mray._channel.select import CUDA_IPC, NCCL, PINNED, SHM
from mray._channel.site import Obstacle, Site, SiteGpu
from mray._common.settings import NullDevices
from mray._device.timelines import sweep_retired
from mray._gpu import gpus
from mray._gpu.checked_writer import CheckedWriter
from mray._gpu.trial import Offer, offer, try_offer, withdraw
from mray._graph import trials
from mray._graph.communicators import NcclGroup, nccl_groups
from mray._graph.compiler.compile import plan_graph
from mray._graph.compiler.deadlock import find_circle
from mray._graph.compiler.resolve import device_pairs, resolve
from mray._graph.compiler.schedule import schedule
from mray._graph.graph_messages import SITE
from mray._graph.plan import DRIVER, DevicePair, Graph, Source, Transfer
from mray._graph.sites import ask_sites, endpoints_to_ask, owners
from mray.testing import null
from tests.inproc import InprocWriter
from tests.unit.graphs import make_graph
from tests.unit.sites import actor, driver

SITES = {"a": actor("a", 0), "b": actor("b", 0), "c": actor("c", 1), "d": actor("d"), DRIVER: driver()}


def hinted(graph: Graph, *sources: int, transport: str = "auto") -> Graph:
    return replace(graph, transfers={Source(each): Transfer(transport) for each in sources})


# ------------------------------------------------------------------------------------------------ channels
def test_readers_that_need_different_transports_have_channels_of_their_own() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("c", (0,)), ("d", (0,)), ("b", (0,)), outputs=(0, 1, 2, 3, 4))
    found = {(channel.transport, channel.readers) for channel in resolve(graph, 4, SITES).channels if channel.source == Source(0)}
    assert found == {(CUDA_IPC, ("b",)), (PINNED, ("c",)), (SHM, ("d", DRIVER))}


def test_rings_lend_only_where_there_is_something_to_lend() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)))
    assert [bool(channel.layout.leases) for channel in resolve(graph, 4, SITES).channels] == [False, True, False]


def test_an_edge_is_called_by_its_ends() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("b", (0, 1)), outputs=(0, 2))
    names = {channel.name for channel in resolve(graph, 4, {**SITES, DRIVER: driver(0)}).channels}
    assert "the edge from the driver to a.m0" in names
    assert "the edge from a.m0 to b.m1 and the driver" in names


def test_a_refusal_reaches_who_compiles() -> None:
    graph = hinted(make_graph(("a", (-1,)), ("d", (0,))), 0, transport="cuda_ipc")
    with pytest.raises(ValueError, match="does not have an accelerator"):
        resolve(graph, 4, SITES)


# ------------------------------------------------------------------------------------------------- relays
def island(*gpus: int) -> dict[str, Site]:
    """Actors named by letters, on these GPUs, which all reach each other."""
    return {**{name: actor(name, gpu, reaches=set(gpus)) for name, gpu in zip("abcdefgh", gpus, strict=False)}, DRIVER: driver()}


def spread(readers: str) -> Graph:
    return make_graph(("a", (-1,)), *((reader, (0,)) for reader in readers), outputs=tuple(range(1, len(readers) + 1)))


def tree(graph: Graph, sites: dict[str, Site]) -> dict[str, str]:
    return {channel.writer: "".join(channel.readers) for channel in resolve(graph, 4, sites).channels if channel.source == Source(0)}


def test_actors_on_many_gpus_pass_on_what_they_read() -> None:
    assert tree(spread("bcdefgh"), island(*range(8))) == {"a": "bc", "b": "de", "c": "fg", "d": "h"}
    assert tree(spread("bcd"), island(*range(4))) == {"a": "bc", "b": "d"}


def test_two_read_from_the_writer_itself() -> None:
    assert tree(spread("bc"), island(*range(3))) == {"a": "bc"}


def test_actors_that_share_a_gpu_have_it_from_the_first_of_them() -> None:
    assert tree(spread("bcde"), island(0, 1, 1, 1, 0)) == {"a": "be", "b": "cd"}


def test_nobody_reads_from_an_actor_whose_gpu_it_does_not_reach() -> None:
    sites = {**island(*range(5)), "d": actor("d", 3, reaches=[0])}
    assert tree(spread("bcde"), sites) == {"a": "bcd", "b": "e"}


def test_a_relay_writes_right_after_it_has_read_and_before_it_reads_anything_else() -> None:
    graph = make_graph(("a", (-1,)), ("c", (-1,)), ("b", (1, 0)), ("c", (0,)), ("d", (0,)), outputs=(2, 3, 4))
    channels = resolve(graph, 4, island(*range(4))).channels
    operations = schedule(graph, channels)["b"]
    kinds = [(operation.kind, channels[operation.channel].source.step if operation.channel >= 0 else -1) for operation in operations]
    assert kinds == [("READ", 0), ("WRITE", 0), ("READ", 1), ("COMPUTE", -1), ("WRITE", 2)]


def test_there_are_no_relays_where_they_would_wait_for_those_they_serve() -> None:
    # b is the first to read from a, and would pass that on to d, whose own value it needs before.
    steps = ("a", (-1,)), ("b", (0,)), ("c", (0,)), ("d", (0,)), ("b", (3,))
    graph, sites = make_graph(*steps, outputs=(1, 2, 4), order=(0, 1, 0, 0, 0)), island(*range(4))
    channels = resolve(graph, 4, sites).channels
    assert find_circle(schedule(graph, channels), channels, graph.steps) is not None
    assert [channel.readers for channel in plan_graph(graph, 4, sites).channels if channel.source == Source(0)] == [("b", "c", "d")]


# --------------------------------------------------------------------------------------------------- NCCL
def test_edges_of_nccl_share_one_communicator() -> None:
    sites = {**SITES, "b": actor("b", 2)}
    graph = hinted(make_graph(("a", (-1,)), ("b", (0,)), ("c", (1,))), 0, 1)
    resolved = resolve(graph, 4, sites, made=3)
    assert resolved.groups == (("a", "b", "c"),)
    assert {channel.communicator for channel in resolved.channels if channel.transport == NCCL} == {3}


def test_edges_of_nccl_have_their_own_where_ranks_would_share_a_gpu() -> None:
    graph = hinted(make_graph(("a", (-1,)), ("c", (0,)), ("b", (-1,)), ("c", (2,)), outputs=(1, 3)), 0, 2)
    resolved = resolve(graph, 4, SITES)
    assert resolved.groups == (("a", "c"), ("b", "c"))
    assert [channel.communicator for channel in resolved.channels if channel.transport == NCCL] == [0, 1]


def test_readers_that_share_a_gpu_have_a_channel_of_nccl_each() -> None:
    graph = hinted(make_graph(("c", (-1,)), ("a", (0,)), ("b", (0,)), outputs=(1, 2)), 0)
    resolved = resolve(graph, 4, SITES)
    assert [channel.readers for channel in resolved.channels if channel.transport == NCCL] == [("a",), ("b",)]
    assert resolved.groups == (("c", "a"), ("c", "b"))


def test_the_communicator_of_a_collective_carries_edges_of_the_same_actors() -> None:
    graph = hinted(make_graph(("a", (-1,)), ("c", (0,))), 0)
    resolved = resolve(graph, 4, SITES, {frozenset("ac"): 7}, 9)
    assert resolved.groups == ()
    assert [channel.communicator for channel in resolved.channels] == [-1, 7, -1]


def test_members_of_a_collective_that_cannot_be_ranks_are_refused() -> None:
    handles = [SimpleNamespace(_id=b"a"), SimpleNamespace(_id=b"b")]
    assert nccl_groups([NcclGroup(["a", "c"], handles)], SITES) == {frozenset("ac"): 0}
    with pytest.raises(ValueError, match=r"a and b cannot have transport='nccl': a and b share GPU 0 .* by CUDA IPC"):
        nccl_groups([NcclGroup(["a", "b"], handles)], SITES)
    with pytest.raises(ValueError, match="tensors on the CPU are reduced in shared memory"):
        nccl_groups([NcclGroup(["d", "e"], handles)], SITES)


# ------------------------------------------------------------------------------------------------- sites
def handle(name: str, num_gpus: float = 0) -> Any:
    class Named:
        pass

    Named.__name__ = Named.__qualname__ = name
    return make_handle(ActorBlueprint.of(Named), name.encode(), None, {"num_gpus": num_gpus})


def test_nobody_is_asked_when_nobody_can_need_a_device() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)))
    assert owners({"a": handle("A"), "b": handle("B")}, {"function-0": {}}) == frozenset()
    assert endpoints_to_ask(graph, frozenset(), []) == frozenset()
    assert endpoints_to_ask(hinted(graph, 0), frozenset(), []) == frozenset()


def test_owners_and_ends_of_demanding_edges_are_asked_and_nobody_else() -> None:
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("c", (1,)))
    assert owners({"a": handle("A", 0.5), "b": handle("B")}, {"function-0": {"num_gpus": 1}}) == {"a", "function-0"}
    assert endpoints_to_ask(graph, frozenset("a"), []) == {"a", DRIVER}
    assert endpoints_to_ask(hinted(graph, 0, transport="cuda_ipc"), frozenset(), []) == {"a", "b", DRIVER}
    assert endpoints_to_ask(graph, frozenset(), [["b", "c"]]) == {"b", "c", DRIVER}


class Host:
    """Answers requests at once, as these processes would."""

    def __init__(self, looks: dict[str, Callable[[list[str]], Site]], own: Site) -> None:
        self.looks = looks
        self.gpus = lambda: SimpleNamespace(site=lambda known=(): own)
        self.asked: list[str] = []

    def actor_process(self, actor: str) -> str:
        return bytes.fromhex(actor).decode()

    def request(self, process: str, verb: str, payload: bytes) -> Any:
        assert verb == SITE
        self.asked.append(process)
        answer = pickle.dumps(self.looks[process](pickle.loads(payload)))
        return SimpleNamespace(ready=lambda: True, result=lambda: answer)

    def wait_for_answers(self, pendings: Mapping[str, Any]) -> None:
        assert all(pending.ready() for pending in pendings.values())


def seeing(number: int) -> Callable[[list[str]], Site]:
    """A process with one GPU that reaches every other one that it is told of."""
    own = f"GPU-{number}"
    return lambda known: Site("cuda", (SiteGpu(0, own, "H1", frozenset(known) - {own}),), pid=number)


def test_processes_tell_what_they_have_and_who_asks_puts_their_names_to_it() -> None:
    everything = tuple(SiteGpu(number, f"GPU-{number}", "H1") for number in range(2))
    host = Host({"A": seeing(0), "B": seeing(1)}, Site("cuda", everything, pid=9))
    sites = ask_sites(host, ["a", "b", DRIVER], frozenset("a"), {"a": handle("A"), "b": handle("B")})  # type: ignore[arg-type]
    assert sorted(host.asked) == ["A", "B"]
    assert (sites["a"].name, sites["a"].owns, sites["a"].is_driver) == ("A(a)", True, False)
    assert (sites[DRIVER].name, sites[DRIVER].owns, sites[DRIVER].is_driver) == ("the driver", False, True)
    # The driver does not know whom they reach; they do.
    assert [gpu.reaches for gpu in sites[DRIVER].gpus] == [{"GPU-1"}, {"GPU-0"}]


def test_devices_that_the_driver_does_not_see_are_asked_about_in_a_second_round() -> None:
    host = Host({"A": seeing(0), "B": seeing(1)}, Site(pid=9))
    sites = ask_sites(host, ["a", "b"], frozenset("ab"), {"a": handle("A"), "b": handle("B")})  # type: ignore[arg-type]
    assert sorted(host.asked) == ["A", "A", "B", "B"]
    assert sites["a"].reaches_all(sites["b"])


def test_a_process_without_devices_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "platform", lambda: None)
    found = gpus.Gpus(SimpleNamespace())  # type: ignore[arg-type]
    try:
        assert found.site() == Site(pid=os.getpid())
    finally:
        found.close()


# ------------------------------------------------------------------------------------------------- trials
def cut_off(reader: Site, writer: Site, *, of_timelines: bool) -> Site:
    return replace(reader, obstacles={writer.pid: Obstacle("no IPC here", of_timelines)})


@pytest.mark.parametrize(("of_timelines", "transport"), [(False, PINNED), (True, SHM)])
def test_an_obstacle_is_that_of_one_pair_in_one_direction(of_timelines: bool, transport: str) -> None:
    sites = {**SITES, "b": cut_off(SITES["b"], SITES["a"], of_timelines=of_timelines), "e": actor("e", 0)}
    graph = make_graph(("a", (-1,)), ("b", (0,)), ("e", (0,)), ("a", (1,)))
    found = {(channel.source.step, channel.readers): channel.transport for channel in resolve(graph, 4, sites).channels}
    assert (found[0, ("b",)], found[0, ("e",)], found[1, ("a",)]) == (transport, CUDA_IPC, CUDA_IPC)


def test_pairs_are_tried_once_and_those_of_hints_as_what_was_asked_for() -> None:
    graph = hinted(make_graph(("a", (-1,)), ("b", (0,)), ("a", (-1,)), ("b", (2,)), outputs=(1, 3)), 2, transport="cuda_ipc")
    assert device_pairs(graph, SITES) == [DevicePair("a", "b", CUDA_IPC, "cuda_ipc")]


def test_a_driver_that_does_not_use_its_device_is_tried_only_for_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def answering(_host: Any, verb: str, payloads: dict[str, bytes], _actors: Any) -> dict[str, bytes]:
        asked.extend((verb, endpoint) for endpoint in payloads)
        return {endpoint: pickle.dumps([{"offer": Offer(b"e", b"m"), "try": None}.get(verb)]) for endpoint in payloads}

    monkeypatch.setattr(trials, "_ask", answering)
    sites = {**SITES, DRIVER: replace(driver(0), is_idle=True)}
    plain = make_graph(("a", (-1,)))
    back, there = DevicePair("a", DRIVER, CUDA_IPC, "", is_late=True), DevicePair(DRIVER, "a", CUDA_IPC, "", is_late=True)
    assert set(device_pairs(plain, sites)) == {there, back}
    assert trials.try_pairs(None, device_pairs(plain, sites), sites, {}) == sites  # type: ignore[arg-type]
    assert asked == []
    with_hint = hinted(plain, 0, transport="auto")
    trials.try_pairs(None, device_pairs(with_hint, sites), sites, {})  # type: ignore[arg-type]
    assert asked == [("offer", "a"), ("try", DRIVER), ("withdraw", "a")]


@pytest.mark.parametrize(("is_idle", "hint", "proven"), [(True, False, False), (True, True, True), (False, False, True)])
def test_an_edge_that_was_left_out_of_the_trial_is_not_proven(is_idle: bool, hint: bool, proven: bool) -> None:
    sites = {**SITES, DRIVER: replace(driver(0), is_idle=is_idle)}
    graph = make_graph(("a", (-1,)), ("b", (0,)))
    found = resolve(hinted(graph, 1, transport="auto") if hint else graph, 4, sites).channels
    assert {channel.proven for channel in found if DRIVER in channel.readers} == {proven}
    assert {channel.proven for channel in found if DRIVER not in (channel.writer, *channel.readers)} == {True}


def test_a_full_device_is_no_obstacle() -> None:
    machine = null.NullPlatform(NullDevices(1, memory=4096, scope=f"full{os.getpid()}"))
    full = machine.devices[0]
    kept = full.allocate(4096)
    offered = offer(full, "me")
    assert (offered.memory, offered.reason) == (b"", "")
    assert try_offer(full, offered, with_memory=True) is None
    withdraw("me")
    withdraw("me")
    full.free(kept)
    sweep_retired()
    machine.close()


# ----------------------------------------------------------------------------------- writers around writers
def failure(error: BaseException) -> bytes:
    return str(error).encode()


def test_a_fan_out_writes_to_all_or_to_none() -> None:
    writers = [InprocWriter(1, 2), InprocWriter(1, 1)]
    readers = [writer.reader(0) for writer in writers]
    both = FanOutWriter(writers, failure)
    assert both.try_write(1)
    assert not both.has_room()
    assert not both.try_write(2)
    assert [reader.try_read() for reader in readers] == [1, 1]
    assert both.try_write(3)
    assert both.statistics()["written"] == 4
    both.close()


def test_what_only_the_second_of_a_fan_out_cannot_send_fails_there() -> None:
    class Picky(InprocWriter):
        def try_write(self, value: Any) -> bool:
            if value == "bad":
                raise TypeError("not that")
            return super().try_write(value)

    plain, picky = InprocWriter(1, 2), Picky(1, 2)
    both = FanOutWriter([plain, picky], failure)
    assert both.try_write("bad")
    assert plain.reader(0).try_read() == "bad"
    failed = picky.reader(0).try_read()
    assert (type(failed), failed.payload) == (Failed, b"not that")
    with pytest.raises(TypeError):
        FanOutWriter([picky, plain], failure).try_write("bad")
    assert not plain.reader(0).ready()


class Tensor:
    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.dtype = "float32"


def test_a_promise_is_checked_before_a_value_leaves() -> None:
    inner = InprocWriter(1, 8)
    reader = inner.reader(0)
    writer = CheckedWriter(inner, EdgeRules(static_shape=True, direct_return=False), (Tensor,), failure)
    first, second, bad = [Tensor(2)], {"a": Tensor(2)}, Tensor(3)
    assert writer.try_write(first)
    assert writer.try_write(second)
    assert writer.try_write(Failed(b"passed on"))
    assert writer.try_write(bad)
    got = [reader.try_read() for _ in range(4)]
    assert got[:2] == [first, second]
    assert [(each.payload[:9], each.fatal) for each in got[2:]] == [(b"passed on", False), (b"Expected ", True)]


def test_a_direct_return_is_a_tensor_and_nothing_else() -> None:
    inner = InprocWriter(1, 8)
    writer = CheckedWriter(inner, EdgeRules(static_shape=False, direct_return=True), (Tensor,), failure)
    good = Tensor(2)
    assert writer.try_write(good)
    assert writer.try_write([good])
    reader = inner.reader(0)
    assert reader.try_read() is good
    assert reader.try_read().fatal
