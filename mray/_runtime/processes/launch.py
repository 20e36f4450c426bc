"""How a process of a session is started by exec: the command line, and the options, a file in the session's directory.

The starter of the node, or of a template, writes the file. The node holds it open and passes the descriptor to the processes that it
starts, which so need no directory. This module is loaded before the first fork, and so imports little.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mray._common.ids import JobID
from mray._common.kept import fcntl, io, os, socket
from mray._common.record import Record
from mray._decide.scheduler.root_names import job_of
from mray._ipc.frames import from_text, to_text
from mray._ipc.process import TITLE_ROOM, spawn

OPTIONS = "options"
#: The descriptor of that file in processes that the node starts.
_OPTIONS_FD = 6
#: Descriptors of a zygote that is started by exec: to the node, of its lifeline, of the session's lock.
ZYGOTES = (3, 4, 5)
#: Carries the variables of a worker that is started by exec.
WORKER_VARIABLE = "MRAY_WORKER_ENVIRONMENT"
#: A worker's process id, inherited by everything that its wrapper starts.
PROCESS_VARIABLE = "MRAY_WORKER_PROCESS"
#: The path by which a wrapped worker opens its lifeline: a wrapper need not pass descriptors on.
LIFELINE_VARIABLE = "MRAY_WORKER_LIFELINE"
RECIPE_VARIABLE = "MRAY_WORKER_RECIPE"
#: The driver's interpreter and folders of packages, in a worker with its own interpreter.
BASE_VARIABLE = "MRAY_WORKER_BASE"
PYTHON_PATH = "PYTHONPATH"
#: The first job of a private session.
FIRST_JOB = JobID.from_int(1).hex()
#: File in the folder of a virtual environment once all packages are installed.
COMPLETE = "complete.json"
#: Bytes of the largest packet between node and zygote (SPAWN, with the environment of a worker).
PACKET = 256 * 1024

# Note [face] Importing any module of the package would first import the package itself, which the node does not need. So a process
# begins with an empty package in its place; processes that run user code import the real one (`mray._backends.entry`).
_CODE = """\
import sys, marshal, os
where = sys.argv[4]
file = int(where) if where.isdigit() else os.open(where, os.O_RDONLY | os.O_CLOEXEC)
options = marshal.loads(os.pread(file, os.fstat(file).st_size, 0))
os.close(file)
if list(sys.version_info[:2]) != options["version"]:
    sys.exit("this is Python %d.%d, and the driver's functions are for Python %d.%d" % (*sys.version_info[:2], *options["version"]))
if sys.prefix == options["prefix"]:
    sys.path[:] = options["path"]
else:
    head, _, tail = options["parts"]
    own = [path for path in sys.path if path and path not in head]
    sys.path[:] = head + own + [path for path in tail if path not in own]
sys.modules["mray"] = face = type(sys)("mray")
face.__path__ = [options["package"]]
from mray._common.named_points import switch_on
switch_on()
from mray._backends.entry import main
main(sys.argv[1], sys.argv[2], sys.argv[3], options)
"""


def write_options(session_dir: str, options: dict[str, Any]) -> None:
    """Write the options, builtin values only."""
    _complete(options)
    fd = os.open(os.path.join(session_dir, OPTIONS), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        marshal.dump(options, file)


def hold_options(options: dict[str, Any]) -> int:
    """The descriptor of an open file with the options, for a process without a directory; the caller closes it."""
    _complete(options)
    return _as_file(options)


def _as_file(options: dict[str, Any]) -> int:
    fd = os.memfd_create("mray-options", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=False) as file:
        marshal.dump(options, file)
    return fd


def preloaded(options: Mapping[str, Any], root: str) -> list[str]:
    """The modules that a worker of this root begins with. Those of `init` are only for the job that has started the session, since they
    have read its variables and lie in its folders; those of `mray start` are for all jobs.
    """
    return [] if is_of_a_guest(options, root) else [*options.get("preload", ()), *options.get("left", ())]


def is_of_a_guest(options: Mapping[str, Any], root: str) -> bool:
    """Whether a worker of this root works for a driver that has joined another's private session."""
    return options.get("job") is not None and job_of(root) not in ("", FIRST_JOB)


