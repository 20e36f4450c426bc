"""A process that nodes are forked from: for a driver that starts one session after the other, such as a run of tests.

Most of a session's start is importing. A template has imported the modules of node and workers, and numpy if the driver has.

::

    driver ──exec, once──▶ template ──fork──▶ node ──fork──▶ zygote ──fork──▶ workers
           ──LOAD (module)──▶                                                  of one session
           ──FORK (directory, environment, cwd, file descriptors)──▶
           ◀──DONE (pid)────────────────────────────────────────────
           ──REAP (pid)──▶ ◀──DONE (status)──

No session has run in the template, which runs no user code and imports none (`preload` is the zygote's). A `HeadStart` is a template
that imports slow libraries while the driver imports them, for the zygote; the node has them in shared pages that it never reads. Where
the driver's program has not begun yet and its first imports are known, they are imported once, and the template is forked from that
process, which has one thread. Such a session differs in two ways: the template is the node's parent, so the node watches its driver by a
pidfd that it gets; and the processes of all these sessions hash strings alike.

A process also inherits its environment, module paths, limits, affinity, priority and umask. A template is used only while these, most
settings of mray apart, are as they were when it started (`_inherited`); otherwise the node is started by exec. The template exits when
its driver closes it or dies; its sessions continue. A template in which a library has started a thread forks nothing, since a fork has
one thread.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import marshal
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from mray._common import settings
from mray._common.kept import fcntl, io, os, socket
from mray._common.messages import DONE, DRIVER_TO_TEMPLATE, FORK, LOAD, MESSAGES, REAP
from mray._common.protocol import misfit
from mray._ipc import process as processes
from mray._ipc.discovery import ORDER
from mray._ipc.faults import message_name
from mray._ipc.frames import decode_message
from mray._ipc.reaper import SESSION_VARIABLE
from mray._runtime.processes.host_program import interpreter
from mray._runtime.processes.launch import OPTIONS, PACKET, hold_options, launch, new_channel, path_of_session, write_options
from mray._runtime.processes.native_threads import lasting_threads, native_threads

#: Descriptors of the template, and of nodes that it forks: as of a node started by exec, and the driver's pidfd.
TEMPLATE_DRIVER = 3
NODE_DRIVER = 5
#: Bytes of the environment that the kernel shows which a session's directory replaces.
_DIRECTORY_ROOM = 256
#: Settings that are read once at the start of a process; a template may differ from its sessions in all others.
_OF_THE_BEGINNING = (settings.POINTS, settings.AS_RAY, settings.LIBRARIES)
#: Variables that change from test to test, and that a template does not use.
_PASSING = frozenset({"PYTEST_CURRENT_TEST", SESSION_VARIABLE, ORDER}).union(
    *((each.name, each.ray) for each in settings.ALL.values() if each not in _OF_THE_BEGINNING)
)
#: Limits, by number, that processes inherit.
_LIMITS = range(16)

importing = processes.importing

#: The template that forks the nodes of this process's sessions, while one is open.
current: Template | None = None
#: Pid of a node -> the template that forked it, until it is reaped.
_forked: dict[int, _Running] = {}


class _Running:
    """A template process and the driver's end of its connection. One thread at a time."""

    def __init__(self, begin: Callable[[dict[int, int]], int]) -> None:
        """`begin` starts the process, with its descriptors by their numbers there, and returns its pid."""
        self.inherited = _inherited(os.environ)
        self._channel, theirs = new_channel()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.pid = begin({0: null, 1: null, 2: null, TEMPLATE_DRIVER: theirs.fileno()})
        except BaseException:
            self._channel.close()
            raise
        finally:
            os.close(null)
            theirs.close()

    def load(self, module: str) -> None:
        """Make it import a module, without waiting. Raises OSError when it is dead, or its socket is full."""
        self._channel.send(marshal.dumps((LOAD, module)), socket.MSG_DONTWAIT)

    def fork(self, directory: str, environment: Mapping[str, str], descriptors: tuple[int, ...]) -> int:
        """Fork a node; returns its pid. Raises OSError when the template is dead, or cannot fork."""
        packet = marshal.dumps((FORK, directory, dict(environment), os.getcwd()))
        if len(packet) > PACKET:
            raise OSError("the environment is too large")
        pidfd = os.pidfd_open(os.getpid())
        try:
            socket.send_fds(self._channel, [packet], [*descriptors, pidfd])
        finally:
            os.close(pidfd)
        try:
            pid = self._receive_pid()
        except OSError:
            raise
        except BaseException:  # Ctrl-C: no caller gets that node's pid
            with contextlib.suppress(OSError):
                processes.kill(self._receive_pid())
            raise
        _forked[pid] = self
        return pid

    def reap(self, pid: int) -> int | None:
        """Exit status of a dead node; None when the template is dead, too."""
        try:
            self._channel.send(marshal.dumps((REAP, pid)))
            return self._receive_pid()
        except OSError:
            return None

    def _receive_pid(self) -> int:
        packet = self._channel.recv(PACKET)
        if not packet:
            raise OSError("the template is dead")
        _done, ok, number = decode_message(packet)
        if not ok:
            raise OSError(number, os.strerror(number))
        return int(number)

    def end(self) -> None:
        self._channel.close()
        processes.kill(self.pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class Template:
    """A driver's request that its sessions be forked. Close it when the last one is over."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        #: The inherited properties of a session that the template could not serve.
        self._missed: tuple[Any, ...] | None = None
        self._owner = os.getpid()

    def prepare(self, folder: str) -> None:
        """Start the process, unless one runs that can serve a session which begins now. `folder` belongs to it, and must exist as long.

        A process that cannot serve it stays for later sessions; it is replaced when the next session has the same properties as this
        one. Raises OSError when none can be started.
        """
        inherited = _inherited(os.environ)
        running = self._running
        if running is not None and running.inherited != inherited and inherited != self._missed:
            self._missed = inherited
        elif running is None or running.inherited != inherited:
            self.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, OPTIONS))
            write_options(folder, _own_options())
            self._running = _Running(lambda descriptors: _start(descriptors, folder))

    def launch_node(self, directory: str, environment: Mapping[str, str], descriptors: tuple[int, ...]) -> int | None:
        """Fork a node; returns its pid, or None when it is to be started by exec.

        `descriptors`: of its stdin, its output, its listener and its lock.
        """
        running = self._running
        if running is None or os.getpid() != self._owner or len(os.fsencode(directory)) > _DIRECTORY_ROOM:
            return None
        try:
            return running.fork(directory, environment, descriptors) if running.inherited == _inherited(environment) else None
        except OSError:  # dead, or cannot fork; exec reports that better if it fails too
            self.close()
            return None

    def close(self) -> None:
        """End the process and wait for its exit. Idempotent. Its sessions continue."""
        running, self._running = self._running, None
        self._missed = None
        if running is not None and os.getpid() == self._owner:
            running.end()


class HeadStart(Template):
    """A template that imports libraries while the driver imports them, for the sessions that the driver is going to start.

    It exits with the driver, or at the first session that it cannot serve. A driver's imports may come from any thread: the import
    system's locks do not order them, and messages of two threads do not mix.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The process that has, or was told, all that the driver had imported when it began.
        self._informed: _Running | None = None
        atexit.register(self.close)  # it may be in the middle of an import

    @staticmethod
    def has_a_driver() -> bool:
        """Whether this process starts sessions: it is none of a session's own, and not within a single test, which leaves nothing."""
        return SESSION_VARIABLE not in os.environ and "PYTEST_CURRENT_TEST" not in os.environ

    def load(self, module: str) -> None:
        """Make a process import a module; it is started for the first one."""
        if os.getpid() != self._owner:
            return
        try:
            if self._running is None:
                options = hold_options(_own_options())
                try:
                    self._running = _Running(lambda descriptors: _start(descriptors, "-", options))
                finally:
                    os.close(options)
            if self._running is not self._informed:  # an earlier one, which has exited, may have had those
                self._informed = self._running
                for known in settings.preloaded_everywhere():
                    self._running.load(known)
            self._running.load(module)
        except OSError:
            self.close()

    def split_off(self, serve_as_template: Callable[[dict[str, Any]], object]) -> bool:
        """Fork the process from this one, which has only imported modules. Returns False if that is impossible.

        `serve_as_template` is called there, and does not return.
        """
        if lasting_threads():
            return False
        try:
            self._running = self._informed = _Running(lambda descriptors: _fork(descriptors, serve_as_template))
        except OSError:
            return False
        return True

    def settle(self) -> None:
        if self._running is not None:
            self._running.inherited = _inherited(os.environ)

    def launch_node(self, directory: str, environment: Mapping[str, str], descriptors: tuple[int, ...]) -> int | None:
        pid = super().launch_node(directory, environment, descriptors)
        if pid is None:  # the program has changed its environment: the imports may belong to the old one
            self.close()
        return pid


def _start(descriptors: Mapping[int, int], session_dir: str, options: int = -1) -> int:
    """Start the process by exec. `options`: the open file, where there is none in the directory."""
    own = {**os.environ, SESSION_VARIABLE: "-" * _DIRECTORY_ROOM}
    return launch("template", session_dir, "-", own, descriptors, interpreter(), options)


def _fork(descriptors: Mapping[int, int], serve_as_template: Callable[[dict[str, Any]], object]) -> int:
    processes.check_room(SESSION_VARIABLE, _DIRECTORY_ROOM)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()
    # A Ctrl-C reaches it only when it is ready to ignore it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        pid = os.fork()
        if not pid:
            try:
                for fd, target in [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64), target) for target, fd in descriptors.items()]:
                    os.dup2(fd, target)
                processes.make_room(SESSION_VARIABLE, _DIRECTORY_ROOM)
                sys.path[:] = path_of_session()
                sys.modules["__main__"] = ModuleType("__main__")
                native_threads.one_for_loaded()
                serve_as_template(_own_options())
            finally:
                os._exit(1)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _own_options() -> dict[str, Any]:
    return {name: module in sys.modules for name, module in (("graphs", "mray._graph"), ("numpy", "numpy"))}


