"""A driver that is started in odd surroundings: a session, a task, an actor, an object, a graph, and the end of the session.

``python program.py SURROUNDING FILE`` writes to FILE what came of it: ``well``, or the error's type and text. A surrounding that is made
inside of the process is a function below; any other word means none.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import mray
import mray.dag

INTERPRETER = sys.executable
LARGE = 1 << 20
#: Bytes of shared memory that containers have by default.
SMALL_MEMORY = 64 << 20
#: Seconds after which what should come about counts as never coming about.
PATIENCE = 60.0


@mray.remote
def double(number: int) -> int:
    print("twice \N{EURO SIGN}", number)
    return 2 * number


@mray.remote
def place_of_mray() -> str:
    return mray.__file__


@mray.remote
def length(value: bytes) -> int:
    return len(value)


@mray.remote(num_cpus=0)
class Adder:
    def __init__(self, more: int) -> None:
        self.more = more

    def add(self, number: int) -> int:
        return number + self.more

    def size(self, value: bytes) -> int:
        return len(value)

    def wait(self) -> None:
        threading.Event().wait()

    def run(self, *words: str) -> str:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def use(size: int = LARGE) -> None:
    """Everything once, with an object of so many bytes."""
    mray.init(num_cpus=1, logging_level="ERROR")
    try:
        assert mray.get(double.remote(21)) == 42
        assert mray.get(place_of_mray.remote()).endswith(mray.__file__), "workers have another mray"
        assert mray.get(length.remote(mray.put(b"x" * size))) == size
        adder = Adder.remote(1)
        assert mray.get(adder.add.remote(41)) == 42
        with mray.dag.InputNode() as number:
            graph = adder.add.bind(number).experimental_compile()
        assert [graph.execute(each).get() for each in range(3)] == [1, 2, 3]
        graph.teardown()
        # A program that it starts is waited for, and hears what it is sent, whatever this process has been told to ignore.
        assert mray.get(adder.run.remote(INTERPRETER, "-SIc", "print(42)")) == "42\n"
        for_ever = adder.wait.remote()
        mray.kill(adder)
        try:
            mray.get(for_ever)
        except mray.exceptions.ActorDiedError:
            pass
        else:
            raise AssertionError("a dead actor answers")
    finally:
        mray.shutdown()


def report(text: str) -> None:
    """Leave what came of it."""
    _tell(sys.argv[2], text)


def _tell(target: str, text: str) -> None:
    """Make a file, as a whole."""
    fd = os.open(target + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(fd, text.encode("utf-8", "backslashreplace"))
    os.close(fd)
    os.rename(target + ".new", target)


def try_it(size: int = LARGE) -> None:
    """Use mray and report."""
    try:
        use(size)
    except BaseException as error:
        traceback.print_exc()
        report(f"{type(error).__name__}: {error}")
    else:
        report("well")


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
    """Report how what is done with the session has gone, and end it."""
    try:
        yield
    except BaseException:
        report(traceback.format_exc())
    else:
        report("well")
    finally:
        mray.shutdown()


# ------------------------------------------------------------------------------------------- surroundings
def in_a_thread() -> None:
    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()


def in_a_daemon() -> None:
    """As a service begins: twice forked, in a kernel session of its own, without a terminal, in the root folder."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0)
    os.closerange(0, 256)
    try_it()


def without_standard_files() -> None:
    os.closerange(0, 3)
    try_it()


def without_python_streams() -> None:
    sys.stdin = sys.stdout = sys.stderr = None  # type: ignore[assignment]
    try_it()


def in_a_folder_that_is_gone() -> None:
    folder = f"{sys.argv[2]}.folder"
    os.mkdir(folder)
    os.chdir(folder)
    os.rmdir(folder)
    try_it()


def with_a_path_from_here() -> None:
    """As ``python -c`` and prompts have it, in a folder that is gone."""
    sys.path.insert(0, "")
    in_a_folder_that_is_gone()


def with_umask_0() -> None:
    os.umask(0)
    try_it()


def with_umask_0777() -> None:
    os.umask(0o777)
    try_it()
    os.umask(0o022)


def with_few_open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    try_it()


def with_far_too_few_open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    try_it()


def with_sigchld_ignored() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try_it()


def with_sigpipe_deadly() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try_it()


def with_all_signals_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try_it()


def without_an_environment() -> None:
    os.environ.clear()
    try_it()


def without_its_interpreter() -> None:
    sys.executable = ""
    try_it()


