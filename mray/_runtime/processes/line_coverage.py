"""Which lines of user code run in workers, for a driver that runs under coverage.py.

coverage.py measures processes that Python starts, and processes that a measured one forks. A worker is forked by the zygote, which is not
measured, and often ends by SIGKILL, when nothing is written any more. So the driver says how it is measured, each worker measures itself
alike, and has a moment to write what it knows before it is ended::

    driver: request() ──options──▶ worker: Measurement.begin … runs … SAVE, or its own end ──▶ writes its file
       collect() ◀─────────────── the files, beside the driver's, once the session is over

What the files say is added to what the driver has measured itself: reports need no `coverage combine`, and pytest-cov shows it. Lines are
lost of a worker that crashes, or that runs no byte code of Python for `SAVE_SECONDS` while it is asked to end; all of them when the node
is killed. The files stay where coverage is stopped before the session ends, or the driver is killed: `coverage combine` takes them.

Any process; nothing here is imported before coverage is seen to be there. It needs coverage 7.10.
"""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

#: What the interpreters that a process starts find their measurement by: not for node and zygote, which run no user code.
VARIABLES = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
#: Seconds that a worker may take to write its lines.
SAVE_SECONDS = 15.0
#: Marks the beginning of a configuration that is given as text.
_DATA = ":data:"


def request(environment: dict[str, str]) -> dict[str, Any] | None:
    """In the driver: how it is measured, as builtin values; None when it is not.

    What is in `environment` for measured children is taken out, and given back to workers.
    """
    measured = _current()
    if measured is None:
        return None
    kept = {name: environment.pop(name) for name in VARIABLES if name in environment}
    return {
        "config": measured.config.serialize(),
        "file": os.path.abspath(measured.config.data_file),
        "variables": kept,
    }


def _current() -> Any:
    """The measurement of this process, as coverage knows it."""
    coverage: Any = sys.modules.get("coverage")
    found = coverage.Coverage.current() if coverage is not None and hasattr(coverage, "Coverage") else None
    return found if found is not None and hasattr(found.config, "serialize") else None


def begin(asked: dict[str, Any], session: str) -> Callable[[], None] | None:
    """In a worker: measure from now on. Returns what writes the lines that have run so far; None when coverage is not there."""
    try:
        from coverage import Coverage  # noqa: PLC0415  (optional)
    except ImportError:  # an interpreter of its own
        return None
    os.environ.update(asked["variables"])
    measurement: Any = Coverage(
        data_file=asked["file"], data_suffix=f"mray-{session}-{os.getpid()}", config_file=_DATA + asked["config"], messages=False
    )
    for each in ("_warn_no_data", "_warn_unimported_source", "_warn_preimported_source", "_auto_save"):
        setattr(measurement, each, False)
    measurement.start()

    worker = os.getpid()
    #: A worker that leaves by itself may be told to at the same time, in another thread: neither ends it while the other one writes, nor
    #: writes the file anew, of which half would be left then. So whoever comes first keeps this until the process is no more.
    writing = threading.RLock()

    def save() -> None:
        if os.getpid() != worker:
            return  # a child that the user's code has forked
        writing.acquire()
        with contextlib.suppress(Exception):  # nothing of this may keep a worker from ending
            measurement.save()

    leave = os._exit

    def save_and_leave(status: int) -> None:
        save()
        leave(status)

    # Every way out that Python knows of ends here, whoever takes it.
    os._exit = save_and_leave  # type: ignore[assignment]
    return save


def save_and_die(save: Callable[[], None]) -> None:
    """In a worker that is to be ended: as if nothing had been asked of it before."""
    save()
    os.kill(os.getpid(), signal.SIGKILL)


def collect(asked: dict[str, Any], session: str) -> None:
    """In the driver, once every worker has ended: add what they have written to what this process has measured."""
    measured = _current()
    files = glob.glob(glob.escape(asked["file"]) + f".mray-{session}-*")
    if measured is None or not files:
        return
    from coverage import CoverageData  # noqa: PLC0415  (optional)

    data = measured.get_data()
    for name in files:
        with contextlib.suppress(Exception):  # a worker that was killed as it wrote
            part = CoverageData(basename=name)
            part.read()
            data.update(part)
            part.close()
        with contextlib.suppress(OSError):
            os.unlink(name)
