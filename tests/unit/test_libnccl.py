"""The library of NCCL by ctypes, on a pretended one that is compiled here (`fake_nccl.c`)."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mray._device import libnccl, nccl_library
from mray._device.libnccl import LibNccl, NcclError

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the pretended libnccl needs a compiler of C")

FLOAT32, UINT8, SUM = 7, 1, 0


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site") / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    made.parent.mkdir(parents=True)
    source = Path(__file__).with_name("fake_nccl.c")
    subprocess.run(
        [str(COMPILER), "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libnccl.so.2", "-o", str(made), str(source)],
        check=True,
    )
    return made


@pytest.fixture
def raw(path: Path) -> Any:
    return ctypes.CDLL(str(path))


@pytest.fixture
def library(raw: Any) -> Iterator[LibNccl]:
    yield LibNccl(raw)
    assert raw.fake_nccl_count() == 0


def ranks(library: LibNccl, count: int, work: Callable[[Any, int], Any]) -> list[Any]:
    """The results of so many ranks, threads of this process: what each returns or raises."""
    unique_id, results = library.get_unique_id(), [None] * count

    def run(rank: int) -> None:
        communicator = library.NcclCommunicator(count, unique_id, rank)
        try:
            results[rank] = work(communicator, rank)
        except Exception as error:
            results[rank] = error  # type: ignore[call-overload]
        finally:
            communicator.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class Floats:
    """float32 numbers of the host."""

    def __init__(self, *values: float) -> None:
        self.values = (ctypes.c_float * len(values))(*values)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.values)

    def __iter__(self) -> Iterator[float]:
        return iter(self.values)


# ----------------------------------------------------------------------------------------------------- calls
def test_arguments_arrive_as_the_header_says(library: LibNccl) -> None:
    def work(communicator: Any, rank: int) -> Any:
        own = Floats(rank + 1, 10 * (rank + 1))
        summed, gathered, part, spread, reduced = Floats(0, 0), Floats(*[0] * 4), Floats(0), Floats(rank, rank), Floats(-1, -1)
        communicator.allReduce(own.address, summed.address, 2, FLOAT32, SUM, 0)
        communicator.allGather(own.address, gathered.address, 2, FLOAT32, 0)
        communicator.reduceScatter(own.address, part.address, 1, FLOAT32, SUM, 0)
        communicator.broadcast(spread.address, spread.address, 2, FLOAT32, 1, 0)
        communicator.reduce(own.address, reduced.address, 2, FLOAT32, SUM, 1, 0)
        communicator.check_async_error()
        return [list(each) for each in (summed, gathered, part, spread, reduced)]

    assert ranks(library, 2, work) == [
        [[3, 30], [1, 10, 2, 20], [3], [1, 1], [-1, -1]],
        [[3, 30], [1, 10, 2, 20], [30], [1, 1], [3, 30]],
    ]


def test_messages_arrive_in_order(library: LibNccl) -> None:
    def work(communicator: Any, rank: int) -> list[float]:
        here = Floats(*range(3)) if rank == 0 else Floats(*[-1] * 3)
        for place in range(3):
            call, peer = (communicator.send, 1) if rank == 0 else (communicator.recv, 0)
            call(here.address + 4 * place, 4, UINT8, peer, 0)
        return list(here)

    assert ranks(library, 2, work) == [[0, 1, 2]] * 2


def test_a_call_that_waits_lets_other_threads_run_and_an_abort_ends_it(library: LibNccl, raw: Any) -> None:
    def work(communicator: Any, _rank: int) -> Any:
        here = Floats(5)

        def abort() -> None:
            while not raw.fake_nccl_waiting(communicator._handle):
                time.sleep(0.001)
            communicator.abort()

        other = threading.Thread(target=abort)
        other.start()
        with pytest.raises(NcclError, match="NCCL_ERROR_INTERNAL_ERROR") as caught:
            communicator.recv(here.address, 4, UINT8, 0, 0)
        other.join()
        return caught.value.status, list(here)

    assert ranks(library, 1, work) == [(3, [5])]


def test_an_aborted_communicator_is_not_followed_into_memory_that_is_gone(library: LibNccl) -> None:
    def work(communicator: Any, _rank: int) -> None:
        communicator.abort()
        communicator.abort()
        for call in (lambda: communicator.send(0, 0, UINT8, 0, 0), communicator.check_async_error):
            with pytest.raises(NcclError, match="NCCL_ERROR_INVALID_ARGUMENT: .*the communicator was aborted"):
                call()

    assert ranks(library, 1, work) == [None]


def test_errors_have_the_name_of_the_header_and_the_words_of_the_library(library: LibNccl) -> None:
    def work(communicator: Any, _rank: int) -> str:
        with pytest.raises(NcclError) as caught:
            communicator.send(0, 4, UINT8, 7, 0)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.status, str(again)) == (4, str(caught.value))
        return str(caught.value)

    assert ranks(library, 1, work) == ["NCCL_ERROR_INVALID_ARGUMENT: invalid argument (Invalid peer)"]
    with pytest.raises(NcclError, match="Invalid rank requested"):
        library.NcclCommunicator(1, library.get_unique_id(), 1)
    assert str(NcclError(99)) == "NCCL_ERROR_99"


def test_what_went_wrong_in_the_work_is_told_when_it_is_asked_for(library: LibNccl, raw: Any) -> None:
    def work(communicator: Any, _rank: int) -> None:
        communicator.check_async_error()
        raw.fake_nccl_break(communicator._handle, 6)
        communicator.check_async_error()

    (error,) = ranks(library, 1, work)
    assert isinstance(error, NcclError)
    assert (error.status, "remote process exited" in str(error)) == (6, True)


# --------------------------------------------------------------------------------------------------- versions
@pytest.mark.parametrize(("code", "counted"), [("22705", 22705), ("21000", 21000), ("23203", 23203)])
def test_versions_are_counted_as_nccl_does_now(raw: Any, monkeypatch: pytest.MonkeyPatch, code: str, counted: int) -> None:
    monkeypatch.setenv("FAKE_NCCL_VERSION", code)
    assert LibNccl(raw).get_version() == counted


@pytest.mark.parametrize(("code", "name"), [("2708", "2.7.8"), ("20908", "2.9.8")])
def test_a_library_that_is_too_old_says_so(raw: Any, monkeypatch: pytest.MonkeyPatch, code: str, name: str) -> None:
    monkeypatch.setenv("FAKE_NCCL_VERSION", code)
    with pytest.raises(LookupError, match=f"is NCCL {name}, and mray needs 2.10.0 or newer"):
        LibNccl(raw)


# ----------------------------------------------------------------------------------------------- where it is found
PROGRAM = """
import ctypes, sys
sys.path.insert(0, {root!r})
from mray._device import libnccl, nccl_library
{before}
found = libnccl.load()
print(found.get_version(), "torch" in sys.modules, open("/proc/self/maps").read().count({path!r}) > 0)
"""


@pytest.mark.parametrize("before", ["sys.path.insert(0, {folder!r})", "ctypes.CDLL({path!r})"], ids=["in a package", "loaded already"])
def test_the_library_of_torch_is_found_where_it_is_without_torch(path: Path, before: str) -> None:
    # In a process of its own: a library stays loaded.
    info = {"root": str(Path(__file__).resolve().parents[2]), "path": str(path), "folder": str(path.parents[3])}
    program = PROGRAM.format(before=before.format(**info), **info)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["22705", "False", "True"], done.stderr


class Cuda:
    """As much of a platform as is needed to look for its library."""

    name = "cuda"
    devices = (SimpleNamespace(),)

    @staticmethod
    def nccl() -> LibNccl:
        return libnccl.load()


def test_a_process_without_the_library_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_library, "platform", Cuda)
    monkeypatch.setattr(libnccl, "_found", None)
    monkeypatch.setattr(libnccl, "LIBRARY", "libnccl-not-here.so.2")
    with pytest.raises(LookupError, match="was not found .*no package nvidia-nccl with it is installed.*: pip install nvidia-nccl-cu12"):
        nccl_library.library()
    assert nccl_library.nccl_version() == 0


def test_a_process_with_a_wheel_of_the_real_library_makes_ids_that_can_be_sent() -> None:
    if importlib.util.find_spec("nvidia") is None or not list(libnccl._package_paths()):
        pytest.skip("no nvidia-nccl is installed")
    program = (
        "from mray._device import libnccl; made = libnccl.load(); assert made.get_version() >= 21000 and len(made.get_unique_id()) == 128"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, env={**os.environ, "NCCL_SOCKET_IFNAME": "lo"}).returncode == 0
