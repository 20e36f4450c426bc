"""Things taken away from a session that lives: a table of things, moments, and the answers to the calls that wait then.

Each row is a program of its own (`taken_program.py`), which runs its moment, has a thing taken away in the middle of it, and prints its
end: the value that it would have had anyway, or an error of the named kind whose text has the cause.

To add a row: a function in `TAKERS` if none takes that away yet, one in `taken_program.MOMENTS` if none waits in that way yet, and the
line in `ROWS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SHM = "/dev/shm"
#: An object's name: the session, its owner, its producer and a number.
_OBJECT = re.compile(r"mray-\w+-[0-9a-f]{16}-[0-9a-f]{17,}$")


class Row(NamedTuple):
    """One program."""

    #: A key of `TAKERS`.
    what: str
    #: A key of `taken_program.MOMENTS`; who waits is said there.
    moment: str
    #: "" for the value, else the name of the error's class.
    error: str = ""
    #: A part of the error's text.
    text: str = ""

    def __str__(self) -> str:
        return f"{self.what}, {self.moment}"


def session_names(sessions: str) -> list[str]:
    """The names in shared memory of the sessions whose directories lie there."""
    tokens = [path.name.rpartition("_")[2] for path in Path(sessions).glob("*/session_*")]
    starts = tuple(f"mray-{token}-" for token in tokens)
    return [name for name in os.listdir(SHM) if starts and name.startswith(starts)]


def _remove(names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(SHM, name))


@contextlib.contextmanager
def _all_along(sessions: str) -> Iterator[None]:
    """Every name that comes, as soon as it is seen, but those of objects, which lie there by name."""
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            _remove([name for name in session_names(sessions) if not _OBJECT.match(name)])

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _once(sessions: str) -> Iterator[None]:
    """All that are there, objects as well."""
    _remove(session_names(sessions))
    yield


@contextlib.contextmanager
def _group_files(sessions: str) -> Iterator[None]:
    """Files by which members of groups find each other."""
    for place in Path(sessions).glob("*/session_*/groups"):
        shutil.rmtree(place)
    yield


def _sessions(sessions: str) -> list[Path]:
    return list(Path(sessions).glob("*/session_*"))


@contextlib.contextmanager
def _directory(sessions: str) -> Iterator[None]:
    """A session's directory with all that is in it, and the folder that it lies in."""
    for path in _sessions(sessions):
        while path.parent.exists():  # the session makes files meanwhile
            shutil.rmtree(path.parent, ignore_errors=True)
    yield


@contextlib.contextmanager
def _files(sessions: str) -> Iterator[None]:
    """Every file and socket in the directory: folders stay, as with cleaners that go by age."""
    for session in _sessions(sessions):
        for path in session.rglob("*"):
            if not path.is_dir():
                path.unlink()
    yield


@contextlib.contextmanager
def _socket(sessions: str) -> Iterator[None]:
    """The only socket that has a name."""
    for session in _sessions(sessions):
        (session / "node.sock").unlink()
    yield


@contextlib.contextmanager
def _rights(sessions: str) -> Iterator[None]:
    """To enter the directory. (Of a user whom that stops: root is not.)"""
    for session in _sessions(sessions):
        session.chmod(0)
    yield


@contextlib.contextmanager
def _interpreter(sessions: str) -> Iterator[None]:
    """Files that the program's processes were started with."""
    interpreter_of(sessions).unlink()
    yield


def interpreter_of(sessions: str) -> Path:
    """Where the interpreter lies in programs whose interpreter is taken away."""
    return Path(sessions, "python")


RIGHTS = "the rights"
INTERPRETER = "the interpreter"

#: The name of a thing -> a context that takes it away from the sessions below a directory, when it is entered or as long as it is.
TAKERS: dict[str, Callable[[str], contextlib.AbstractContextManager[None]]] = {
    "every name": _once,
    "each new name": _all_along,
    "files of groups": _group_files,
    "the directory": _directory,
    "the files": _files,
    "the socket": _socket,
    RIGHTS: _rights,
    INTERPRETER: _interpreter,
}
#: Of these, what lies in shared memory.
NAMES = ("every name", "each new name")
#: And what lies in the session's directory.
FILES = ("the directory", "the files", "the socket")

ROWS = [
    Row("each new name", "before init's end"),
    *(
        Row(what, moment)
        for what in (*NAMES, *FILES)
        for moment in ("idle", "in a call", "in a graph", "while a graph is compiled", "while a group joins")
    ),
    Row("files of groups", "while a group joins"),
    *(Row(what, moment) for what in FILES for moment in ("before another interpreter", "before a reset", "before it is looked at")),
    *(Row(what, moment) for what in FILES for moment in ("before another session begins", "with an object in use")),
    Row("the directory", "before a spill", "ObjectStoreFullError", "Nor can objects go to disk: /"),
    *(Row(what, "before a spill") for what in ("the files", "the socket")),
    Row("the directory", "with an object on disk", "ObjectLostError", "another program has removed it"),
    Row("the files", "with an object on disk", "ObjectLostError", "another program has removed it"),
    Row("the socket", "with an object on disk"),
    Row("every name", "with an object that was put", "ObjectLostError", "another program has removed it"),
    Row("every name", "with an object in use"),
    Row("every name", "with an object of a task that is not to be repeated", "ObjectLostError", "another program has removed it"),
    Row("every name", "with an argument that was put", "RayTaskError(ObjectLostError)", "another program has removed it"),
    *(
        Row("every name", moment)
        for moment in (
            "with an object of a task",
            "with an object that is awaited",
            "with one of several objects",
            "with an argument",
            "with an argument that nobody holds",
            "with a borrowed object",
        )
    ),
    Row("every name", "before objects that reuse memory"),
    *(Row(RIGHTS, moment) for moment in ("idle", "in a graph", "before another interpreter", "before another session begins")),
    *(Row(INTERPRETER, moment) for moment in ("idle", "before another interpreter", "before a reset")),
    *(Row(what, "at shutdown") for what in ("every name", *FILES, RIGHTS, INTERPRETER)),
    *(Row(what, "before the driver has joined", "RaySystemError", "/node.sock") for what in ("the directory", "the socket")),
]


def sessions_of_this_program() -> str:
    """The directory that the sessions of a program of the table lie in."""
    return str(Path(os.environ["MRAY_TMPDIR"]))
