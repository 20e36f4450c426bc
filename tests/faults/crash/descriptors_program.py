"""A driver, one process of whose session has few file descriptors left: none, one, two, and so on until its work succeeds.

Each failure on the way is at another place: the socket, the mapping, the segment, the doorbell that comes through a socket. This prints,
for each kind of work, the errors of the failed attempts, and the number of descriptors that sufficed. A failure must leave none open.

The word "system" means the whole machine: sessions for which one system call after the other fails, as if there was no room for open files.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mray
import mray._backends.native
import mray._backends.native_start
import mray._runtime.session.launching as launching
import mray.dag
from mray._api.current import current_backend
from tests.faults.crash.refusals import OPENING, refuse

LARGE = 1 << 20
#: Bytes of shared memory for objects, and of those that do not all fit.
STORE = 96 << 20
SPILLED = 24 << 20
#: Descriptors with which everything works.
MOST = 40
PATIENCE = 60.0


def open_files() -> dict[int, str]:
    """The open descriptors of this process. (What was open only to look is gone by then.)"""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


@contextmanager
def few(free: int) -> Iterator[None]:
    """This process gets so many more descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(*open_files(), 128) + MOST, limits[1]))
    taken = []
    try:
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for fd in [taken.pop() for _ in range(free)]:
            os.close(fd)
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def node_has_few(free: int) -> Iterator[None]:
    """The node gets so many more descriptors."""
    pid = current_backend().client.info["node_pid"]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    limit = next(limit for limit in range(4096) if limit - len([fd for fd in used if fd < limit]) == free)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


def attempt(operation: Callable[[], Any], limited: Callable[[int], Any], numbers: Iterable[int] = range(MOST)) -> dict[str, Any]:
    """Do it with more and more descriptors: the errors, and with how many it worked."""
    errors = []
    for free in numbers:
        try:
            with limited(free):
                operation()
        except (OSError, mray.exceptions.RayError) as error:
            errors.append(f"{type(error).__name__}: {error}")
        else:
            operation()  # as well as ever
            return {"errors": errors, "works": free}
    return {"errors": errors, "works": None}


@mray.remote
def size(value: bytes) -> int:
    return len(value)


@mray.remote
def make(count: int) -> bytes:
    return b"x" * count


@mray.remote(num_cpus=0)
class Echo:
    def echo(self, value: Any) -> Any:
        return value

    def try_all(self) -> dict[str, Any]:
        return try_all(few)


def put() -> None:
    assert mray.get(mray.put(b"x" * LARGE)) == b"x" * LARGE


def spill() -> None:
    """The last of these have no room in memory, and lie in files."""
    refs = [mray.put(b"%d" % number * SPILLED) for number in range(5)]
    assert os.listdir(os.path.join(current_backend().info()["session_dir"], "spilled"))
    assert [mray.get(ref)[:1] for ref in refs] == [b"0", b"1", b"2", b"3", b"4"]


def task() -> None:
    assert mray.get(size.remote(b"x" * LARGE)) == LARGE


def result() -> None:
    assert mray.get(make.remote(LARGE)) == b"x" * LARGE


def actor() -> None:
    echo = Echo.remote()
    assert mray.get(echo.echo.remote(1)) == 1


def graph() -> None:
    first, second = Echo.remote(), Echo.remote()
    with mray.dag.InputNode() as value:
        compiled = second.echo.bind(first.echo.bind(value)).experimental_compile()
    try:
        assert compiled.execute(b"y" * LARGE).get() == b"y" * LARGE
    finally:
        compiled.teardown()


def worker() -> None:
    """Needs one of its own: others have other variables."""
    env = {"env_vars": {"NUMBER": os.urandom(4).hex()}}
    assert mray.get(size.options(runtime_env=env).remote(b"x" * LARGE)) == LARGE


def graph_in_a_loop() -> None:
    """Needs an epoll of its own, for the driver's event loop, which has been there before."""
    (loop,) = LOOPS
    echo = Echo.remote()
    with mray.dag.InputNode() as value:
        compiled = echo.echo.bind(value).experimental_compile(enable_asyncio=True)

    async def execute() -> Any:
        return await (await compiled.execute_async(b"z" * LARGE))

    try:
        assert loop.run_until_complete(execute()) == b"z" * LARGE
    finally:
        compiled.teardown()


