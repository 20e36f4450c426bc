"""The start of a session's node, for its driver and for `mray start`: its options, its directory, its process.

The driver creates the session's directory and its listening socket, starts the node, and connects: the connection waits in the socket until
the node is ready, so nothing polls. If the node dies meanwhile, the socket hangs up. Nothing here needs the rest of the engine, which a
driver imports while the node starts.

The directory is locked (flock) before it gets its name. Node and zygote inherit the open file, and the driver closes it when the node
has answered, since its forks would hold it too: so the lock is free only when both are dead, and then the next `init` removes the
directory.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mray._common import settings
from mray._common.beside import MPS_CONTROL, loaded
from mray._common.cache import cache_folder
from mray._common.kept import os
from mray._common.memory_options import monitor_options, retry_delay, retry_options
from mray._common.record import Record
from mray._common.version import versions
from mray._ipc import discovery, kept_sessions, reaper
from mray._ipc.listener import listen_at
from mray._ipc.output import end_of_file
from mray._ipc.pidfd import PidFd
from mray._ipc.process import has_terminal, kill
from mray._ipc.segment import PAGE, SHM, check_place, shared_memory_left
from mray._ipc.sessions import parent_of, private_directory, session_parents, take_port
from mray._ipc.table import measures
from mray._runtime.environment.environments import reduce_environment, take_over, variables_of, variables_of_zygote
from mray._runtime.processes import line_coverage, template
from mray._runtime.processes.foresight import note_of_program
from mray._runtime.processes.host_program import check_host, interpreter
from mray._runtime.processes.launch import launch, write_options
from mray.exceptions import ObjectStoreFullError, RaySystemError

if TYPE_CHECKING:
    from mray._common.options import SessionOptions

#: Seconds that the node, which waits for the kernel and for profilers, may take to exit before it is killed.
END_SECONDS = 20.0
#: Lines of the node's log that an error shows.
_LOG_LINES = 20
#: Share of the memory that objects may take by default; share of the rest that tasks may ask for as "memory".
_STORE_SHARE = 0.3
#: A driver that has imported one of these will use compiled graphs (`mray._backends.lazy_graphs`).
_SIGNS_OF_GRAPHS = ("mray.dag", "mray._graph")
#: A directory for temporary files that is on a disk everywhere.
_ON_DISK = "/var/tmp"
#: A persistent session's port, as Ray's.
DEFAULT_PORT = 6379
#: Open files that a process of a session may have, where the system allows it, and the fewest with which a small session works.
_DESCRIPTORS = 65536
_LEAST_DESCRIPTORS = 128

_NO_ROOM = "{what}: {place}. Make room there, or name another place for sessions with MRAY_TMPDIR or init(_temp_dir=...)."


class LaunchedNode(Record):
    """A node that this process has started for itself, and that no process has joined."""

    directory: str
    #: The descriptor of the directory's lock.
    lock: int
    pid: int
    #: See `mray._runtime.processes.line_coverage`.
    coverage: dict[str, Any] | None

    def end(self) -> str:
        """Kill the session's processes, and remove it. Returns the end of the node's log."""
        return end_node(self.directory, self.lock, self.pid)

    def no_start(self, error: BaseException) -> BaseException:
        """End the node, which could not start; the error to be raised."""
        return _no_start(error, self.directory, self.lock, self.pid)


def launch_own_node(options: SessionOptions) -> LaunchedNode:
    """Start the node of a private session. Raises ValueError for impossible resources."""
    chosen = checked_options(options)
    allow_descriptors()
    environment = dict(os.environ)
    coverage = chosen["coverage"] = line_coverage.request(environment)
    directory, lock, pid = launch_node(options.temp_dir, chosen, environment)
    return LaunchedNode(directory, lock, pid, coverage)


def checked_options(options: SessionOptions) -> dict[str, Any]:
    """As `choose_options`, for a session that this process starts. Raises why it cannot."""
    check_host()
    check_preload(options)
    return choose_options(options)


@contextlib.contextmanager
def new_node(options: SessionOptions) -> Iterator[tuple[str, int]]:
    """Start the node of a persistent session; (directory, pid). The session is ready for drivers when the body is done.

    RaySystemError when the node cannot start or the body fails (with the end of the node's log): then nothing of the session is left.
    """
    check_preload(options)
    allow_descriptors()
    directory, lock, pid = launch_node(options.temp_dir, choose_options(options, persistent=True))
    try:
        yield directory, pid
    except BaseException as error:
        raise _no_start(error, directory, lock, pid) from error
    reaper.release(lock)


def _no_start(error: BaseException, directory: str, lock: int, pid: int) -> BaseException:
    """End a node that could not start; the error to be raised."""
    log_text = end_node(directory, lock, pid)
    return RaySystemError(f"the node could not start: {error}\n{log_text}") if isinstance(error, Exception) else error


def check_preload(options: SessionOptions) -> None:
    for module in options.preload:
        if importlib.util.find_spec(module) is None:
            raise ImportError(f"init(preload=...): there is no module named {module!r}")


def launch_node(temp_dir: str | None, chosen: dict[str, Any], environment: dict[str, str] | None = None) -> tuple[str, int, int]:
    """Create a session's directory and start its node; returns the directory, the descriptor of its lock, and the node's pid.

    The node answers connections of its socket when it is ready. Raises RaySystemError where the disk is full.
    """
    try:
        launched = _launch_node(temp_dir or settings.TMPDIR.get(), chosen, environment)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename2 or error.filename or parent_of(temp_dir or settings.TMPDIR.get())
        raise RaySystemError(f"a session cannot start: {_NO_ROOM.format(place=place, what=error.strerror)}") from error
    try:
        _check_shared_memory(launched[0])  # while the node's interpreter starts
    except BaseException:
        end_node(*launched)
        raise
    return launched


def _check_shared_memory(directory: str) -> None:
    """Raise RaySystemError where there is no shared memory for a session's table."""
    try:
        check_place(reaper.segment_prefix(reaper.session_of(directory)), measures()[1] * PAGE)
    except ObjectStoreFullError as error:
        raise RaySystemError(f"a session cannot start: {error}") from error
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EROFS, errno.EACCES):
            raise
        raise RaySystemError(f"a session cannot start: {error.strerror}") from error


