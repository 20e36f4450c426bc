"""The jobs of a session: its drivers, those that are there and those that have been.

In the node. A private session has one job, which its driver wrote among the session's options; a persistent session admits any number of
drivers, each of which sends its job along with HELLO. What a job is:

``namespace``       of its named actors
``runtime_env``     reduced, for all of its tasks and actors; ``env``: the variables that follow from it
``log_to_driver, terminal, logging_config``   as `init` was given them
``entrypoint``      the driver's command line
``place``           None where the session's processes are the driver's own; else how its workers find what it finds: ``path`` (sys.path),
``parts`` of it, ``cwd``, ``preload``
``eager_install``   whether workers are started, and what they need installed, before there is a task

A worker gets the facts of its job with WELCOME, and acts on ``place`` before any user code runs (`take_place`). A job is remembered as
long as anything of it may run: detached actors outlive their driver, and are restarted without it.

::

    HELLO + job ──▶ admitted ──SHUTDOWN, hang-up, pidfd──▶ its work ends ──last worker dead──▶ LEFT (to who said SHUTDOWN)
                                                              └── detached actors go on ──▶ forgotten with the last of them
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

from mray._common.history import History
from mray._common.ids import JobID
from mray._ipc.connection import Connection
from mray._runtime.processes.launch import parts_of_path
from mray._scheduler.policy import DEAD_RECORD_BYTES, DEAD_RECORDS

#: What of a job every process of it is told.
_FACTS = ("namespace", "runtime_env", "log_to_driver", "terminal", "logging_config", "place")


class Job:
    """A driver and what it has asked for."""

    __slots__ = ("connection", "ended", "facts", "id", "leaving", "pid", "pidfd", "process", "since", "unshown", "wishes")

    def __init__(self, job_id: str, wishes: dict[str, Any], pid: int, process: str) -> None:
        #: Hex digits.
        self.id = job_id
        self.wishes = wishes
        self.facts = {"job_id": job_id, **{name: wishes[name] for name in _FACTS}}
        self.pid = pid
        self.process = process
        self.since = time.time()
        #: When its driver went, seconds since the epoch; 0 while it is there.
        self.ended = 0.0
        #: To the driver; None before it has come and after it has gone.
        self.connection: Connection | None = None
        self.pidfd = -1
        #: It has said SHUTDOWN, and is told when nothing of its work runs any more.
        self.leaving = False
        #: Lines that it did not read in time.
        self.unshown = 0

    def describe(self) -> dict[str, Any]:
        """For listings."""
        return {
            "job_id": self.id,
            "pid": self.pid,
            "process": self.process,
            "namespace": self.facts["namespace"],
            "entrypoint": self.wishes.get("entrypoint") or "",
            "start": self.since,
            "end": self.ended,
            "left": self.leaving,
        }


class Jobs:
    """All of them."""

    def __init__(self) -> None:
        #: Those that anything may still run of, by id.
        self.by_id: dict[str, Job] = {}
        self._number = 0
        #: What listings say of the others.
        self._graves = History(DEAD_RECORDS, DEAD_RECORD_BYTES)

    def admit(self, wishes: dict[str, Any], pid: int, process: str) -> Job:
        """A new job, with the next number."""
        self._number += 1
        job = Job(JobID.from_int(self._number).hex(), wishes, pid, process)
        self.by_id[job.id] = job
        return job

    def there(self) -> list[Job]:
        """Those whose drivers are there, the oldest first."""
        return [job for job in self.by_id.values() if job.connection is not None]

    def of_driver(self, connection: Connection) -> Job | None:
        return next((job for job in self.by_id.values() if job.connection is connection), None)

    def forget(self, job: Job) -> None:
        """Nothing of it runs any more."""
        if self.by_id.pop(job.id, None) is not None:
            self._graves.append(job.describe())

    def listing(self) -> list[dict[str, Any]]:
        return [*self._graves, *(job.describe() for job in self.by_id.values())]


def place_of_driver(preload: tuple[str, ...]) -> dict[str, Any]:
    """How the workers of this process's job find the modules and files that it finds."""
    try:
        cwd = os.getcwd()
    except FileNotFoundError:
        cwd = ""
    path = [path or cwd for path in sys.path]
    return {"path": path, "parts": parts_of_path(path), "cwd": cwd, "preload": list(preload)}


def take_place(place: dict[str, Any], prefix: str) -> None:
    """In a new worker of a session that is not its driver's own: be where the driver is, and import what it wants to be there.

    `prefix` is that of the session's interpreter.
    """
    if sys.prefix == prefix:
        own = [path for path in sys.path if path not in place["path"]]
        sys.path[:] = [*place["path"], *own]
    else:  # an interpreter of its own, with packages of its own
        head, _library, tail = place["parts"]
        own = [path for path in sys.path if path not in head]
        sys.path[:] = [*head, *own, *(path for path in tail if path not in own)]
    importlib.invalidate_caches()
    try:
        os.chdir(place["cwd"])
    except OSError as error:  # it may be gone by the time that a detached actor is restarted
        sys.stderr.write(f"the driver's working directory {place['cwd']!r} cannot be entered: {error.strerror}\n")
    for module in place["preload"]:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the module raises: workers do without it
            sys.stderr.write(f"preload: module {module!r} could not be imported: {type(error).__name__}: {error}\n")