def _become_a_host(**info: Any) -> None:
    """As if this were a program with Python inside, which would do nothing but begin again, whatever it is started with."""
    runs = os.path.join(os.getcwd(), "runs")
    host = os.path.join(os.getcwd(), "host")
    with open(host, "w") as file:
        file.write(f"#!/bin/sh\necho >>{runs}\nexit 1\n")
    os.chmod(host, 0o700)
    sys.executable = host
    for name, value in info.items():
        setattr(sys, name, value)
    try:
        try_it()
    finally:
        assert not os.path.exists(runs), "the program has been started again"


def _prefixes(folder: str) -> dict[str, str]:
    return dict.fromkeys(("prefix", "exec_prefix", "base_prefix", "base_exec_prefix"), folder)


def in_a_host_program() -> None:
    _become_a_host()


def in_a_host_program_without_an_interpreter() -> None:
    _become_a_host(**_prefixes(os.getcwd()))


def in_a_frozen_program() -> None:
    _become_a_host(frozen=True, **_prefixes(os.getcwd()))


def in_a_host_program_with_the_interpreter_of_another_version() -> None:
    folder = os.path.join(os.getcwd(), "other")
    os.makedirs(os.path.join(folder, "bin"))
    for name in ("python3", "python{}.{}".format(*sys.version_info[:2])):
        with open(os.path.join(folder, "bin", name), "w") as file:
            file.write("#!/bin/sh\necho 2 7 cpython\n")
        os.chmod(file.name, 0o700)
    _become_a_host(**_prefixes(folder))


def _patch(library: str, module: str, ask: str) -> None:
    """As if a library had put its own in the place of Python's sockets."""
    patcher = types.ModuleType(f"{library}.{module}")
    setattr(patcher, ask, lambda part: part == "socket")
    sys.modules[patcher.__name__] = patcher
    try_it()


def with_gevent() -> None:
    _patch("gevent", "monkey", "is_module_patched")


def with_eventlet() -> None:
    _patch("eventlet", "patcher", "is_monkey_patched")


