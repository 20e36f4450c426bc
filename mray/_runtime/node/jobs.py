"""The jobs of a session: its drivers, present and past.

A private session has one job, among the session's options; in a persistent one each driver sends its job specification with HELLO:

- ``namespace`` of its named actors
- ``runtime_env`` reduced, for all of its tasks and actors; ``env``: the variables that follow from it
- ``log_to_driver, terminal, logging_config`` arguments of `init`
- ``entrypoint`` the driver's command line
- ``place`` None where the session's processes are the driver's own; else how its workers find its modules and files: ``path``, ``parts``
  (of sys.path), ``cwd``, ``preload``
- ``eager_install`` whether workers are started, and their packages installed, before there is a task

A worker gets its job with WELCOME, and acts on ``place`` before any user code runs (`take_place`). A job is retained while any of its
work may run: detached actors outlive their driver, and are restarted without it.

::

    HELLO + job ──▶ admitted ──SHUTDOWN, hang-up, pidfd──▶ its work ends ──last worker dead──▶ LEFT (answers SHUTDOWN)
                                                              └── detached actors go on ──▶ forgotten with the last of them
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from mray._common.bridge import Cancel, nothing
from mray._common.clock import time
from mray._common.history import History
from mray._common.ids import JobID
from mray._common.kept import os
from mray._decide.scheduler.policy import DEAD_RECORD_BYTES, DEAD_RECORDS
from mray._ipc.connection import Connection

#: Fields of a job specification that every process of the job gets.
_ATTRIBUTES = ("namespace", "runtime_env", "log_to_driver", "terminal", "logging_config", "place")


class Job:
    """A driver and its job specification."""

    __slots__ = ("connection", "ended", "id", "info", "job_spec", "leaving", "pid", "process", "since", "unshown", "unwatch")

    def __init__(self, job_id: str, job_spec: dict[str, Any], pid: int, process: str) -> None:
        #: Hex digits.
        self.id = job_id
        self.job_spec = job_spec
        self.info = {"job_id": job_id, **{name: job_spec[name] for name in _ATTRIBUTES}}
        self.pid = pid
        self.process = process
        self.since = time()
        #: When its driver left, seconds since the epoch; 0 while it is connected.
        self.ended = 0.0
        #: Its connection; None before it has joined and after it has left.
        self.connection: Connection | None = None
        self.unwatch: Cancel = nothing
        #: Whether it gets LEFT when none of its work runs any more.
        self.leaving = False
        #: Lines of output that it did not read in time.
        self.unshown = 0

    def describe(self) -> dict[str, Any]:
        return {
            "job_id": self.id,
            "pid": self.pid,
            "process": self.process,
            "namespace": self.info["namespace"],
            "entrypoint": self.job_spec.get("entrypoint") or "",
            "start": self.since,
            "end": self.ended,
            "left": self.leaving,
        }


class Jobs:
    """All jobs of a session."""

    def __init__(self) -> None:
        #: Jobs whose work may still run, by id.
        self.by_id: dict[str, Job] = {}
        self._number = 0
        #: Rows of the other jobs.
        self._ended = History(DEAD_RECORDS, DEAD_RECORD_BYTES)

    def admit(self, job_spec: dict[str, Any], pid: int, process: str) -> Job:
        self._number += 1
        job = Job(JobID.from_int(self._number).hex(), job_spec, pid, process)
        self.by_id[job.id] = job
        return job

    def there(self) -> list[Job]:
        """Jobs whose drivers are connected, the oldest first."""
        return [job for job in self.by_id.values() if job.connection is not None]

    def of_driver(self, connection: Connection) -> Job | None:
        return next((job for job in self.by_id.values() if job.connection is connection), None)

    def forget(self, job: Job) -> None:
        if self.by_id.pop(job.id, None) is not None:
            self._ended.append(job.describe())

    def listing(self) -> list[dict[str, Any]]:
        return [*self._ended, *(job.describe() for job in self.by_id.values())]


def take_place(place: dict[str, Any], prefix: str) -> None:
    """Enter the driver's working directory and import its `preload`, in a new worker of a session that is not its driver's own.

    `prefix`: of the session's interpreter.
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
    except OSError as error:  # the directory may have been removed when a detached actor is restarted
        sys.stderr.write(f"the driver's working directory {place['cwd']!r} cannot be entered: {error.strerror}\n")
    for module in place["preload"]:
        try:
            importlib.import_module(module)
        except Exception as error:  # workers do without the module
            sys.stderr.write(f"preload: module {module!r} could not be imported: {type(error).__name__}: {error}\n")
