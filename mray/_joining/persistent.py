"""A persistent session: started once, joined by any number of drivers, ended by `mray stop`.

::

    mray start ──exec──▶ node (its own kernel session, no terminal) ──fork──▶ zygote
        └── waits until the node answers, names the session in ``address``, ends
    driver ──reads ``address``──▶ HELLO + job ──▶ node: job 02000000, its namespace, its workers
    mray stop ──SIGTERM──▶ node: notifies the drivers, ends all, removes every name; SIGKILL if it does not

The node watches the process that has started it until the session is named, so a `mray start` that is killed midway leaves nothing.
Afterwards only `mray stop` or a signal ends it. If the node is killed, the kernel ends the workers, the zygote or else a driver removes
the names, and every driver gets an error.

The end of a driver ends only its own work. Its workers run with its ``sys.path`` and working directory, and the environment variables of
`mray start`. A private session is joined in the same way, by its address, and still ends with the driver that has started it.

Rejected: a listener on the network (connect over ssh and be a driver there).
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

from mray._common import clock, settings
from mray._common import messages as m
from mray._common.clock import monotonic
from mray._common.ids import new_process_id, session_mark
from mray._common.kept import os
from mray._common.version import versions
from mray._inside.client import Client
from mray._inside.drivers import SessionHold, ended_error, new_job, new_node, node_error
from mray._inside.processes import PidFd, parent_of, start_of, status_of_dead
from mray._inside.sessions import (
    SESSION_VARIABLE,
    clean_after_node,
    directory_at,
    is_alive,
    is_of_this_namespace,
    is_private,
    kill_processes,
    parent_folder,
    private_directory,
    session_parents,
    sessions,
    withdraw,
)
from mray._joining.address import Address, only_one, publish, running, running_in
from mray._observe.observer import SessionGoneError, ask_node
from mray.exceptions import RaySystemError, describe_status

if TYPE_CHECKING:
    from mray._common.options import SessionOptions

#: Seconds before `stop` kills the node.
STOP_SECONDS = 20.0
#: Seconds for a dead node to exit.
_GONE_SECONDS = 1.0
#: Seconds for the zygote to clean up after that node, and between two checks.
_CLEAN_SECONDS, _CLEAN_LOOK = 10.0, 0.002
#: Seconds after which a private session's node counts as dead.
_ANSWER_SECONDS = 30.0
#: Unlimited: the node answers when it is ready, and its death closes the socket.
_FOR_EVER = 86_400.0

_NONE_RUNS = (
    "Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag or `RAY_ADDRESS` "
    "environment variable."
)


class AlreadyRunningError(RuntimeError):
    """Raised when a persistent session already runs under this temporary directory: `address`."""

    def __init__(self, address: Address) -> None:
        super().__init__(f"a session is running already in {address.session_dir} (node pid {address.node_pid}); end it with mray stop")
        self.address = address


class OutOfSightError(RuntimeError):
    """Raised when the processes of a session to be ended cannot be seen from here."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"the session in {directory} is alive, but its processes cannot be seen from here: it was started in another container (PID "
            "namespace); end it there"
        )


# ------------------------------------------------------------------------------------------- starting and stopping
def start_persistent(options: SessionOptions) -> Address:
    """Start a session that outlives this process; returns when it is ready for drivers.

    Raises AlreadyRunningError, and RaySystemError when the node cannot start (with the end of its log).
    """
    parent = private_directory(parent_folder(options.temp_dir or settings.TMPDIR.get()))
    with only_one(parent):
        there = running_in(parent)
        if there is not None:
            raise AlreadyRunningError(there)
        with new_node(options) as (directory, pid):
            ask_node(directory, "snapshot", _FOR_EVER)
            publish(directory, pid)
        found = running_in(parent)
    if found is None:
        raise RaySystemError("the session ended while it was starting")
    return found


def stop_persistent(address: Address, patience: float = STOP_SECONDS, *, force: bool = False) -> bool:
    """End a persistent session with all its processes; True if the node ended it in order.

    Blocks until nothing of it is left: SIGTERM to the node, SIGKILL after `patience` seconds or immediately with `force`.
    OutOfSightError, and no effect, when it lives and its processes cannot be seen from here.
    """
    directory = address.session_dir
    in_order = False
    with contextlib.suppress(OSError), PidFd(address.node_pid) as node:
        if address.node_lives():
            if not force:
                node.signal(signal.SIGTERM)
                in_order = node.wait(patience)
            if not in_order:
                node.signal(signal.SIGKILL)
                node.wait()
    if os.path.exists(directory) or not in_order:
        kill_processes(directory)
        if is_alive(directory):
            raise OutOfSightError(directory)
        clean_after_node(directory)
    withdraw(directory)
    return in_order


