"""``tqdm`` for tasks and actors: bars of many processes, drawn together in the driver.

``from mray.experimental.tqdm_ray import tqdm`` anywhere, as in Ray. A bar says at most once a second how far it is; the driver draws
(see `mray._runtime.session.progress_bars`) when the package ``tqdm`` is there.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from mray._api.current import backend_if_started
from mray._ipc.output import note
from mray._runtime.session.progress_bars import BarBoard, board, safe_print

__all__ = ["instance", "safe_print", "tqdm"]

_LONGEST_TEXT = 300


def instance() -> BarBoard:
    """The bars that this process draws."""
    return board()


class tqdm:  # noqa: N801  (tqdm's name)
    """A progress bar; of tqdm's arguments those that Ray's takes, and a context manager as there.

    `flush_interval_s`: seconds between two messages to the driver, 1 unless given.
    """

    DEFAULT_FLUSH_INTERVAL_SECONDS = 1.0

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        desc: str | None = None,
        total: int | None = None,
        unit: str | None = None,
        position: int | None = None,
        flush_interval_s: float | None = None,
    ) -> None:
        if total is None and iterable is not None:
            try:
                total = len(iterable)  # type: ignore[arg-type]
            except (TypeError, AttributeError):
                total = None
        self._iterable = iterable
        self._desc = desc or ""
        self._total = total
        self._unit = unit or "it"
        self._position = position or 0
        self._uuid = uuid.uuid4().hex
        self._x = 0
        self._closed = False
        self._interval = self.DEFAULT_FLUSH_INTERVAL_SECONDS if flush_interval_s is None else flush_interval_s
        self._told = float("-inf")

    def set_description(self, desc: str) -> None:
        """Change what stands before the bar."""
        self._desc = desc
        self._tell()

    def update(self, n: int = 1) -> None:
        """So many more are done."""
        self._x += n
        self._tell()

    def close(self) -> None:
        """It moves no more. Closing twice is safe."""
        if not self._closed:
            self._closed = True
            self._tell(now=True)

    def refresh(self) -> None:
        """Say how far it is, if that has not been said just now."""
        self._tell()

    @property
    def total(self) -> int | None:
        """How many there are in all; None: unknown."""
        return self._total

    @total.setter
    def total(self, total: int | None) -> None:
        self._total = total

    @property
    def n(self) -> int:
        """How many are done."""
        return self._x

    @n.setter
    def n(self, n: int) -> None:
        self._x = n

    def _tell(self, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self._told < self._interval:
            return
        self._told = moment
        backend = backend_if_started()
        if backend is None or backend.context()["mode"] != "worker" or backend.facts().get("one_process"):
            board().process_state_update(self._state())
            return
        text = json.dumps({"kind": "progress", "state": self._state()})
        try:
            os.write(1, note(text))
        except OSError:  # nobody listens: it is no reason to stop the work
            pass

    def _state(self) -> dict[str, Any]:
        return {
            "x": self._x,
            "pos": self._position,
            "desc": self._desc[:_LONGEST_TEXT],
            "total": self._total,
            "unit": self._unit[:_LONGEST_TEXT],
            "pid": os.getpid(),
            "uuid": self._uuid,
            "closed": self._closed,
        }

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise ValueError("No iterable provided")
        try:
            for item in self._iterable:
                self.update(1)
                yield item
        finally:
            self.close()

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