def _complete(options: dict[str, Any]) -> None:
    """Add what an interpreter needs to import mray and what the driver imports."""
    options["package"] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    options["path"] = path_of_session()
    options["python_path"] = os.environ.get(PYTHON_PATH)
    options["parts"] = parts_of_path(options["path"])
    options["prefix"] = sys.prefix
    options["version"] = list(sys.version_info[:2])


def absolute(path: list[str]) -> list[str]:
    """Absolute paths of ``sys.path``, for processes with another working directory."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return [each for each in path if os.path.isabs(each)]
    return [os.path.join(here, each) if each else here for each in path]


def path_of_session() -> list[str]:
    """The driver's ``sys.path``, with the folders of a PYTHONPATH that the program has set since its start."""
    return with_python_path(absolute(sys.path), os.environ.get(PYTHON_PATH), _first_python_path())


def with_python_path(path: list[str], value: str | None, before: str | None) -> list[str]:
    """``sys.path`` as an interpreter started with this PYTHONPATH would have it, given the one of another PYTHONPATH.

    Its folders come before the standard library, the other one's after them: modules of the driver may lie there.
    """
    if not value or value == before:
        return path
    new = absolute(value.split(os.pathsep))
    old = absolute(before.split(os.pathsep)) if before else []
    head, library, rest = parts_of_path(path)
    first = [each for each in head if each not in new and each not in old]
    return [*first, *new, *(each for each in head if each in old and each not in new), *library, *rest]