# ----------------------------------------------------------------------------------------------------------- joining
def find(address: str, temp_dir: str | None = None) -> Address:
    """The session that an address names: by ``host:port``, its directory or its name, or ``"auto"``: the one that the environment names,
    the persistent one, or that of an ancestor process.

    Raises ConnectionError when it does not run, ValueError for an invalid address, RuntimeError when it runs another Python or mray.
    """
    if address == "auto":
        address = settings.named_address() or address
    if address == "auto":
        found = running(temp_dir) or _of_a_process_above()
        if found is None or (temp_dir is not None and os.path.dirname(found.session_dir) != parent_folder(temp_dir)):
            raise ConnectionError(_NONE_RUNS)
    else:
        found = _named(directory_at(address, temp_dir) or address.rstrip("/"))
    if found.versions != versions():
        theirs, ours = ("Python {}, mray {}".format(*each) for each in (found.versions, versions()))
        raise RuntimeError(f"Version mismatch: the session in {found.session_dir} was started with {theirs}; this process runs {ours}.")
    return found


def _named(address: str) -> Address:
    if os.path.isabs(address):
        candidates = [running_in(os.path.dirname(address)), _private(address)]
    elif address.startswith("session_"):
        candidates = [found for parent in session_parents() for found in (running_in(parent), _private(os.path.join(parent, address)))]
    elif address.startswith("ray://") or ":" in address:
        raise ConnectionError(
            f"mray runs on this host and cannot connect to {address!r}, where no session of this user is running; leave `address` out for "
            "a session of your own, or use 'auto' for the one that `mray start` has started."
        )
    else:
        raise ValueError(f"Invalid address format: {address}")
    for found in candidates:
        if found is not None and address in (found.session_dir, os.path.basename(found.session_dir)):
            return found
    raise ConnectionError(f"Could not find any running Ray instance at {address!r}: no session is running there.")


def _of_a_process_above() -> Address | None:
    """The private session of the nearest ancestor process that has started one, also through a worker."""
    if (around := os.environ.get(SESSION_VARIABLE)) is not None:
        return _private(around)
    here = filter(is_of_this_namespace, sessions())
    drivers = {directory.rpartition("_")[0].rpartition("_")[2]: directory for directory in here}
    above = parent_of(os.getpid())
    while above > 1 and str(above) not in drivers:
        above = parent_of(above)
    return _private(drivers[str(above)]) if above > 1 else None


def _private(directory: str) -> Address | None:
    """The session in this directory, if a driver of this user has started it privately and it answers."""
    if not is_private(os.path.dirname(directory)) or not is_alive(directory):
        return None
    try:
        node = ask_node(directory, "snapshot", _ANSWER_SECONDS)
    except (OSError, SessionGoneError):
        return None
    pid = node["node_pid"]
    return Address(directory, pid, start_of(pid), node["info"]["versions"])


class JoinedSession(SessionHold):
    """A driver's hold on a persistent session."""

    def __init__(self, address: Address, client: Client) -> None:
        super().__init__(address.session_dir, client)
        self._address = address
        self._left = False
        client.from_node.on({m.LEFT: self._on_left})

    def _on_left(self, _node: Any) -> None:
        self._left = True

    def _is_over(self) -> bool:
        return self._left or super()._is_over()

    def node_lost(self) -> BaseException | None:
        """The error of a session that has ended, in order or not; None when the node lives and only this driver's connection broke."""
        if not self._holds():
            return ended_error()
        if self.client.node.refused:
            return None
        pid = self._address.node_pid
        status = _await_end(self._address)
        # The zygote cleans up now, or it is dying too, and the last process cleans up.
        deadline = monotonic() + _CLEAN_SECONDS
        while is_alive(self.directory) and monotonic() < deadline:
            clock.sleep(_CLEAN_LOOK)
        if not is_alive(self.directory):
            clean_after_node(self.directory)
        if self._ending:
            return node_error(f"the session in {self.directory} has ended: {self._ending}")
        return node_error(f"the node process (pid {pid}) of the session in {self.directory} {describe_status(status)}")


def join_session(options: SessionOptions) -> JoinedSession:
    """Join the session that ``options.address`` names, as a driver with its own job. Errors as of `find`, and RaySystemError."""
    assert options.address is not None
    address = find(options.address, options.temp_dir)
    if options.conflict is not None:
        raise ValueError(options.conflict)
    job_spec = new_job(options, address.session_dir)
    client = Client(address.session_dir, new_process_id(session_mark(address.session_dir)), m.ROLE_DRIVER)
    client.job_spec = job_spec
    session = JoinedSession(address, client)
    try:
        client.join()
    except BaseException as error:
        client.close()
        if isinstance(error, OSError):
            raise ConnectionError(f"the session in {address.session_dir} did not admit this driver: {error}") from error
        raise
    client.reactor.guard.install()
    return session


def _await_end(address: Address) -> int | None:
    """Wait a moment for the node to exit; returns its status if readable (it is no child of this process)."""
    with contextlib.suppress(OSError), PidFd(address.node_pid) as node:
        if address.node_lives():
            node.wait(_GONE_SECONDS)
        if is_of_this_namespace(address.session_dir):
            return status_of_dead(address.node_pid)
    return None
