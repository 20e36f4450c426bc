"""The drivers of the crash matrix; not a test.

    runner (pytest) ──lines──▶ nursery: everything imported ──fork──▶ drivers
           └──────────────lines (a socket of each driver)────────────────┘

A driver starts a session, plays the rows that it is asked for, one after the other, and reports what whoever waited got, and whether
everything else still works. To play a row is to bring the *seat*, a process of the session, into the phase; what happens there is the
runner's business (see `tests.faults.crash.harm`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import mray as ray
from mray._api.current import current_backend
from mray._objects.serializer import Serialized
from tests.faults.crash import harm
from tests.faults.crash.harm import Keepsake, Traveller, point

CPUS, GPUS = 4, 2
LARGE = 1 << 20
PATIENCE = 20
#: The machine's resources that victims hold. A worker that has had a GPU takes no other task; this one may.
HOLDS = {"num_cpus": 1, "num_gpus": 1}
KEEPS = {"num_cpus": 1, "resources": {"slot": 1}}


# -------------------------------------------------------------------------------------- in whatever process
def echo(value: Any, *_: Any) -> Any:
    return value


def large() -> Any:
    # Not at the top: most rows have a session of their own, and no use for it.
    import numpy

    return numpy.ones(LARGE, numpy.uint8)


def four_ones() -> Any:
    import numpy

    return numpy.ones(4)


def make_unpicklable(where: str) -> Traveller:
    return Traveller(where, "unpickle")


def wait_for_order(where: str) -> str:
    harm.ask(where)
    return "late"


@contextlib.contextmanager
def point_in_copy(where: str) -> Iterator[None]:
    """The phase is reached when a segment has been made for a value, and the value is not in it yet."""
    parts = Serialized._parts

    def stop_before_parts(self: Serialized, base: int) -> Any:
        point(where)
        return parts(self, base)

    Serialized._parts = stop_before_parts  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Serialized._parts = parts  # type: ignore[method-assign]


def act(phase: str, where: str, partner: Any = None) -> Any:
    """The work of the seat in a phase, be it a worker, an actor or a driver. Returns "done" or what it got."""
    if phase == "run":
        point(where)
    elif phase == "pickle_argument":
        return ray.get(ray.remote(num_cpus=0)(echo).remote(Traveller(where, "pickle")))
    elif phase == "pickle_result":
        return Traveller(where, "pickle")
    elif phase == "unpickle_result":
        return ray.get(ray.remote(num_cpus=0)(make_unpicklable).remote(where))
    elif phase == "put":
        with point_in_copy(where):
            return int(ray.get(ray.put(large())).sum())
    elif phase == "get":
        ref = ray.remote(num_cpus=0)(wait_for_order).remote(where + ".late")
        with harm.point_asleep(where):
            return ray.get(ref)
    elif phase == "view":
        view = ray.get(ray.remote(num_cpus=0)(large).remote())
        point(where)
        return int(view.sum())
    elif phase == "spill":
        store = current_backend().client.owner.store
        limit, store.limit = store.limit, 0
        try:
            with point_in_copy(where):
                return int(ray.get(ray.put(large())).sum())
        finally:
            store.limit = limit
    elif phase == "shutdown":
        atexit.register(point, where)
    else:
        return use_graph(phase, where, partner)
    return "done"


def use_graph(phase: str, where: str, partner: Any) -> Any:
    """The seat is the process that compiles a graph and executes it; `partner` takes part."""
    with ray.dag.InputNode() as value:
        if phase == "read":
            node = partner.make_unpicklable.bind(value)
        elif phase == "compile":
            node = partner.echo.bind(value, Traveller(where, "pickle"))
        elif phase == "teardown":
            node = partner.wait_for_order.bind(value)
        else:
            node = partner.echo.bind(value)
        graph = node.experimental_compile()
    try:
        if phase == "write":
            return graph.execute(Traveller(where, "pickle")).get(timeout=PATIENCE)
        if phase == "teardown":
            graph.execute(where + ".late")
            while not os.path.exists(where + ".late" + harm.WAITING):  # a graph that is torn down before may leave it out
                time.sleep(0.001)
            with harm.point_asleep(where):
                graph.teardown()
            return "done"
        got = graph.execute(where).get(timeout=PATIENCE)
        if phase == "between":
            point(where)
            got = graph.execute(where).get(timeout=PATIENCE)
        return got == where or got
    finally:
        graph.teardown()


class Seat:
    """An actor that is brought into a phase, and the others of its graph."""

    def __init__(self, where: str | None = None) -> None:
        self.end = ""
        if where is not None:
            point(where)

    def act(self, phase: str, where: str, partner: Any = None) -> Any:
        if phase == "shutdown":
            self.end = where
            return "done"
        return act(phase, where, partner)

    def __ray_shutdown__(self) -> None:
        if self.end:
            point(self.end)

    def echo(self, value: Any, *_: Any) -> Any:
        return value

    def make_unpicklable(self, where: str) -> Traveller:
        return Traveller(where, "unpickle")

    def make_unreducible(self, where: str) -> Traveller:
        return Traveller(where, "pickle")

    def compute(self, where: str) -> str:
        point(where)
        return where

    def wait_for_order(self, where: str) -> str:
        os.close(os.open(where + harm.WAITING, os.O_WRONLY | os.O_CREAT, 0o600))
        harm.ask(where)
        return where

    def ones(self, where: str) -> Any:
        """The other one comes into the collective when it is told."""
        harm.ask(where + ".late")
        return four_ones()

    def ones_at_once(self, where: str) -> Any:
        harm.point_beside(where, lambda files: __file__ not in files)
        return four_ones()


class AsyncSeat(Seat):
    """One whose constructor is a coroutine."""

    async def __init__(self, where: str) -> None:
        super().__init__()
        await asyncio.sleep(0)
        point(where)


# ----------------------------------------------------------------------------------------------- one driver
class Driver:
    """Plays rows."""

    def __init__(self) -> None:
        self.counter: Any = None
        self.count = 0
        self.first: Any = None
        self.last: Any = None
        self.graph: Any = None
        self.before = open_files()

    def start(self, *preload: str) -> dict[str, Any]:
        """Start the session, with these modules besides."""
        return self._wait(lambda: self._start(preload))

    @staticmethod
    def _start(preload: tuple[str, ...]) -> str:
        ray.init(num_cpus=CPUS, num_gpus=GPUS, resources={"slot": 1}, logging_level="ERROR", log_to_driver=False, preload=preload)
        return "started"

    # -- rows ----------------------------------------------------------------------------------
    def play(self, seat: str, phase: str, where: str, spoils: bool) -> dict[str, Any]:
        """Bring the seat into the phase; what whoever waited for it got. `spoils`: what it lives through makes it of no use."""
        waits = list(self._waits(seat, phase, where, spoils))
        harm.recover()
        return {"waits": waits}

    def _waits(self, seat: str, phase: str, where: str, spoils: bool) -> Iterator[dict[str, Any]]:
        if seat == "driver":
            yield self._wait(lambda: self._act(phase, where))
        elif seat == "worker":
            yield from self._task(phase, where, spoils)
        elif phase in ("read", "compute", "write", "collective", "compile", "teardown", "between"):
            yield from self._graph(phase, where)
        else:
            yield from self._method(phase, where)

    def _act(self, phase: str, where: str) -> Any:
        if phase == "shutdown":
            with harm.point_asleep(where):
                ray.shutdown()
            return "done"
        if phase in ("read", "write", "compile", "teardown", "between"):
            self._make_peers()
        return act(phase, where, self.first)

    def _task(self, phase: str, where: str, spoils: bool) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {**(HOLDS if spoils else KEEPS), "max_retries": 0}
        function: Any = act
        words: tuple[Any, ...] = (phase, where)
        if phase == "unpickle_argument":
            function, words = echo, (Traveller(where, "unpickle"),)
        elif phase == "start_worker":
            options["runtime_env"] = {"worker_process_setup_hook": lambda: point(where)}
            function, words = echo, ("done",)
        elif phase == "shutdown":
            options["max_calls"] = 1
        elif phase in ("read", "write", "compile", "teardown", "between"):
            self._make_peers()
            words = (phase, where, self.first)
        yield self._wait(lambda: ray.remote(**options)(function).remote(*words), ray.get)

    def _method(self, phase: str, where: str) -> Iterator[dict[str, Any]]:
        options: dict[str, Any] = {**HOLDS, "max_restarts": 0}
        if phase == "start_worker":
            options["runtime_env"] = {"worker_process_setup_hook": lambda: point(where)}
        constructs = phase in ("construct", "construct_async")
        victim = ray.remote(**options)(AsyncSeat if phase == "construct_async" else Seat).remote(*[where] if constructs else [])
        if constructs or phase == "start_worker":
            yield self._wait(lambda: ray.get(victim.echo.remote("done"), timeout=PATIENCE))
            return
        if phase == "unpickle_argument":
            ref = victim.echo.remote(Traveller(where, "unpickle"))
        else:
            ref = victim.act.remote(phase, where)
        queued = victim.__ray_terminate__.remote() if phase == "shutdown" else victim.echo.remote("queued")
        yield self._wait(lambda: ray.get(ref, timeout=PATIENCE))
        yield self._wait(lambda: ray.get(queued, timeout=PATIENCE))

    def _graph(self, phase: str, where: str) -> Iterator[dict[str, Any]]:
        """The victim is the one in the middle."""
        self._make_peers()
        victim = ray.remote(**HOLDS)(Seat).remote()
        yield self._wait(lambda: self._through_graph(victim, phase, where))
        yield self._wait(lambda: ray.get(victim.echo.remote("after"), timeout=PATIENCE))

    def _through_graph(self, victim: Any, phase: str, where: str) -> Any:
        with ray.dag.InputNode() as value:
            if phase == "collective":
                from mray.experimental import collective

                summed = collective.allreduce.bind([self.first.ones.bind(value), victim.ones_at_once.bind(value)])
                node: Any = ray.dag.MultiOutputNode(summed)
            elif phase == "read":
                node = self.last.echo.bind(victim.echo.bind(self.first.make_unpicklable.bind(value)))
            elif phase == "write":
                node = self.last.echo.bind(victim.make_unreducible.bind(self.first.echo.bind(value)))
            elif phase == "compute":
                node = self.last.echo.bind(victim.compute.bind(self.first.echo.bind(value)))
            else:
                constant: Any = {"compile": lambda: Traveller(where, "unpickle"), "teardown": lambda: Keepsake(where)}.get(phase, str)()
                node = self.last.echo.bind(victim.echo.bind(self.first.echo.bind(value), constant))
        graph = node.experimental_compile()
        del node
        try:
            got = ray.get(graph.execute(where), timeout=PATIENCE)
            if phase == "between":
                with contextlib.suppress(ray.exceptions.RayError, RuntimeError, OSError, MemoryError):  # it is told by what follows
                    ray.get(victim.act.remote("run", where), timeout=PATIENCE)
                got = graph.execute(where).get(timeout=PATIENCE)
            if phase == "collective":
                got = [part.tolist() for part in got]
        finally:
            graph.teardown()
        return "same" if got == where else got

    # -- reporting -----------------------------------------------------------------------------
    @staticmethod
    def _wait(begin: Callable[[], Any], end: Callable[..., Any] | None = None) -> dict[str, Any]:
        """The outcome of waiting: a value, or an error with its text and attributes."""
        try:
            value = begin()
            if end is not None:
                value = end(value, timeout=PATIENCE)
            return {"value": value}
        except (Exception, KeyboardInterrupt) as error:
            info = {name: getattr(error, name, None) for name in ("pid", "signal", "exit_code")}
            cause = getattr(error, "cause", None) or error.__cause__
            return {
                "error": [cls.__name__ for cls in type(error).__mro__],
                "text": str(error),
                "cause": [cls.__name__ for cls in type(cause).__mro__] if cause is not None else [],
                "trace": "".join(traceback.format_exception(error)),
                **info,
            }

    # -- everything else -----------------------------------------------------------------------
    def _make_peers(self) -> None:
        if self.first is None:
            kind = ray.remote(num_cpus=0)(Seat)
            self.first, self.last = kind.remote(), kind.remote()
            ray.get([self.first.echo.remote(0), self.last.echo.remote(0)], timeout=PATIENCE)

    def prepare(self) -> dict[str, Any]:
        """Work that is independent of the victim: an actor with a state, and a graph."""
        self._make_peers()
        self.counter = ray.remote(num_cpus=0)(Counter).remote()
        with ray.dag.InputNode() as value:
            self.graph = self.last.echo.bind(self.first.echo.bind(value)).experimental_compile()
        return self.rest()

    def pids(self) -> dict[str, Any]:
        return {"pids": {"node": current_backend()._session.node_pid}}  # type: ignore[attr-defined]

    def rest(self, gone: str = "") -> dict[str, Any]:
        """Whether what has nothing to do with the victim goes on, new work can start, and all resources are free."""
        gc.collect()
        self.count += 1
        assert ray.get(self.counter.increment.remote(), timeout=PATIENCE) == self.count
        assert self.graph.execute(self.count).get(timeout=PATIENCE) == self.count
        assert ray.get(ray.put(large())).sum() == LARGE
        whole = ray.remote(num_cpus=CPUS, num_gpus=GPUS, resources={"slot": 1})(echo)
        assert ray.get(whole.remote("all"), timeout=PATIENCE) == "all"
        client = current_backend().client
        assert not gone or gone not in client.peers, f"a connection to the dead process {gone} is kept"
        return {"rest": "ok", "threads": sorted(thread.name for thread in threading.enumerate())}

    def look(self) -> dict[str, Any]:
        """The driver has survived, and so has its session."""
        gc.collect()  # what an error held
        assert ray.get(ray.remote(num_cpus=CPUS, num_gpus=GPUS, resources={"slot": 1})(echo).remote("all"), timeout=PATIENCE) == "all"
        return {"rest": "ok"}

    def again(self) -> dict[str, Any]:
        """The session is over: there can be another one."""
        ray.shutdown()
        ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
        assert ray.get(ray.remote(echo).remote("again"), timeout=PATIENCE) == "again"
        return {"rest": "ok"}

    def end(self) -> dict[str, Any]:
        self.counter = self.first = self.last = self.graph = None
        ray.shutdown()
        gc.collect()  # what an error held
        threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        return {"threads": threads, "files": sorted(set(open_files()) - set(self.before))}


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def increment(self) -> int:
        self.count += 1
        return self.count


def open_files() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


def serve(control: str) -> None:
    """A driver's life: do what the runner asks until it asks no more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(control)
        driver = Driver()
        lines = sock.makefile("r")
        for line in lines:
            verb, *words = json.loads(line)
            try:
                answer = getattr(driver, verb)(*words)
            except Exception:
                answer = {"broken": traceback.format_exc()}
            sock.sendall(json.dumps(answer, default=repr).encode() + b"\n")


# ----------------------------------------------------------------------------------------------- nursery
def nursery() -> str | None:
    """Fork drivers on demand. Returns in a driver: where it is to be told what to do."""
    for line in sys.stdin:
        verb, *words = json.loads(line)
        if verb == "fork":
            pid = os.fork()
            if not pid:
                folder, sessions = words
                _become_driver(folder, sessions)
                return os.path.join(folder, "control")
            answer = pid
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(words[0], 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def _become_driver(folder: str, sessions: str) -> None:
    for fd, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        opened = os.open(os.path.join(folder, name), flags | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    # It is ignored in tests that run in the background of a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["MRAY_TMPDIR"] = sessions
    os.chdir(folder)


def main() -> None:
    faulthandler.enable()
    gc.freeze()
    control = nursery()
    if control is not None:
        serve(control)