def _with_files_of(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        try_it()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def with_very_short_files() -> None:
    _with_files_of(100)


def with_files_shorter_than_an_object() -> None:
    _with_files_of(LARGE - 1)


def _refuse(*_arguments: Any, **_keywords: Any) -> Any:
    raise RuntimeError("this test does without")


class _GuardedSocket(socket.socket):
    """As pytest-socket has it."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> Any:
        return _refuse()


class _FakeModule(types.ModuleType):
    """As pyfakefs puts into every module that has the real one: files are not there."""

    def __init__(self, original: types.ModuleType) -> None:
        super().__init__(original.__name__)
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return _refuse if name in _OF_FILES else getattr(self.original, name)


#: Functions of `os` that guards of files replace.
_OF_FILES = [
    *("open", "read", "write", "close", "fdopen", "stat", "lstat", "statvfs", "access", "listdir", "scandir", "mkdir", "makedirs"),
    *("unlink", "remove", "rmdir", "rename", "replace", "link", "readlink", "symlink", "chmod", "utime", "pipe"),
]


def _guard(*places: tuple[types.ModuleType, str, Any]) -> None:
    """Use mray while these are replaced: from the beginning, and after `init`."""
    originals = [getattr(module, name) for module, name, _value in places]

    def replace(*_arguments: Any) -> Any:
        for module, name, value in places:
            setattr(module, name, value)

    begin = mray.init
    try:
        replace()
        use()
        for (module, name, _value), original in zip(places, originals, strict=True):
            setattr(module, name, original)
        mray.init = lambda *a, **k: (begin(*a, **k), replace())  # type: ignore[assignment]
        use()
        text = "well"
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
    finally:
        mray.init = begin
        for (module, name, _value), original in zip(places, originals, strict=True):
            setattr(module, name, original)
    report(text)


def under_a_guard_of_sockets() -> None:
    _guard(
        (socket, "socket", _GuardedSocket), (socket, "socketpair", _refuse), (socket, "getaddrinfo", _refuse), (socket, "fromfd", _refuse)
    )


def under_a_guard_of_open() -> None:
    _guard((builtins, "open", _refuse), (io, "open", _refuse))


def under_a_guard_of_files() -> None:
    _guard(*((os, name, _refuse) for name in _OF_FILES))


def with_a_fake_file_system() -> None:
    fakes = {each: _FakeModule(each) for each in (os, io, shutil, fcntl)}
    holders = [
        (module, name, fakes[value])
        for module in list(sys.modules.values())
        if module.__name__.startswith("mray")
        for name, value in vars(module).items()
        if type(value) is types.ModuleType and value in fakes
    ]
    _guard(*holders)


def in_a_forked_child() -> None:
    _in_a_child("fork")


def in_a_spawned_child() -> None:
    _in_a_child("spawn")


def _in_a_child(method: str) -> None:
    import multiprocessing

    child = multiprocessing.get_context(method).Process(target=try_it)
    child.start()
    child.join()


def in_a_small_container() -> None:
    """As the first process of one, which waits for nobody but the program: whoever else ends there stays as a zombie."""
    child = os.fork()
    if not child:
        try_it(SMALL_MEMORY + LARGE)  # more than there is shared memory
        os._exit(0)
    os.waitpid(child, 0)
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != 1 and not _is_dead(pid)]:
        if time.monotonic() > deadline:
            report(f"left behind: {left}")
            break
        time.sleep(0.01)
    left_names = os.listdir("/dev/shm")
    if left_names:
        report(f"left behind: {left_names}")


def _is_dead(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] == b"Z"
    except OSError:
        return True


def after_root() -> None:
    """As a service that gives up its rights: the kernel hides what such a process has open from others of its new user."""
    _become(65534)
    try_it()


def _become(user: int) -> None:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def without_room_for_a_process() -> None:
    """As a user of one's own, who may have no more processes than there are, for a while: by the kernel's own limit."""
    user = int(os.environ["USER_ID"])
    _become(user)
    mray.init(num_cpus=1, logging_level="ERROR")
    with _reporting():
        assert mray.get(length.remote(b"x")) == 1
        told = ""
        try:
            with _no_more_processes(user):
                mray.get(_another().add.remote(1))
        except mray.exceptions.RayError as error:
            told = str(error)
        assert "could not fork: Resource temporarily unavailable" in told and "ulimit -u" in told, told
        assert mray.get([length.remote(b"x"), _another().add.remote(1)]) == [1, 2]
        late = None
        with _no_more_processes(user):
            late = _another().add.remote(1)
            assert mray.get(length.remote(b"x")) == 1
        assert mray.get(late) == 2


def _another() -> Any:
    """In a process of its own, and none of those that have been started for later."""
    return Adder.options(num_cpus=0, runtime_env={"env_vars": {"NUMBER": os.urandom(4).hex()}}).remote(1)


@contextlib.contextmanager
def _no_more_processes(user: int) -> Iterator[None]:
    """While this is entered, none of this user's processes forks."""
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_of(pid, user)]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_NPROC) for pid in pids}
    for pid, (_soft, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_NPROC, (1, hard))
    try:
        yield
    finally:
        for pid, before in limits.items():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NPROC, before)


def _is_of(pid: str, user: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == user
    except OSError:
        return False


def in_a_folder_of_roots() -> None:
    """Where the user may not even look."""
    os.chdir(os.environ["CLOSED_FOLDER"])
    after_root()


def under_attack() -> None:
    """Say where everything is, wait until the attack is over, and go on with all that was there before."""
    folder = os.environ["MEETING"]
    context = mray.init(num_cpus=1, logging_level="ERROR", runtime_env={"env_vars": {"TOKEN": os.environ["SECRET"]}})
    with _reporting():
        adder = Adder.remote(1)
        # One whose interpreter is its own, started with its variables.
        other = Adder.options(runtime_env={"env_vars": {"PYTHONHASHSEED": "1", "TOKEN": os.environ["SECRET"]}}).remote(2)
        value = mray.put(b"x" * LARGE)
        assert mray.get([adder.add.remote(1), other.add.remote(1), length.remote(value)]) == [2, 3, LARGE]
        with mray.dag.InputNode() as number:
            graph = adder.size.bind(number).experimental_compile()
        assert graph.execute(b"y" * LARGE).get() == LARGE
        _tell(os.path.join(folder, "there"), context["session_dir"])
        while not os.path.exists(os.path.join(folder, "over")):
            time.sleep(0.005)
        assert mray.get([adder.add.remote(2), other.add.remote(2), length.remote(value)]) == [3, 4, LARGE]
        for more in range(1, 4):
            assert mray.get(length.remote(mray.put(b"x" * LARGE * more))) == LARGE * more
            assert graph.execute(b"y" * LARGE * 2**more).get() == LARGE * 2**more
        graph.teardown()


def main() -> None:
    surrounding: Callable[[], None] = globals().get(sys.argv[1], try_it)
    surrounding()


if __name__ == "__main__":
    main()