def reap(pid: int) -> int | None:
    """Exit status of a dead node that a template has forked; None if unknown."""
    running = _forked.pop(pid, None)
    return None if running is None else running.reap(pid)


def _inherited(environment: Mapping[str, str]) -> tuple[Any, ...]:
    """Properties that a process inherits from its parent and that are not passed on for each session."""
    with io.open("/proc/self/status", encoding="utf-8") as status:
        mask = next((line for line in status if line.startswith("Umask")), "")
    return (
        {name: value for name, value in environment.items() if name not in _PASSING},
        tuple(sys.path),
        sys.executable,
        os.sched_getaffinity(0),
        os.getpriority(os.PRIO_PROCESS, 0),
        tuple(resource.getrlimit(number) for number in _LIMITS),
        mask,
    )


# ---------------------------------------------------------------------------------------------- in the template
def serve(run_node: Callable[[str, dict[str, Any]], int]) -> int:
    """Fork nodes until the driver hangs up or is dead. Returns in a forked node: with its exit code."""
    processes.Title().set("template")
    driver = socket.socket(fileno=TEMPLATE_DRIVER)
    parent = os.getppid()
    pidfd = os.pidfd_open(parent)
    poll = select.poll()
    poll.register(driver, select.POLLIN)
    poll.register(pidfd, select.POLLIN)  # nodes that it has forked may hold its end of the socket open for longer
    # Exempt live objects from collection: a collection in a forked process would write to, and so copy, every page.
    gc.collect()
    gc.freeze()
    while os.getppid() == parent and all(fd != pidfd for fd, _events in poll.poll()):
        try:
            packet, fds, _flags, _address = socket.recv_fds(driver, PACKET, NODE_DRIVER + 1)
        except OSError:
            packet = b""
        if not packet:
            break
        message = decode_message(packet)
        wrong = misfit(message)
        if wrong or MESSAGES[message[0]].ways != DRIVER_TO_TEMPLATE:
            wrong = wrong or f"a driver must not send {message_name(message[0])}"
            raise ValueError(f"the driver sent the template an invalid message: {wrong}")
        if message[0] == LOAD:
            _load(message[1])
            continue
        if message[0] == REAP:
            _answer(driver, *_reaped(message[1]))
            continue
        try:
            if lasting_threads():
                raise OSError(errno.EBUSY, "")
            pid = os.fork()
        except OSError as error:
            _answer(driver, False, error.errno or 0)
            continue
        if not pid:
            driver.close()
            os.close(pidfd)
            _fork, directory, environment, folder = message
            return run_node(directory, _become_node(directory, environment, folder, fds))
        for fd in fds:
            os.close(fd)
        _answer(driver, True, pid)
    return 0


