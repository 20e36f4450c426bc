"""A private session on its driver's side: joining and ending it. (Its start: `launching`; shared ones: `mray._joining.persistent`.)"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mray._common import messages as m
from mray._common import settings
from mray._common.clock import perf_counter, time
from mray._common.dropped_errors import import_whole
from mray._common.ids import new_process_id, session_mark
from mray._common.kept import os
from mray._common.log import logger
from mray._ipc import kept_sessions, reaper
from mray._ipc.introductions import NODE
from mray._runtime.client import failed_calls
from mray._runtime.client.client import Client
from mray._runtime.connections.deaths import RESET, ended_error, node_error, reset_error
from mray._runtime.connections.endpoint import ProcessHost
from mray._runtime.processes import line_coverage
from mray._runtime.processes.host_program import check_host
from mray._runtime.processes.launch import parts_of_path
from mray._runtime.session.launching import (
    END_SECONDS,
    LaunchedNode,
    allow_descriptors,
    check_preload,
    choose_job,
    end_of_log,
    reap_node,
    take_files,
)
from mray.exceptions import RaySystemError, describe_status

if TYPE_CHECKING:
    from mray._common.options import SessionOptions

T = TypeVar("T")

#: As `END_SECONDS`, when SHUTDOWN cannot be sent, and the node must notice the hang-up.
_CUT_SECONDS = 2.0
#: Bytes of the record of failed calls.
_RECORD_BYTES = 1 << 20


class SessionHold(ProcessHost, ABC):
    """A driver's hold on a session, its own or one that it has joined."""

    #: Ends all work of this driver in the session, and returns its new client there; None where that is not possible.
    reset: Callable[[], Client] | None = None

    def __init__(self, directory: str, client: Client) -> None:
        self.directory = directory
        self.client = client
        self._owner = os.getpid()
        self._ended = False
        #: Why the session ends, if the node has sent that.
        self._ending = ""
        self._attach(client)
        main = sys.modules.get("__mp_main__")
        if main is not None:
            # A spawned child of multiprocessing has the user's script by this name, which workers do not have.
            import cloudpickle  # noqa: PLC0415  (10 ms, while the node starts)

            cloudpickle.register_pickle_by_value(main)

    def _attach(self, client: Client) -> None:
        client.process_host = self
        client.from_node.on({m.ENDING: self._on_ending})

    def _on_ending(self, _node: Any, text: str) -> None:
        self._ending = text

    def or_end(self, begin: Callable[[], T]) -> T:
        """Call `begin`, which may start a thread; if that fails, end the session before the error is raised."""
        try:
            return begin()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End all work of this driver and pass on its last output; a session of its own ends with every process, and leaves nothing.

        Idempotent.
        """
        if not self._holds():
            return
        self._ended = True
        client = self.client
        try:
            if not client.node.closed:
                client.node.send((m.SHUTDOWN,))
                # POINT shutdown told
                client.reactor.wait_until(self._is_over, END_SECONDS + settings.PROFILER_TIMEOUT.get())
        except RaySystemError:
            if client.reactor.closed_descriptors.error is None:
                raise
        finally:  # a signal handler may have raised in there
            client.close()
            client.reactor.guard.uninstall()
        if client.reactor.closed_descriptors.error is not None:
            logger.warning("%s What this process had there has been removed.", client.reactor.closed_descriptors.error)

    def give_up(self) -> None:
        """There is nothing to end: the session has failed to start."""
        self._ended = True

    def _holds(self) -> bool:
        """Whether this process still has the session: not after `end`, and not in a fork of the driver."""
        return not self._ended and os.getpid() == self._owner

    def _is_over(self) -> bool:
        """Whether the node has done all that `end` waits for."""
        return self.client.node.closed

    @abstractmethod
    def node_lost(self) -> BaseException | None:
        pass


class Session(SessionHold):
    """The driver's hold on a session of its own."""

    def __init__(self, directory: str, node_pid: int, client: Client) -> None:
        super().__init__(directory, client)
        self.reset = self._reset
        self.node_pid = node_pid
        #: Whether the node hangs up because of a reset.
        self._resetting = False
        self.coverage: dict[str, Any] | None = None

    def end(self) -> None:
        if not self._holds():
            return
        if kept_sessions.kept_count(self.directory):
            failed = failed_calls.rows(self.client.process)["rows"][::-1]
            record = {"pid": os.getpid(), "epoch": time() - perf_counter(), "failed": failed}
            kept_sessions.write_record(self.directory, self.client.process, record, _RECORD_BYTES)
        try:
            super().end()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        reap_node(self.node_pid, END_SECONDS if self.client.reactor.closed_descriptors.error is None else _CUT_SECONDS)
        # POINT node reaped
        if os.path.exists(self.directory):
            reaper.clean_after_node(self.directory)
        else:
            # Names that this process created while the node was cleaning.
            reaper.unlink_segments(reaper.session_of(self.directory))
        if self.coverage is not None:
            line_coverage.collect(self.coverage, reaper.session_of(self.directory))

    def _reset(self) -> Client:
        """End all work of this driver, and return a new client in the same session, with idle workers.

        Blocks until no process and no resource of that work is left. Raises when the node dies meanwhile. Refs and handles from before
        the reset raise errors that name it.
        """
        old, sock = self.client, None
        self._resetting = True
        old.entry.ended = RESET
        with old.lock:
            old.leases.give_back_idle()
        with contextlib.suppress(OSError):  # the node has died, which the wait below finds
            sock = old.connect(NODE)
        old.node.send((m.RESET,))
        old.reactor.wait_until(self._is_over)
        if old.node.refused and old.fatal is not None:
            raise old.fatal
        old.fail_everything(reset_error())
        old.close()
        old.reactor.guard.uninstall()
        failed_calls.clear()
        self._resetting = False
        client = self.client = Client(self.directory, new_process_id(session_mark(self.directory)), m.ROLE_DRIVER)
        self._attach(client)
        try:
            client.join(sock)
        except OSError as error:
            raise self.node_lost() or error from error
        client.reactor.guard.install()
        return client

    def node_lost(self) -> BaseException | None:
        """This driver cleans up when the node did not exit in order."""
        if self._resetting:
            return reset_error() if self._holds() else None
        if not self._holds():
            return ended_error()
        status = reap_node(self.node_pid, 1.0)
        text = f"the node process (pid {self.node_pid}) {describe_status(status)}"
        log = end_of_log(self.directory)
        reaper.clean_after_node(self.directory)
        if self._ending:
            return node_error(f"the session has ended: {self._ending}")
        return node_error(text + (f". Its log ends:\n{log}\n" if log else ""))


