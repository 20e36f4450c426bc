"""The words of an error are true: they name what has happened to whoever is gone, and who has done it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import mray
from mray.exceptions import ActorDiedError, ActorUnavailableError, ObjectLostError, RayError, RuntimeEnvSetupError, WorkerCrashedError
from tests.faults.crash.conftest import Run
from tests.faults.crash.torn_program import close_all

TORN = Path(__file__).with_name("torn_program.py")
#: A program that closes all descriptors closes that of the process its nodes would be forked from.
ANEW = True


@pytest.fixture
def session() -> Iterator[None]:
    mray.init(num_cpus=1, logging_level="ERROR")
    yield
    mray.shutdown()


def become_another_program() -> None:
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "instead"])


@mray.remote(max_retries=0)
def do(what: Callable[[], None]) -> None:
    what()


@mray.remote(num_cpus=0)
class Doer:
    def __init__(self, construction_seconds: float = 0.0) -> None:
        time.sleep(construction_seconds)

    def length(self, value: bytes) -> int:
        return len(value)

    def lose(self) -> list[mray.ObjectRef]:
        self.kept = mray.put(bytes(1 << 20))
        memory_of(self.kept).unlink()
        return [self.kept]

    def do(self, what: Callable[[], None]) -> None:
        what()

    def pid(self) -> int:
        return os.getpid()


def assert_told_of_exec(error: RayError, pid: int | None = None) -> None:
    assert "executed another program in its place: " in str(error)
    assert "sleep(600)" in str(error)
    assert "SIGKILL" not in str(error), "which is mray's own doing"
    assert pid is None or f"(pid {pid})" in str(error)


# ------------------------------------------------------------------------------------------ another program in the worker's place
def test_a_task_that_executes_another_program_is_told_so(session: None) -> None:
    with pytest.raises(WorkerCrashedError) as caught:
        mray.get(do.remote(become_another_program))
    assert_told_of_exec(caught.value, caught.value.pid)


@pytest.mark.parametrize(("restarts", "error"), [(0, ActorDiedError), (1, ActorUnavailableError)])
def test_an_actor_that_executes_another_program_is_told_so(session: None, restarts: int, error: type[RayError]) -> None:
    doer = Doer.options(max_restarts=restarts).remote()
    pid = mray.get(doer.pid.remote())
    with pytest.raises(error) as caught:
        mray.get(doer.do.remote(become_another_program))
    assert_told_of_exec(caught.value, pid)
    if restarts:
        assert mray.get(doer.pid.options(max_task_retries=-1).remote()) != pid


# --------------------------------------------------------------------------------------------------------------- setup hooks
HOOKS: dict[str, tuple[Callable[[], None], str]] = {
    "sys.exit": (lambda: sys.exit(3), "exited with exit code 3"),
    "os._exit": (lambda: os._exit(3), "exited with exit code 3"),
    "exec": (become_another_program, "executed another program in its place: "),
}


@pytest.mark.parametrize("way", HOOKS)
def test_a_setup_hook_that_ends_the_process_is_named(session: None, way: str) -> None:
    hook, how = HOOKS[way]
    environment = {"worker_process_setup_hook": hook}
    for begin in (
        lambda: do.options(runtime_env=environment).remote(lambda: None),
        lambda: Doer.options(runtime_env=environment).remote().pid.remote(),
    ):
        with pytest.raises(RayError, match="worker_process_setup_hook did not return: the process .* ") as caught:
            mray.get(begin())
        assert isinstance(caught.value, RuntimeEnvSetupError), repr(caught.value)
        assert how in str(caught.value)
    assert mray.get(do.remote(lambda: None)) is None, "others go on"


def test_a_worker_that_somebody_else_kills_in_its_setup_hook_is_told_so_and_its_task_tried_again(session: None) -> None:
    environment = {"worker_process_setup_hook": lambda: os.kill(os.getpid(), signal.SIGKILL)}
    with pytest.raises(WorkerCrashedError, match=r"was killed by SIGKILL \(signal 9\). It was in its worker_process_setup_hook\."):
        mray.get(do.options(runtime_env=environment, max_retries=1).remote(lambda: None))


# ------------------------------------------------------------------------------------------- descriptors that the program has closed
WORDS = "has closed file descriptors that mray needs, by os.close, os.closerange"


@pytest.mark.parametrize(
    "way", ["at_once", "before_a_call", "while_it_waits", "while_a_thread_waits", "sockets_alone", "with_a_graph", "and_opens_others"]
)
def test_a_program_that_has_closed_the_descriptors_of_its_session_is_told_so(run: Run, way: str) -> None:
    run.start(way, program=TORN)
    assert run.wait() == 0, run.output()
    said = run.said()
    told = [said[key] for key in ("told", "again", "thread") if key in said]
    assert len(told) == {"at_once": 0, "before_a_call": 2, "while_a_thread_waits": 2}.get(way, 1)
    assert all(WORDS in text and f"process {run.pid}" in text for text in told), told
    assert said["shutdown"] == "None"
    assert WORDS in (run.folder / "stderr").read_text(), "shutdown says it too"
    assert said["anew"] == "'well'"
    run.assert_nothing_left()


def test_a_worker_whose_task_has_closed_its_descriptors_says_so(session: None) -> None:
    for begin in (lambda: do.remote(close_all), lambda: Doer.remote().do.remote(close_all)):
        with pytest.raises((WorkerCrashedError, ActorDiedError), match=WORDS):
            mray.get(begin())


# ------------------------------------------------------------------------------------------------------------- the length of files
def test_what_is_longer_than_a_file_may_be_names_the_limit_and_what_to_do(session: None) -> None:
    def put_it() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        mray.put(bytes(2 << 20))

    words = r"process \d+ may create none of more than 1048576 bytes \(RLIMIT_FSIZE\).*Raise the limit \(ulimit -f\)"
    with pytest.raises(OSError, match=words):
        mray.get(do.remote(put_it))


# ----------------------------------------------------------------------------------------------- what has become of an object's memory
def removed(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    os.truncate(path, 100)


def replaced(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere")


def of_another_user(path: Path) -> None:
    os.chown(path, 1234, 1234)


BECAME: dict[Callable[[Path], None], str] = {
    removed: "no longer exists: another program has removed it",
    cut_short: "is no longer whole: another program has truncated it",
    replaced: "is no longer a file: another program has replaced it",
    of_another_user: "no longer belongs to this user (0), but to user 1234",
}


def memory_of(ref: mray.ObjectRef) -> Path:
    """Where the value of a ref lies."""
    place = ref._entry.payload[0]
    return Path(place) if place.count("/") > 1 else Path(f"/dev/shm{place}")


@pytest.mark.parametrize("how", BECAME, ids=lambda how: how.__name__)
@pytest.mark.parametrize("where", ["memory", "file"])
def test_an_object_whose_memory_is_gone_is_named_and_so_is_what_became_of_it(where: str, how: Callable[[Path], None]) -> None:
    if how is of_another_user and os.geteuid():
        pytest.skip("only root can give files away")
    mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=80 << 20)
    try:
        kept = mray.put(bytes(60 << 20)) if where == "file" else None
        ref = mray.put(bytes(30 << 20))
        path = memory_of(ref)
        assert path.is_relative_to("/dev/shm") == (where == "memory")
        how(path)
        with pytest.raises(ObjectLostError) as caught:
            mray.get(ref)
        assert caught.value.object_ref_hex == ref.hex()
        assert ref.hex() in str(caught.value)
        assert BECAME[how] in str(caught.value)
        path.unlink(missing_ok=True)
        del kept
    finally:
        mray.shutdown()


def test_an_awaited_object_whose_memory_is_gone_is_named(session: None) -> None:
    ref = mray.put(bytes(1 << 20))
    memory_of(ref).unlink()

    async def wait() -> None:
        await ref

    with pytest.raises(ObjectLostError) as caught:
        asyncio.run(wait())
    assert caught.value.object_ref_hex == ref.hex()


@pytest.mark.parametrize("how", ["get", "await", "future", "callback"])
def test_an_object_that_is_lost_before_its_borrower_has_it_is_named_however_it_is_waited_for(session: None, how: str) -> None:
    owner = Doer.remote()
    for _ in range(5):
        (ref,) = mray.get(owner.lose.remote())
        with pytest.raises(ObjectLostError) as caught:
            WAITS[how](ref)
        assert caught.value.object_ref_hex == ref.hex()


async def awaited(ref: mray.ObjectRef) -> Any:
    return await ref


def called_back(ref: mray.ObjectRef) -> Any:
    outcome: Future[Any] = Future()
    ref._on_completed(outcome.set_result)
    raise outcome.result(30)


WAITS: dict[str, Callable[[mray.ObjectRef], Any]] = {
    "get": lambda ref: mray.get(ref, timeout=30),
    "await": lambda ref: asyncio.run(awaited(ref)),
    "future": lambda ref: ref.future().result(30),
    "callback": called_back,
}


@mray.remote
def length_of(*values: bytes) -> int:
    return sum(map(len, values))


@mray.remote
def made_slowly() -> bytes:
    time.sleep(0.5)
    return bytes(1 << 20)


def test_a_call_waits_for_an_argument_that_is_being_made_again(session: None) -> None:
    ref = made_slowly.remote()
    mray.wait([ref])
    doer = Doer.options(num_cpus=0).remote(construction_seconds=1.0)
    call = doer.length.remote(ref)
    memory_of(ref).unlink()
    again = threading.Thread(target=mray.get, args=[ref])
    again.start()
    assert mray.get(call, timeout=30) == 1 << 20
    again.join()
    memory_of(ref).unlink()
    del again
    assert mray.get([length_of.remote(ref) for _ in range(20)], timeout=60) == [1 << 20] * 20
