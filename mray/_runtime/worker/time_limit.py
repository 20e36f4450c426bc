"""The time limit of the task that runs in this worker, its option ``timeout_s``.

::

    the task begins ──▶ a timer ──▶ the limit has passed: the task is interrupted, as by `cancel`, and its error is a TimeoutError
                                      └──▶ it still runs after `GRACE_SECONDS`: the process ends, since C code sees no interrupt
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mray._common.clock import monotonic

if TYPE_CHECKING:
    from mray._runtime.client.cancelling import Interrupts
    from mray._runtime.client.client import Client

#: Seconds that an interrupted task may take to end.
GRACE_SECONDS = 5.0


class TimeLimit:
    """Of one task at a time. At most one timer is set for each moment: short tasks with long limits leave none behind."""

    def __init__(self, client: Client, interrupts: Interrupts) -> None:
        self._client = client
        self._interrupts = interrupts
        #: The running task and its limit in seconds; None without a limit.
        self._task: tuple[bytes, float] | None = None
        #: When it is to be looked at, and whether it was interrupted then.
        self._ends = 0.0
        self._has_passed = False
        #: The time of the earliest timer; None if there is none.
        self._timer: float | None = None

    def begin(self, task_id: bytes, seconds: float) -> None:
        with self._client.lock:
            self._task = task_id, seconds
            self._has_passed = False
            self._look_at(monotonic() + seconds)

    def end(self) -> None:
        with self._client.lock:
            if self._has_passed and self._task is not None:
                self._interrupts.forget(self._task[0])
            self._task = None

    def passed(self) -> float | None:
        """The limit, if it has interrupted the running task."""
        return self._task[1] if self._has_passed and self._task is not None else None

    def _look_at(self, moment: float) -> None:
        self._ends = moment
        if self._timer is None or moment < self._timer:
            self._timer = moment
            self._client.reactor.call_later(max(0.0, moment - monotonic()), self._look)

    def _look(self) -> None:
        """Called by a timer, perhaps of an earlier task. Reading thread."""
        with self._client.lock:
            self._timer = None
            if self._task is None:
                return
            task_id, seconds = self._task
            if monotonic() < self._ends:
                self._look_at(self._ends)
            elif self._has_passed:
                self._interrupts.cancel(task_id, True, True, f"its task did not end {GRACE_SECONDS:g} s after its timeout_s={seconds:g}")
            else:
                self._has_passed = True
                self._interrupts.cancel(task_id, False, True)
                self._look_at(self._ends + GRACE_SECONDS)
