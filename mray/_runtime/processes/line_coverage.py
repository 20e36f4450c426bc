"""Which lines of user code run in workers, for a driver that runs under coverage.py (from 7.10).

A worker is forked by the zygote, which is not measured, and often ends by SIGKILL, without time to write. So the driver sends its
configuration, each worker measures itself alike, and gets a moment to write its lines before it is killed::

    driver: request() ──options──▶ worker: begin() … runs … SAVE, or its own exit ──▶ writes its file
       collect() ◀─────────────── the files, beside the driver's, once the session is over

The driver adds the lines in these files to its own. The lines of a worker are lost if it crashes, or runs no byte code for
`SAVE_SECONDS` while it is asked to exit; all lines if the node is killed. The files stay where coverage is stopped before the session
ends, or the driver is killed: `coverage combine` takes them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

#: Variables by which coverage.py measures new interpreters: removed for node and zygote.
VARIABLES = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
SAVE_SECONDS = 15.0
#: Begins a configuration that is given as text.
_DATA = ":data:"


def request(environment: dict[str, str]) -> dict[str, Any] | None:
    """The driver's configuration, as builtin values; None when it is not measured.

    The variables for measured children are removed from `environment`, and restored in workers.
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
    coverage: Any = sys.modules.get("coverage")
    found = coverage.Coverage.current() if coverage is not None and hasattr(coverage, "Coverage") else None
    return found if found is not None and hasattr(found.config, "serialize") else None


def begin(asked: dict[str, Any], session: str) -> Callable[[], None] | None:
    """Start measuring, in a worker. Returns a function that writes the lines so far; None without coverage."""
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
    #: A worker that exits may be asked to exit at the same time, in another thread: neither may end the process while the other writes, or
    #: write the file again. So the first thread holds this until the process has ended.
    writing = threading.RLock()

    def save() -> None:
        if os.getpid() != worker:
            return  # a child that user code has forked
        writing.acquire()
        try:
            measurement.save()
        except Exception as error:  # a worker exits all the same
            with contextlib.suppress(OSError):
                text = f"coverage: the lines of this worker (pid {worker}) are lost: {type(error).__name__}: {error}\n"
                os.write(2, text.encode("utf-8", "replace"))

    leave = os._exit

    def save_and_leave(status: int) -> None:
        save()
        leave(status)

    # Every exit by Python goes through here, in any thread.
    os._exit = save_and_leave  # type: ignore[assignment]
    return save


def collect(asked: dict[str, Any], session: str) -> None:
    """Add the workers' lines to this process's own. In the driver, once every worker has exited."""
    import glob  # noqa: PLC0415

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
