"""The zygote: a clean process with the runtime imported, which forks workers.

    node ──SPAWN (process, environment) + 3 ends──▶ zygote ──fork──▶ worker
         ◀──SPAWNED (process, pid) or NOT_SPAWNED (process, text), REAPED (pid, status),
           PRELOAD_FAILED (module, text)──

It never runs user code (the session's preloaded modules apart), starts no thread and touches no GPU. Messages are marshalled tuples over
a pair of packet sockets.

A module that starts threads when it is imported, Python's or native ones, cannot be preloaded: a forked process has one thread, and
would wait for the others forever. The zygote reports such a module and executes its interpreter once more without it.

No exit status is lost: a dead child's status is read, reported, and only then is the child reaped. If the zygote dies in between, the
child becomes the node's, which reaps it. When the node hangs up, the zygote kills every worker and cleans the session.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import marshal
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from mray._common.kept import os, socket
from mray._common.messages import NOT_SPAWNED, PRELOAD_FAILED, REAPED, SPAWN, SPAWNED
from mray._common.protocol import misfit
from mray._decide.scheduler.root_names import ROOT_VARIABLE
from mray._ipc import process as processes
from mray._ipc.connection import receive_fds
from mray._ipc.faults import message_name
from mray._ipc.frames import decode_message
from mray._ipc.limits import advice
from mray._ipc.reaper import clean_after_node
from mray._runtime.processes.foresight import Foresight, seed_anew
from mray._runtime.processes.launch import PACKET, PYTHON_PATH, preloaded, start_anew, with_python_path
from mray._runtime.processes.native_threads import lasting_threads, native_threads

#: Runs a worker: takes ``session_dir, process, environment, options, node``. Returns its exit code.
WorkerMain = Callable[[dict[str, Any]], "int | None"]


#: Descriptors that come with SPAWN: for stdout, stderr, and the connection to the node.
WORKERS_ENDS = 3


class Zygote:
    def __init__(self, node: socket.socket, lifeline: int, lock: int, session_dir: str, options: dict[str, Any]) -> None:
        self._node = node
        self._lifeline = lifeline
        #: The session's lock: held while this process lives, and by no worker.
        self._lock = lock
        self._session_dir = session_dir
        self._options = options
        #: The values that variables of a private session's job have replaced; None: unset.
        self._before: dict[str, str | None] = {}
        self._children: set[int] = set()
        # Neither workers nor processes that a preloaded module forks hold it.
        os.register_at_fork(after_in_child=self._let_go)

    def run(self, load_worker_main: Callable[[], WorkerMain]) -> int:
        """Serve until the node hangs up. Returns in a forked worker: with its exit code."""
        # POINT becomes zygote
        processes.Title().set("zygote")
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_args: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        speak_utf8()
        around = dict(os.environ)
        with processes.importing():
            worker_main = load_worker_main()
        self._take_variables()
        if any(self._options.get(name) for name in ("coverage", "preload", "note")):
            with native_threads.one_while_loading():
                self._preload(around)
            gc.collect()
            gc.freeze()  # as `importing`

        poll = select.poll()
        poll.register(self._node, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        while True:
            for fd, _events in poll.poll():
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    self._reap()
                    continue
                start = self._serve()
                if start is not None:
                    signal.set_wakeup_fd(-1)
                    os.close(wake_read)
                    os.close(wake_write)
                    import_all(self._options.get("left", ()))
                    return _work(worker_main, start)

    def _take_variables(self) -> None:
        """Set the variables of the session's only job: preloaded modules read them, and its workers need not be started by exec."""
        variables = self._options["variables"]
        self._before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        if PYTHON_PATH in self._options["at_start"]:
            search_python_path(self._options)

    def _preload(self, around: dict[str, str]) -> None:
        """Import what workers begin with. `around`: the variables that this process has begun with."""
        if self._options.get("coverage") is not None:
            with contextlib.suppress(ImportError):
                importlib.import_module("coverage")
        known = lasting_threads()
        for module in self._options.get("preload", ()):
            try:
                importlib.import_module(module)
            except BaseException as error:  # SystemExit too: workers do without the module
                sys.excepthook(*sys.exc_info())
                self._tell(PRELOAD_FAILED, module, f"could not be imported: {type(error).__name__}: {error}")
            count = len(lasting_threads() - known)
            if count:
                threads = "a thread" if count == 1 else f"{count} threads"
                self._tell(PRELOAD_FAILED, module, f"has started {threads}, which no forked process has: each worker imports it by itself")
                self._begin_without(module, around)
        if self._options.get("note"):
            Foresight(self._options["note"]).import_noted()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()  # else each worker would print it again

    def _begin_without(self, module: str, around: dict[str, str]) -> None:
        """Execute this interpreter once more, and leave the module to the workers. Does not return."""
        options = {
            **self._options,
            "preload": [name for name in self._options["preload"] if name != module],
            "left": [*self._options.get("left", ()), module],
        }
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        start_anew(self._session_dir, around, (self._node.fileno(), self._lifeline, self._lock), options)

    def _tell(self, *message: Any) -> None:
        try:
            self._node.send(marshal.dumps(message))
        except OSError:
            self._node_died()

    def _serve(self) -> dict[str, Any] | None:
        """Handle one packet. Returns a worker's arguments in the forked worker."""
        try:
            packet, fds, cut = receive_fds(self._node, PACKET, WORKERS_ENDS)
        except ConnectionResetError:
            packet = b""  # it died before it had read all packets
        if not packet:
            self._node_died()
        message = decode_message(packet)
        wrong = misfit(message)
        if wrong or message[0] != SPAWN:
            raise ValueError(f"the node sent the zygote an invalid message: {wrong or f'a node must not send {message_name(message[0])}'}")
        # POINT zygote received: message[0]
        _code, process, environment = message
        try:
            if cut:
                raise OSError(errno.EMFILE, "")  # the kernel has dropped descriptors for lack of room
            # POINT about to fork
            pid = os.fork()
        except OSError as error:
            for fd in fds:
                os.close(fd)
            self._tell(NOT_SPAWNED, process, f"the zygote (pid {os.getpid()}) could not fork: {advice(error)}")
            return None
        if pid:
            # POINT worker forked
            self._children.add(pid)
            for fd in fds:
                os.close(fd)
            self._tell(SPAWNED, process, pid)
            return None
        self._node.close()
        stdout, stderr, node = fds
        for name in self._before.keys() - environment.keys():  # another job's worker
            os.environ.pop(name, None)
            os.environ.update({name: value} if (value := self._before[name]) is not None else {})
        become_worker(self._lifeline, stdout, stderr, environment)
        return {"session_dir": self._session_dir, "process": process, "environment": environment, "options": self._options, "node": node}

    def _let_go(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            self._tell(REAPED, info.si_pid, processes.exit_status(info))
            # POINT death reported
            self._children.discard(info.si_pid)
            os.waitpid(info.si_pid, 0)

    def _node_died(self) -> None:
        """Kill the workers, as the kernel does when the node exits, and remove the session's files and memory; then exit."""
        for pid in self._children:
            processes.kill(pid)
        clean_after_node(self._session_dir)
        os._exit(0)


def speak_utf8() -> None:
    """Print UTF-8 for the node, in any locale. Before a pipe replaces a file: Python would seek to its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(encoding="utf-8", errors=stream.errors)  # type: ignore[union-attr]


def search_python_path(options: dict[str, Any]) -> None:
    """Search the folders of PYTHONPATH, since the session's path has replaced the interpreter's own."""
    sys.path[:] = with_python_path(sys.path, os.environ.get(PYTHON_PATH), options["python_path"])


def become_worker(lifeline: int, stdout: int, stderr: int, environment: dict[str, str]) -> None:
    """Set up a new worker before any user code: its kernel session, output, environment, and its lifeline to the node.

    Linux shares busy cores among kernel sessions first (autogroup), so an actor with short calls gets its turn beside others that
    compute. The price: workers that wait for each other in the middle of a step, as over gloo, are slower on a busy machine.
    """
    with contextlib.suppress(PermissionError):  # a profiler has made it the leader of a session already
        os.setsid()
    # POINT becomes worker
    processes.die_with(lifeline)
    os.close(lifeline)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # POINT worker settled
    os.environ.update(environment)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    seed_anew(sys.modules)


def import_all(modules: Iterable[str]) -> None:
    with native_threads.one_while_loading():
        for module in modules:
            with contextlib.suppress(BaseException):
                importlib.import_module(module)


def _work(worker_main: WorkerMain, start: dict[str, Any]) -> int:
    """Run the worker; no exception of it may reach the zygote's loop."""
    try:
        return worker_main(start) or 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # reported, and the process exits
        sys.excepthook(*sys.exc_info())
        return 1


def run_fresh_worker(
    lifeline: int, node: int, session_dir: str, process: str, environment: dict[str, str], options: dict[str, Any], main: WorkerMain
) -> int:
    """Run a worker that was started by exec. `node`: its connection to the node, or -1."""
    speak_utf8()
    stdout, stderr = os.dup(1), os.dup(2)
    become_worker(lifeline, stdout, stderr, {})
    if PYTHON_PATH in environment:
        search_python_path(options)
    import_all(preloaded(options, environment.get(ROOT_VARIABLE, "")))
    return _work(main, {"session_dir": session_dir, "process": process, "environment": environment, "options": options, "node": node})
