"""NCCL: numbers and names, and what pretended NCCL does between ranks that are threads."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from mray._api.communicator import ReduceOp  # noqa: E402
from mray._device import libnccl, nccl_library  # noqa: E402
from mray._device.platform import forget_platform, platform  # noqa: E402
from mray._device.timelines import mark  # noqa: E402
from mray.testing import null, null_nccl  # noqa: E402

#: The calls of `mray._gpu.nccl_member`.
CALLS = ("send", "recv", "allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "abort", "check_async_error")
CONSTANTS = {
    "NCCL_INT8": 0,
    "NCCL_CHAR": 0,
    "NCCL_UINT8": 1,
    "NCCL_INT32": 2,
    "NCCL_INT": 2,
    "NCCL_UINT32": 3,
    "NCCL_INT64": 4,
    "NCCL_UINT64": 5,
    "NCCL_FLOAT16": 6,
    "NCCL_HALF": 6,
    "NCCL_FLOAT32": 7,
    "NCCL_FLOAT": 7,
    "NCCL_FLOAT64": 8,
    "NCCL_DOUBLE": 8,
    "NCCL_BFLOAT16": 9,
    "NCCL_SUM": 0,
    "NCCL_PROD": 1,
    "NCCL_MAX": 2,
    "NCCL_MIN": 3,
    "NCCL_AVG": 4,
}
FLOAT32 = CONSTANTS["NCCL_FLOAT32"]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Has this process see so many pretended devices: the platform."""

    def pretend(count: int) -> Any:
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{count},scope=nccl{os.getpid()}")
        monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")  # else the first use of NCCL sets it for good
        return platform()

    yield pretend
    gc.collect()
    forget_platform()
    gc.collect()
    monkeypatch.undo()


@pytest.fixture
def ranks(devices: Callable[..., Any]) -> Iterator[Callable[..., list[Any]]]:
    """Runs ``function(communicator, rank)`` in a thread for each rank, on a device of its own, and returns what they return."""
    made: list[Any] = []

    def run(count: int, function: Callable[..., Any], *, on: list[int] | None = None) -> list[Any]:
        devices(count)
        found = nccl_library.library()
        unique_id = found.unique_id()
        results: list[Any] = [None] * count

        def work(rank: int) -> None:
            try:
                communicator = found.communicator(count, unique_id, rank, rank if on is None else on[rank])
                made.append(communicator)
                results[rank] = function(communicator, rank)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for communicator in made:
            communicator.abort()
        return results

    yield run
    while made:
        made.pop().abort()


# ------------------------------------------------------------------------------------------ names and numbers
@pytest.mark.parametrize("name", CALLS)
def test_pretended_nccl_is_called_as_the_real_one_is(name):
    pretended, real = (inspect.signature(getattr(each.NcclCommunicator, name)) for each in (null_nccl, libnccl))
    assert pretended == real


def test_dtypes_have_the_numbers_of_the_library():
    named = {"NCCL_" + name.upper(): number for name, number in nccl_library.DTYPES.items() if not name.startswith("float8")}
    assert named == {name: number for name, number in CONSTANTS.items() if name in named}
    assert len(named) == 10


def test_versions_are_named_as_the_library_does():
    assert libnccl.version_name(22705) == "2.27.5"
    assert libnccl.version_name(23203) == "2.32.3"


@pytest.mark.parametrize(
    ("dtype", "op", "expected"),
    [
        ("float32", ReduceOp.SUM, (7, 0, 1)),
        ("bfloat16", ReduceOp.AVG, (9, 4, 1)),
        ("int64", ReduceOp.MIN, (4, 3, 1)),
        ("uint8", ReduceOp.PRODUCT, (1, 1, 1)),
        ("float16", ReduceOp.MAX, (6, 2, 1)),
        ("bool", ReduceOp.SUM, (1, 2, 1)),
        ("bool", ReduceOp.PRODUCT, (1, 3, 1)),
        ("complex64", ReduceOp.SUM, (7, 0, 2)),
        ("complex128", ReduceOp.AVG, (8, 4, 2)),
        ("float8_e4m3fn", ReduceOp.SUM, (10, 0, 1)),
    ],
)
def test_reductions_have_numbers(devices, dtype, op, expected):
    devices(1)
    assert nccl_library.library().reduction(dtype, op) == expected


@pytest.mark.parametrize(("dtype", "op"), [("int16", ReduceOp.SUM), ("complex64", ReduceOp.PRODUCT), ("complex64", ReduceOp.MAX)])
def test_what_nccl_does_not_compute_is_said(devices, dtype, op):
    devices(1)
    with pytest.raises(ValueError, match=f"NCCL 2.30.0 does not compute {op.name} of tensors of {dtype}"):
        nccl_library.library().reduction(dtype, op)