def _load(module: str) -> None:
    # If the import fails, the zygote tries again, and reports it.
    with native_threads.one_while_loading(), importing(), contextlib.suppress(Exception, SystemExit):
        importlib.import_module(module)


def _answer(driver: socket.socket, ok: bool, number: int) -> None:
    with contextlib.suppress(OSError):  # it is dead: the next `poll` shows it
        driver.send(marshal.dumps((DONE, ok, number)))


def _reaped(pid: int) -> tuple[bool, int]:
    try:
        return True, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except OSError as error:
        return False, error.errno or 0


def _become_node(directory: str, environment: dict[str, str], folder: str, fds: list[int]) -> dict[str, Any]:
    """Set up descriptors, working directory and environment, as exec would have. Returns the session's options."""
    # Through high numbers first, since a source may be another one's target.
    null, log, listener, lock, driver = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in fds)
    for fd, target in ((null, 0), (log, 1), (log, 2), (listener, 3), (lock, 4), (driver, NODE_DRIVER)):
        os.dup2(fd, target)
    with contextlib.suppress(OSError):
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    processes.show_variable(SESSION_VARIABLE, directory)
    with io.open(os.path.join(directory, OPTIONS), "rb") as file:
        options: dict[str, Any] = marshal.load(file)
    options["driver_pidfd"] = NODE_DRIVER
    return options