def _first_python_path() -> str | None:
    try:
        with io.open("/proc/self/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:  # the process has changed its user
        return None
    start = PYTHON_PATH.encode() + b"="
    return next((os.fsdecode(each[len(start) :]) for each in variables if each.startswith(start)), None)


def parts_of_path(path: list[str]) -> tuple[list[str], list[str], list[str]]:
    """This process's ``sys.path``: before the standard library, that library, and after it, where other interpreters have their
    packages.
    """
    library = os.path.dirname(os.__file__)
    libraries = (library, os.path.join(library, "lib-dynload"))
    archive = "python{}{}.zip".format(*sys.version_info[:2])
    places = [index for index, each in enumerate(path) if each in libraries or os.path.basename(each) == archive]
    first = places[0] if places else len(path)
    rest = [each for index, each in enumerate(path) if index > first and index not in places]
    return path[:first], [path[index] for index in places], rest


class Wrapper(Record):
    #: The folder of the session's ``logs`` for its output.
    folder: str
    #: Whether the worker runs inside the wrapper's process: the command gets the worker's arguments alone.
    inside: bool
    #: Program and arguments; ``{output_dir}`` and ``{pid}`` (of the process that this command becomes) are replaced.
    command: tuple[str, ...]

    def encode(self) -> str:
        return to_text(tuple(self))

    @classmethod
    def decode(cls, text: str) -> Wrapper:
        """Raises ValueError if the record is damaged."""
        return cls(*from_text("of a wrapper", text, (str, bool, tuple)))

    def wrap(self, arguments: list[str], output_dir: str) -> list[str]:
        """The command line that runs `arguments` (the interpreter first) under this."""
        command = [part.replace("{output_dir}", output_dir) for part in self.command]
        rest = arguments[1:] if self.inside else arguments
        if not any("{pid}" in part for part in command):
            return [*command, *rest]
        import shlex  # noqa: PLC0415

        # Only the process itself knows its pid, and a shell keeps its pid over exec.
        words = ["$$".join(map(shlex.quote, part.split("{pid}"))) for part in command]
        return ["/bin/sh", "-c", f'exec {" ".join(words)} "$@"', "sh", *rest]


class LaunchedInterpreter(Record):
    """The interpreter of a worker that does not run the session's own."""

    command: tuple[str, ...]
    #: The packages to install first (`mray._runtime.environment.packages.recipe_of`), or None.
    recipe: dict[str, Any] | None
    #: The driver's interpreter and folders of packages: the base for environments of the worker's children.
    base: tuple[str, tuple[str, ...]]

    def encode(self) -> str:
        return to_text(tuple(self))

    @classmethod
    def decode(cls, text: str) -> LaunchedInterpreter:
        """Raises ValueError if the record is damaged."""
        return cls(*from_text("of an interpreter", text, (tuple, object, tuple)))

    def variables(self, own: Mapping[str, str]) -> dict[str, str]:
        variables = {BASE_VARIABLE: to_text(self.base)}
        if self.recipe is not None:
            programs = os.path.dirname(self.command[0])
            variables["VIRTUAL_ENV"] = os.path.dirname(programs)
            variables["PATH"] = os.pathsep.join(filter(None, (programs, own.get("PATH"))))
        return variables


def launch(
    role: str,
    session_dir: str,
    process: str,
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
    interpreter: str | None = None,
    options: int = -1,
) -> int:
    """Start an interpreter that runs `mray._backends.entry.main`; returns its pid.

    `options`: the open file; None: the process opens the one in the session's directory.
    """
    interpreter = interpreter or sys.executable
    where = os.path.join(session_dir, OPTIONS)
    if options >= 0:
        where, descriptors = str(_OPTIONS_FD), {**descriptors, _OPTIONS_FD: options}
    arguments = _arguments(role, session_dir, process, (interpreter, *_flags(interpreter)), where)
    return spawn(arguments[0], arguments, environment, descriptors)


def start_zygote(session_dir: str, variables: Mapping[str, str], node: int, lifeline: int, lock: int, options: int = -1) -> int:
    """Start a zygote by exec, with these additional variables; returns its pid. `options`: as of `launch`."""
    descriptors = dict(zip((0, *ZYGOTES), (0, node, lifeline, lock), strict=True))
    return launch("zygote", session_dir, "-", {**os.environ, **variables}, descriptors, options=options)


def start_anew(session_dir: str, variables: Mapping[str, str], ends: tuple[int, int, int], options: dict[str, Any]) -> None:
    """Replace this zygote by a fresh one. `ends`: its descriptors, as `ZYGOTES`. Does not return."""
    sources = [*ends, _as_file(options)]
    # Through high numbers first, since a source may be another one's target.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in sources]
    for fd, target in zip(high, (*ZYGOTES, _OPTIONS_FD), strict=True):
        os.dup2(fd, target)
    arguments = _arguments("zygote", session_dir, "-", (sys.executable, *_flags(sys.executable)), str(_OPTIONS_FD))
    os.execve(arguments[0], arguments, dict(variables))


def launch_wrapped(
    wrapper: Wrapper,
    session_dir: str,
    process: str,
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
    interpreter: Sequence[str],
    options: int,
) -> int:
    """Start a worker's interpreter under a wrapper, in its own kernel session; returns the wrapper's pid. Raises OSError."""
    output_dir = os.path.join(session_dir, "logs", wrapper.folder)
    os.makedirs(output_dir, 0o700, exist_ok=True)
    words = (*(interpreter or (sys.executable,)), *_site_flags("" if interpreter else sys.executable))
    if wrapper.inside:
        wrapper, words = wrapper._replace(command=(*words, *wrapper.command[1:])), words[:1]
    command = wrapper.wrap(_arguments("worker", session_dir, process, words, f"/proc/{os.getpid()}/fd/{options}"), output_dir)
    return spawn(command[0], command, {**environment, PROCESS_VARIABLE: process}, descriptors, new_session=True)


def _flags(interpreter: str) -> tuple[str, ...]:
    """Flags of the interpreter. Without ``-P`` Python 3.13.0 fails in a removed working directory."""
    flags = _site_flags(interpreter)
    try:
        os.getcwd()
    except FileNotFoundError:
        return (*flags, "-P") if sys.version_info >= (3, 11) else flags
    return flags


def _site_flags(interpreter: str) -> tuple[str, ...]:
    """This process's flags about folders with packages.

    A worker's own interpreter needs the packages beside it, which ``-S`` would hide.
    """
    no_site = sys.flags.no_site and interpreter == sys.executable
    return (*(("-s",) if sys.flags.no_user_site else ()), *(("-S",) if no_site else ()))


def _arguments(role: str, session_dir: str, process: str, interpreter: Sequence[str], options: str) -> list[str]:
    # The last argument is room for the title that `ps` shows.
    return [*interpreter, "-c", _CODE, role, session_dir, process, options, " " * TITLE_ROOM]


def is_complete(folder: str) -> bool:
    try:
        maker = os.stat(os.path.join(folder, COMPLETE)).st_uid
    except OSError:
        return False
    return maker in (os.getuid(), 0)  # files of another user are not run


def new_channel() -> tuple[socket.socket, socket.socket]:
    """The two ends of the connection between node and zygote."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET)
    return pair