def test_an_old_library_does_not_compute_with_eight_bits(devices, monkeypatch):
    devices(1)
    monkeypatch.setenv("MRAY_NULL_NCCL_VERSION", "22304")
    with pytest.raises(ValueError, match=r"NCCL 2.23.4 does not compute SUM of tensors of float8_e5m2"):
        nccl_library.library().reduction("float8_e5m2", ReduceOp.SUM)


# ---------------------------------------------------------------------------------------- what a process has
def test_a_process_without_devices_has_no_nccl(monkeypatch):
    forget_platform()
    monkeypatch.delenv("MRAY_NULL_DEVICES", raising=False)
    monkeypatch.setattr(nccl_library, "platform", lambda: None)
    assert nccl_library.nccl_version() == 0
    assert not nccl_library.shares_gpus()
    with pytest.raises(LookupError, match="this process sees none: give its actor num_gpus"):
        nccl_library.library()


@pytest.mark.parametrize(
    ("version", "variable", "shared"), [("23000", "1", True), ("22907", "1", False), ("23000", "0", False), ("23000", None, False)]
)
def test_ranks_share_a_gpu_where_the_library_can_and_is_told_to(devices, monkeypatch, version, variable, shared):
    devices(1)
    monkeypatch.setenv("MRAY_NULL_NCCL_VERSION", version)
    if variable is None:
        monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    else:
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", variable)
    assert nccl_library.shares_gpus() is shared