def _launch_node(temp_dir: str | None, chosen: dict[str, Any], environment: dict[str, str] | None) -> tuple[str, int, int]:
    program, kept = interpreter(), settings.KEPT_SESSIONS.get()
    directory, lock = make_directory(temp_dir)
    try:
        if os.path.dirname(directory) in session_parents() and not directory.startswith(f"{SHM}/"):  # where commands find it
            kept_sessions.mark(directory, kept)
        _give_port(directory, chosen["info"]["node_ip_address"], chosen.pop("ports"))
        spill = chosen.pop("object_spilling_directory") or _disk_for(directory)
        if spill is not None:
            reaper.spill_elsewhere(directory, spill)
        # POINT directory named
        with listen_at(os.path.join(directory, reaper.NODE_SOCKET)) as listener:
            chosen["info"]["session_name"] = os.path.basename(directory)
            if chosen["job"] is not None:
                take_files(chosen["job"], directory)
                chosen["env"] = chosen["job"]["env"]
            own = {**(os.environ if environment is None else environment), reaper.SESSION_VARIABLE: directory}
            own = discovery.with_order(own) if chosen["gpus"] else own
            chosen["variables"], chosen["at_start"] = variables_of_zygote(chosen["env"], own)
            write_options(directory, chosen)
            with contextlib.ExitStack() as stack:
                log = os.open(os.path.join(directory, "logs", "node.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, log)
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                stack.callback(os.close, null)
                source = template.current
                forked = None if source is None else source.launch_node(directory, own, (null, log, listener.fileno(), lock))
                descriptors = {0: null, 1: log, 2: log, 3: listener.fileno(), 4: lock}
                pid = forked or launch("node", directory, "-", own, descriptors, program)
                # POINT node launched
    except BaseException:
        reaper.remove_session(directory)
        reaper.release(lock)
        raise
    return directory, lock, pid


def _give_port(directory: str, host: str, ports: Sequence[int]) -> None:
    """Publish the session under its host and the first of these ports that no other has (see `mray._ipc.sessions`).

    Raises RaySystemError when others have them all. Where no link can be created its directory is its address.
    """
    own, known = os.path.dirname(directory), session_parents()
    for parent in (own,) if own in known else (known[0], own):
        try:
            if any(take_port(private_directory(parent), directory, host, port) for port in ports):
                return
        except OSError:
            continue
        raise RaySystemError(f"a session cannot start: port {ports[0]} is that of another session of this user, see `mray status`")
    if 0 not in ports:
        raise RaySystemError(f"a session cannot start: no link can be made in {known[0]} for port {ports[0]}")


def _disk_for(directory: str) -> str | None:
    """A directory on disk for spilled objects, when the session's own directory is in memory; else None."""
    if discovery.lies_in_memory(directory) and not discovery.lies_in_memory(_ON_DISK):
        with contextlib.suppress(OSError):
            return private_directory(os.path.join(_ON_DISK, f"mray-{os.getuid()}"))
    return None


def end_node(directory: str, lock: int, pid: int) -> str:
    """Kill the processes of a session that could not start, and remove it. Returns the end of the node's log."""
    log_text = end_of_log(directory) or _complaint_of_disk(directory)
    kill(pid)
    reap_node(pid, END_SECONDS)
    reaper.clean_after_node(directory)
    reaper.release(lock)
    return log_text


def _complaint_of_disk(directory: str) -> str:
    """The reason of a node that could not write its log, because the disk is full; "" otherwise."""
    with contextlib.suppress(OSError):
        info = os.statvfs(directory)
        if not info.f_bavail or (info.f_files and not info.f_favail):
            return _NO_ROOM.format(place=directory, what=os.strerror(errno.ENOSPC))
    return ""


def allow_descriptors() -> None:
    """Raise the soft limit of open files, for this process and its children. Raises RaySystemError where far too few are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _LEAST_DESCRIPTORS:
        raise RaySystemError(f"mray needs {_LEAST_DESCRIPTORS} open files in each process, and here {hard} are allowed: see `ulimit -Hn`.")
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def choose_options(options: SessionOptions, *, persistent: bool = False) -> dict[str, Any]:
    """The options of the session's processes: builtin values, with all defaults filled in. A `persistent` session begins without a job."""
    cpus = discovery.cpu_count() if options.num_cpus is None else options.num_cpus
    machine = discovery.machine_gpus()
    gpus = discovery.gpu_ids(options.num_gpus, os.environ, machine)
    total = discovery.memory_bytes()
    store = options.object_store_memory
    if store is None:
        store = int(min(total * _STORE_SHARE, shared_memory_left() * 0.95))
    memory = options.memory if options.memory is not None else max(0, int(total * 0.9) - store)
    resources: dict[str, float] = {"CPU": float(cpus), "memory": float(memory), "object_store_memory": float(store)}
    if gpus:
        resources["GPU"] = float(len(gpus))
        for kind in discovery.accelerator_types(gpus, machine):
            resources[f"accelerator_type:{kind}"] = 1.0
    address = discovery.reachable(options.node_ip_address)
    resources[f"node:{address}"] = 1.0
    resources["node:__internal_head__"] = 1.0
    resources.update({name: float(amount) for name, amount in (options.resources or {}).items()})
    resources.update({name: float(amount) for name, amount in settings.OVERRIDE_RESOURCES.get().items()})
    job = None if persistent else choose_job(options)
    node_id = os.urandom(28).hex()
    return {
        "driver_pid": os.getpid(),
        "resources": {name: amount for name, amount in resources.items() if amount},
        "gpus": gpus,
        "mps": _choose_mps(options.mps, gpus),
        "memory_monitor": {**monitor_options(options.system_config), "groups": discovery.memory_groups()},
        "env": {} if job is None else job["env"],
        "job": job,
        "persistent": persistent,
        "coverage": None,
        "graphs": persistent or any(name in sys.modules for name in _SIGNS_OF_GRAPHS),
        "object_spilling_directory": options.object_spilling_directory,
        "ports": [0] if options.port == 0 or not persistent else [options.port] if options.port else [DEFAULT_PORT, 0],
        "preload": [*settings.preloaded_everywhere(), *options.preload],
        "note": _note() if options.foresee else "",
        "info": {
            "node_id": node_id,
            "node_name": options.node_name or address,
            "node_ip_address": address,
            "labels": {**(options.labels or {}), **settings.OVERRIDE_LABELS.get()},
            "object_store_memory": store,
            "oom_retries": retry_options(options.system_config),
            "retry_delay": retry_delay(options.system_config),
            "oom_score": settings.WORKER_OOM_SCORE_ADJUSTMENT.get(),
            "niceness": settings.WORKER_NICENESS.get(),
            "spilling": options.object_spilling,
            "most_kept": settings.KEPT_OBJECT_MEMORY.get(),
            "most_of_disk": settings.LOCAL_FS_CAPACITY_THRESHOLD.get(),
            "versions": versions(),
        },
    }


def _choose_mps(word: str, gpus: Sequence[Any]) -> dict[str, str]:
    """See `mray._device.mps_control.choose`."""
    found: dict[str, str] = loaded(MPS_CONTROL).choose(word) if gpus else {"mode": "off", "program": ""}
    return found


def _note() -> str:
    with contextlib.suppress(OSError):
        return note_of_program(private_directory(cache_folder("imports")))
    return ""


def choose_job(options: SessionOptions, place: dict[str, Any] | None = None) -> dict[str, Any]:
    """This driver's job specification (see `mray._runtime.node.jobs`)."""
    runtime_env = reduce_environment(options.runtime_env)
    return {
        "namespace": options.namespace or settings.NAMESPACE.get() or os.urandom(16).hex(),
        "runtime_env": runtime_env,
        "env": variables_of(runtime_env),
        "log_to_driver": options.log_to_driver,
        "terminal": options.log_to_driver and has_terminal(),
        "logging_config": options.logging_config,
        "entrypoint": " ".join(sys.orig_argv),
        "place": place,
        "eager_install": (runtime_env.get("config") or {}).get("eager_install", True),
    }


def take_files(job: dict[str, Any], directory: str) -> None:
    """Take over into the session's directory the files that the job's environment names: they may be deleted before a worker starts."""
    if "working_dir" in job["runtime_env"] or "py_modules" in job["runtime_env"]:
        job["runtime_env"] = take_over(job["runtime_env"], directory)
        job["env"] = variables_of(job["runtime_env"])


def make_directory(base: str | None) -> tuple[str, int]:
    """A session directory that only its user can enter, and the descriptor of its lock. Sweeps dead sessions beside it."""
    parent = private_directory(parent_of(base))
    moment = time.strftime("%Y-%m-%d_%H-%M-%S")
    name = f"session_{moment}_{os.getpid()}_{reaper.new_session_mark()}"
    reaper.sweep(parent)
    # It gets its name once it is locked: a directory with the name and without a lock belongs to a dead session.
    hidden = os.path.join(parent, "." + name)
    os.mkdir(hidden, 0o700)
    if os.lstat(hidden).st_mode & 0o700 != 0o700:
        os.rmdir(hidden)
        raise PermissionError("the umask of this process takes its own user's rights away from new directories: set one like 0o077")
    # POINT directory made
    lock = -1
    try:
        lock = reaper.new_lock(hidden)
        os.mkdir(os.path.join(hidden, "logs"), 0o700)
        # POINT directory locked
        directory = os.path.join(parent, name)
        os.rename(hidden, directory)
    except BaseException:
        reaper.remove_session(hidden)
        if lock >= 0:
            reaper.release(lock)
        raise
    return directory, lock


def reap_node(pid: int, timeout: float) -> int | None:
    """Wait until the node is dead (SIGKILL after `timeout` seconds) and reap it. Returns its status if it can be read."""
    with contextlib.suppress(OSError), PidFd(pid) as node:
        if not node.wait(timeout):
            kill(pid)
            node.wait()
    try:
        _pid, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return template.reap(pid)  # a template's child; else the program ignores SIGCHLD, or waits for all its children
    return os.waitstatus_to_exitcode(status)


def end_of_log(directory: str) -> str:
    return end_of_file(os.path.join(directory, "logs", "node.log"), _LOG_LINES)