OPERATIONS = (put, spill, task, result, actor, graph)
#: The event loop of this process.
LOOPS: list[asyncio.AbstractEventLoop] = []


def try_all(limited: Callable[[int], Any], operations: Iterable[Callable[[], None]] = OPERATIONS) -> dict[str, Any]:
    """Everything that a process does, and what has stayed open of it."""
    for operation in operations:
        operation()  # imports, and the pool of segments
    before = open_files()
    told: dict[str, Any] = {operation.__name__: attempt(operation, limited) for operation in operations}
    told["left"] = left(before)
    return told


def left(before: dict[int, str]) -> list[str]:
    """Descriptors that have stayed open, once processes that were ending have ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        gc.collect()
        mray.get(size.remote(b""))  # reads what has come
        grown = len(kept(open_files())) - len(kept(before))
        if grown <= 0:
            return []
        if time.monotonic() > deadline:
            return sorted(map(str, kept(open_files())))
        time.sleep(0.01)


def kept(files: dict[int, str]) -> list[str]:
    """Without the pool of segments, and connections, of which there may be one more or less to idle workers."""
    return [name for name in files.values() if not name.startswith(("/dev/shm/", "socket:", "/proc/"))]


def init() -> None:
    mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=STORE)


def of_init(before: set[int]) -> dict[str, Any]:
    """Started with more and more descriptors: in between nothing is left."""
    launching.allow_descriptors = lambda: None  # which would take the limit away that is to be felt
    errors = []
    for free in range(MOST):
        try:
            with few(free):
                init()
        except (OSError, mray.exceptions.RayError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            left = [name for fd, name in open_files().items() if fd not in before]
            assert (left, threading.active_count()) == ([], 1)
        else:
            task()
            return {"init": {"errors": errors, "works": free}}
    return {"init": {"errors": errors, "works": None}}


def of_driver(_before: set[int]) -> dict[str, Any]:
    init()
    LOOPS.append(asyncio.new_event_loop())
    try:
        return try_all(few, (*OPERATIONS, graph_in_a_loop))
    finally:
        LOOPS.pop().close()


def of_worker(_before: set[int]) -> dict[str, Any]:
    init()
    told: dict[str, Any] = mray.get(Echo.remote().try_all.remote())
    return told


def of_node(_before: set[int]) -> dict[str, Any]:
    """Pipes for what the worker prints, then the connection. For a pipe it is tried again for a while: so not with every number."""
    init()
    task()
    return {"worker": attempt(worker, node_has_few, (0, 3, *range(4, MOST)))}


def of_system(_before: set[int]) -> dict[str, Any]:
    """A session with each system call that makes a descriptor refused: in the driver and in all that it starts."""
    # Not accept: a listener lets a descriptor go that it keeps for this, whose place is the next one's.
    return {call: in_a_child(lambda call=call: session_without(call)) for call in OPENING if call != "accept4"}


def session_without(call: str) -> dict[str, Any]:
    """The errors of whatever a session does; `works` says how many operations did."""
    LOOPS.append(asyncio.new_event_loop())
    refuse([call], errno.ENFILE)
    errors = []
    works = 0
    for operation in (init, *OPERATIONS, graph_in_a_loop, mray.shutdown):
        try:
            operation()
            works += 1
        except (OSError, mray.exceptions.RayError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            if operation is init:
                break
    return {"errors": errors, "works": works}


def in_a_child(do: Callable[[], Any]) -> Any:
    """The result of a function in a process forked from this one."""
    readable, writable = os.pipe()
    if not os.fork():
        try:
            os.write(writable, json.dumps(do()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as file:
        told = file.read()
    os.wait()
    return json.loads(told)


def main() -> None:
    before = set(open_files())
    told = globals()[f"of_{sys.argv[1]}"](before)
    with few(0):
        mray.shutdown()
    left = [name for fd, name in open_files().items() if fd not in before]
    assert left == [], left
    print("TOLD", json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