def test_the_library_listens_on_this_machine_only_unless_the_user_says_otherwise(devices, monkeypatch):
    devices(1)
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    nccl_library.library().unique_id()
    assert os.environ["NCCL_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    nccl_library.library().unique_id()
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"


# --------------------------------------------------------------------------------------------- pretended NCCL
def array(rank: int, values: Any, dtype: str = "float32") -> Any:
    """An array that is there on every stream: its copy to the device is over."""
    made = null.from_numpy(np.asarray(values, dtype), device=rank)
    platform().synchronize(platform().devices[rank], 0)
    return made


def test_collectives_compute_what_nccl_does(ranks):
    def work(communicator, rank):
        own = array(rank, [rank + 1, 10 * (rank + 1)])
        summed, largest, mean = (null.empty(2, device=rank) for _ in range(3))
        communicator.allReduce(own.address, summed.address, 2, FLOAT32, nccl_library.SUM, 0)
        communicator.allReduce(own.address, largest.address, 2, FLOAT32, nccl_library.MAX, 0)
        communicator.allReduce(own.address, mean.address, 2, FLOAT32, nccl_library.AVG, 0)
        gathered = null.empty(6, device=rank)
        communicator.allGather(own.address, gathered.address, 2, FLOAT32, 0)
        part = null.empty(2, device=rank)
        communicator.reduceScatter(gathered.address, part.address, 2, FLOAT32, nccl_library.PRODUCT, 0)
        spread = array(rank, [rank, rank])
        communicator.broadcast(spread.address, spread.address, 2, FLOAT32, 2, 0)
        reduced = array(rank, [rank, 1])
        communicator.reduce(reduced.address, reduced.address, 2, FLOAT32, nccl_library.SUM, 1, 0)
        return tuple(each.tolist() for each in (summed, largest, mean, gathered, part, spread, reduced))

    for rank, result in enumerate(ranks(3, work)):
        assert result == (
            [6, 60],
            [3, 30],
            [2, 20],
            [1, 10, 2, 20, 3, 30],
            [[1, 1000], [8, 8000], [27, 27000]][rank],
            [2, 2],
            [3, 3] if rank == 1 else [rank, 1],
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"])
def test_every_dtype_is_reduced(ranks, dtype):
    def work(communicator, rank):
        own = array(rank, [rank + 1, 4], dtype)
        communicator.allReduce(own.address, own.address, 2, nccl_library.DTYPES[dtype], nccl_library.PRODUCT, 0)
        return own.tolist()

    assert ranks(2, work) == [[2, 16]] * 2


def test_bfloat16_is_reduced_as_upper_halves_of_float32(ranks):
    values = np.array([1.5, -2.25, 3e38, 1.0], "f4"), np.array([1.0, 0.75, 3e38, 0.00390625], "f4")

    def work(communicator, rank):
        own = null.from_numpy((values[rank].view("u4") >> 16).astype("u2"), device=rank)
        communicator.allReduce(own.address, own.address, 4, nccl_library.DTYPES["bfloat16"], nccl_library.SUM, 0)
        return (own.numpy().astype("u4") << 16).view("f4").tolist()

    # The last one lies in the middle, and is rounded to even.
    assert ranks(2, work) == [[2.5, -1.5, float("inf"), 1.0]] * 2


def test_averages_of_integers_are_rounded_towards_zero(ranks):
    def work(communicator, rank):
        own = array(rank, [[-3, 3], [0, 0]][rank], "int32")
        communicator.allReduce(own.address, own.address, 2, nccl_library.DTYPES["int32"], nccl_library.AVG, 0)
        return own.tolist()

    assert ranks(2, work) == [[-1, 1]] * 2


def test_messages_arrive_in_order_and_both_ways(ranks):
    def work(communicator, rank):
        own = [array(rank, [rank, number]) for number in range(5)]
        got = [null.empty(2, device=rank) for _ in own]
        for mine, theirs in zip(own, got, strict=True):
            calls = [
                lambda mine=mine: communicator.send(mine.address, 8, nccl_library.BYTES, 1 - rank, 0),
                lambda theirs=theirs: communicator.recv(theirs.address, 8, nccl_library.BYTES, 1 - rank, 0),
            ]
            for call in calls if rank == 0 else reversed(calls):
                call()
        return [each.tolist() for each in got]

    assert ranks(2, work) == [[[1, number] for number in range(5)], [[0, number] for number in range(5)]]


def test_calls_return_before_the_work_is_done_and_run_in_order_over_all_streams(ranks):
    here = threading.Barrier(2)

    def work(communicator, rank):
        device = platform().devices[rank]
        one, two = device.create_stream(), device.create_stream()
        first, second = array(rank, [rank]), null.empty(1, device=rank)
        with null.hold(one, device=rank) as held:
            # Of two on different streams, the later call waits for the earlier one.
            communicator.allReduce(first.address, first.address, 1, FLOAT32, nccl_library.SUM, one)
            communicator.allReduce(first.address, second.address, 1, FLOAT32, nccl_library.SUM, two)
            end = mark(device, two)
            here.wait()
            is_done = end.reached()
            here.wait()
            held.release()
        platform().synchronize(device, two)
        return is_done, second.tolist()

    assert ranks(2, work) == [(False, [2.0])] * 2


@pytest.mark.parametrize("kind", ["send", "allReduce", "broadcast"])
def test_work_of_a_rank_needs_that_of_the_others_to_run_at_the_same_time(ranks, kind):
    here = threading.Barrier(2)

    def work(communicator, rank):
        device = platform().devices[rank]
        data = array(rank, [1.0])
        hold = null.hold(0, device=rank) if rank else None
        if kind == "send":
            (communicator.recv if rank else communicator.send)(data.address, 1, FLOAT32, 1 - rank, 0)
        elif kind == "allReduce":
            communicator.allReduce(data.address, data.address, 1, FLOAT32, nccl_library.SUM, 0)
        else:
            communicator.broadcast(data.address, data.address, 1, FLOAT32, 0, 0)
        done = mark(device, 0)
        here.wait()
        is_early = done.reached()
        here.wait()
        if hold is not None:
            hold.release()
        platform().synchronize(device, 0)
        return is_early, done.reached()

    assert ranks(2, work) == [(False, True)] * 2


def test_a_stream_waits_for_the_other_side_until_the_communicator_is_aborted(ranks):
    here = threading.Barrier(2)

    def work(communicator, rank):
        device = platform().devices[rank]
        if rank:
            here.wait()
            return None
        into = array(rank, [5.0])
        communicator.recv(into.address, 4, nccl_library.BYTES, 1, 0)
        waits = not mark(device, 0).reached()
        here.wait()
        communicator.abort()
        platform().synchronize(device, 0)
        with pytest.raises(null_nccl.NcclError):
            communicator.send(into.address, 4, nccl_library.BYTES, 1, 0)
        communicator.abort()
        return waits, into.tolist()

    assert ranks(2, work)[0] == (True, [5.0])


def test_a_peer_that_has_left_ends_no_work(ranks):
    gone = threading.Event()

    def work(communicator, rank):
        if rank:
            communicator.abort()
            gone.set()
            return None
        gone.wait()
        device = platform().devices[rank]
        into = array(rank, [5.0])
        communicator.recv(into.address, 4, nccl_library.BYTES, 1, 0)
        end = mark(device, 0)
        platform()  # nothing tells
        waits = not end.reached()
        communicator.abort()
        platform().synchronize(device, 0)
        return waits

    assert ranks(2, work)[0] is True


def test_what_does_not_fit_together_is_told_and_changes_nothing(ranks):
    def work(communicator, rank):
        own = array(rank, [1.0, 2.0])
        if rank:
            communicator.recv(own.address, 8, nccl_library.BYTES, 0, 0)
        else:
            communicator.send(own.address, 4, nccl_library.BYTES, 1, 0)
        values = own.tolist()
        with pytest.raises(null_nccl.NcclError, match="NCCL_ERROR_INVALID_USAGE"):
            communicator.check_async_error()
        return values

    assert ranks(2, work) == [[1.0, 2.0]] * 2


def test_different_collectives_at_once_are_told(ranks):
    def work(communicator, rank):
        own = array(rank, [1.0, 2.0])
        communicator.allReduce(own.address, own.address, 2, FLOAT32, rank, 0)
        values = own.tolist()
        with pytest.raises(null_nccl.NcclError):
            communicator.check_async_error()
        return values

    assert ranks(2, work) == [[1.0, 2.0]] * 2


def test_memory_that_is_none_is_an_error_of_the_device(ranks):
    def work(communicator, rank):
        own = array(rank, [1.0])
        communicator.allReduce(own.address + 4096 * 4096, own.address, 1, FLOAT32, 0, 0)
        with pytest.raises(RuntimeError, match="illegal address"):
            own.tolist()
        return True

    assert ranks(1, work) == [True]


@pytest.mark.parametrize(("variable", "version", "allowed"), [("1", "23000", True), ("0", "23000", False), ("1", "22907", False)])
def test_two_ranks_on_one_gpu(ranks, monkeypatch, variable, version, allowed):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", variable)
    monkeypatch.setenv("MRAY_NULL_NCCL_VERSION", version)

    def work(communicator, rank):
        device = platform().devices[1]
        stream = device.create_stream()
        with device.on_stream(stream):
            own = array(1, [rank + 1.0])
            communicator.allReduce(own.address, own.address, 1, FLOAT32, 0, stream)
            return own.tolist()

    results = ranks(2, work, on=[1, 1])
    if allowed:
        assert results == [[3.0]] * 2
    else:
        for error in results:
            assert isinstance(error, null_nccl.NcclError)
            assert "Duplicate GPU detected : rank 1 and rank 0 both on device GPU-null-1" in str(error)


@pytest.mark.parametrize("arguments", [(0, 4, 1, 5, 0), (0, 4, 99, 0, 0), (0, -1, 1, 0, 0)])
def test_arguments_that_mean_nothing_are_refused_at_once(ranks, arguments):
    def work(communicator, rank):
        with pytest.raises(null_nccl.NcclError, match="NCCL_ERROR_INVALID_ARGUMENT"):
            communicator.send(*arguments)
        with pytest.raises(ValueError, match="no stream 4711"):
            communicator.recv(0, 4, 1, 0, 4711)
        return True

    assert ranks(1, work) == [True]


def test_errors_can_be_sent():
    error = null_nccl.NcclError(5, "Duplicate GPU detected")
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, str(again)) == (5, str(error))


def test_a_rank_beyond_the_world_is_refused(devices):
    devices(1)
    found = nccl_library.library()
    with pytest.raises(null_nccl.NcclError, match="INVALID_ARGUMENT"):
        found.communicator(1, found.unique_id(), 1, 0)


@pytest.mark.parametrize(
    ("is_taken", "reason"), [(False, "Connection refused"), (True, "another user has taken the name")], ids=["alone", "another user"]
)
def test_the_error_of_a_rank_that_meets_no_other_says_why(
    devices: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, is_taken: bool, reason: str
) -> None:
    devices(1)
    monkeypatch.setattr(null_nccl, "_PATIENCE", 0.05)
    monkeypatch.setattr(null_nccl, "peer_is_ours", lambda _line: False)
    found = nccl_library.library()
    unique_id = found.unique_id()
    with socket.socket(socket.AF_UNIX) as other:
        if is_taken:
            other.bind(b"\0mray-null-nccl-" + unique_id[:64] + b"-0")
            other.listen()
        with pytest.raises(null_nccl.NcclError, match=f"rank 1 has not found its peers: .*{reason}"):
            found.communicator(2, unique_id, 1, 0)


def test_ranks_of_different_versions_do_not_meet(ranks, monkeypatch):
    versions: dict[int, int] = {}  # of each thread
    monkeypatch.setattr(null_nccl, "get_version", lambda: versions.setdefault(threading.get_ident(), 22000 + len(versions)))
    failed = ranks(2, lambda _communicator, _rank: "met")
    assert all("ranks of different versions" in str(each) for each in failed)