def start_session(node: LaunchedNode) -> Session:
    """Join the session whose node this process has launched. RaySystemError when the node cannot start (with the end of its log)."""
    try:
        failed_calls.clear()
        client = Client(node.directory, new_process_id(session_mark(node.directory)), m.ROLE_DRIVER)
        session = Session(node.directory, node.pid, client)
        session.coverage = node.coverage
    except BaseException:
        node.end()
        raise
    # Modules that the driver needs next, imported while the node starts.
    try:
        import_whole("cloudpickle")
        import_whole("hashlib")
        import_whole("mray._runtime.session.driver_output")
        import_whole("mray._api.log_handlers")
        client.join()
        # POINT session joined
    except BaseException as error:
        session.give_up()
        raise node.no_start(error) from error
    reaper.release(node.lock)
    client.reactor.guard.install()
    return session


def new_job(options: SessionOptions, directory: str) -> dict[str, Any]:
    """Prepare this process to join the session in a directory; returns its job specification."""
    check_host()
    check_preload(options)
    allow_descriptors()
    failed_calls.clear()
    job = choose_job(options, _place_of_driver(options.preload))
    take_files(job, directory)
    return job


def _place_of_driver(preload: tuple[str, ...]) -> dict[str, Any]:
    """How the workers of this driver's job find its modules and files."""
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = ""
    path = [path or cwd for path in sys.path]
    return {"path": path, "parts": parts_of_path(path), "cwd": cwd, "preload": list(preload)}
