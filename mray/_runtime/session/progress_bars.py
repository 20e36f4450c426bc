"""The progress bars of a session, drawn together by its driver.

    any process: `tqdm`, a bar ── its state, a dict: a note in the worker's output ──▶ driver: `BarBoard`

The driver draws in the thread that prints the output of workers and in threads of the program that have bars of their own; one lock
guards them all. The bars of one process are adjacent, the processes in the order of their first bars; each bar has a line below all
output.

tqdm draws the bars, on a terminal and in a notebook. Without that package bars are not shown, and one warning is logged.
"""

from __future__ import annotations

import builtins
import json
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO

from mray._api.current import backend_if_started
from mray._common import settings
from mray._common.clock import monotonic
from mray._common.kept import os
from mray._common.log import logger
from mray._ipc.output import note

_print = builtins.print

#: Characters of a bar's description and of its unit, so that a state fits into a note.
_LONGEST_TEXT = 300


class _Bar:
    __slots__ = ("drawn", "state")

    def __init__(self, drawn: Any, state: dict[str, Any]) -> None:
        self.drawn = drawn
        self.state = state


class BarBoard:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._bars: dict[str, _Bar] = {}
        self._processes: list[Any] = []
        self._hidden = False
        self._kind: Callable[..., Any] | None = None
        self._warned = False

    # ------------------------------------------------------------------------------------ states that come
    def process_state_update(self, state: dict[str, Any]) -> None:
        with self.lock:
            bar = self._bars.get(state["uuid"])
            if bar is None:
                if state["closed"] and not state["x"]:
                    return  # closed before it was ever shown
                bar = self._new(state)
                if bar is None:
                    return
            self._move(bar, state)
            if state["closed"]:
                self._close(bar)

    def _new(self, state: dict[str, Any]) -> _Bar | None:
        kind = self._bar_class()
        if kind is None:
            return None
        self._clear()
        drawn = kind(desc=_label(state), total=state["total"], unit=state["unit"], dynamic_ncols=True, leave=True)
        bar = self._bars[state["uuid"]] = _Bar(drawn, {**state, "x": 0})
        if state["pid"] not in self._processes:
            self._processes.append(state["pid"])
        if len(self._bars) == 1 and settings.TQDM_PATCH_PRINT.get() and builtins.print is _print:
            builtins.print = safe_print
        self._arrange()
        return bar

    def _move(self, bar: _Bar, state: dict[str, Any]) -> None:
        drawn = bar.drawn
        if state["desc"] != bar.state["desc"]:
            drawn.set_description(_label(state), refresh=False)
        drawn.total = state["total"]
        step = state["x"] - bar.state["x"]
        if step < 0:
            drawn.n = state["x"]
        elif step:
            drawn.update(step)
        bar.state = state
        if not self._hidden:
            drawn.refresh()

    def _close(self, bar: _Bar) -> None:
        """Close a bar; its last state stays on the screen, above the others."""
        self._clear()
        bar.drawn.pos = 0
        bar.drawn.close()
        del self._bars[bar.state["uuid"]]
        if not self._bars and builtins.print is safe_print:
            builtins.print = _print
        self._arrange()

    def _bar_class(self) -> Callable[..., Any] | None:
        if self._kind is None:
            try:
                with warnings.catch_warnings():  # a notebook without ipywidgets has bars of text
                    warnings.simplefilter("ignore")
                    from tqdm.auto import tqdm  # noqa: PLC0415
            except ImportError:
                if not self._warned:
                    self._warned = True
                    logger.warning("tqdm is not installed. Progress bars will be disabled.")
                return None
            # Neither a thread that watches bars nor a lock between processes: only this process draws.
            kind = type("Bar", (tqdm,), {"monitor_interval": 0, "_lock": self.lock})
            self._kind = lambda **how: kind(disable=not for_a_person(sys.stderr), **how)
        return self._kind

    # ------------------------------------------------------------------------------------ the screen
    def _arrange(self) -> None:
        order = {pid: number for number, pid in enumerate(self._processes)}
        bars = sorted(self._bars.values(), key=lambda bar: (order[bar.state["pid"]], bar.state["pos"]))
        for line, bar in enumerate(bars):
            bar.drawn.pos = -line
            if not self._hidden:
                bar.drawn.refresh()

    def _clear(self) -> None:
        if not self._hidden:
            for bar in self._bars.values():
                bar.drawn.clear()

    def hide_bars(self) -> None:
        with self.lock:
            self._clear()
            self._hidden = True

    def unhide_bars(self) -> None:
        with self.lock:
            if self._hidden:
                self._hidden = False
                for bar in self._bars.values():
                    bar.drawn.refresh()

    def forget(self, pid: int) -> None:
        """Drop the bars of an exited process; they stay on the screen."""
        with self.lock:
            for bar in [bar for bar in self._bars.values() if bar.state["pid"] == pid]:
                self._close(bar)
            if pid in self._processes:
                self._processes.remove(pid)

    def forget_others(self) -> None:
        with self.lock:
            for pid in [pid for pid in self._processes if pid != os.getpid()]:
                self.forget(pid)


def _label(state: dict[str, Any]) -> str:
    return str(state["desc"]) if state["pid"] == os.getpid() else f"(pid={state['pid']}) {state['desc']}"


def for_a_person(stream: TextIO | None) -> bool:
    """Whether a stream of the driver is a terminal, or the output of a notebook."""
    if "ipykernel" in sys.modules:
        return True
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # closed, or an object of the user
        return False


board = BarBoard()


def instance() -> BarBoard:
    return board


def safe_print(*values: Any, **options: Any) -> None:
    """Print without breaking bars; while there are bars, this replaces `print` (see MRAY_TQDM_PATCH_PRINT)."""
    if options.get("file") not in (sys.stdout, sys.stderr, None):
        _print(*values, **options)
        return
    # Other threads must not draw in between.
    with board.lock:
        board.hide_bars()
        try:
            _print(*values, **options)
        finally:
            board.unhide_bars()


class tqdm:  # noqa: N801  (tqdm's name)
    """A progress bar, a context manager, with those of tqdm's arguments that Ray's takes.

    `flush_interval_s`: seconds between two messages to the driver, 1 by default.
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
        #: None: unknown.
        self.total = total
        self._unit = unit or "it"
        self._position = position or 0
        import uuid  # noqa: PLC0415

        self._uuid = uuid.uuid4().hex
        self.n = 0
        self._closed = False
        self._interval = self.DEFAULT_FLUSH_INTERVAL_SECONDS if flush_interval_s is None else flush_interval_s
        self._told = float("-inf")

    def set_description(self, desc: str) -> None:
        self._desc = desc
        self._tell()

    def update(self, n: int = 1) -> None:
        self.n += n
        self._tell()

    def close(self) -> None:
        """Finish the bar. Idempotent."""
        if not self._closed:
            self._closed = True
            self._tell(now=True)

    def refresh(self) -> None:
        """Send the state, unless it was just sent."""
        self._tell()

    def _tell(self, now: bool = False) -> None:
        moment = monotonic()
        if not now and moment - self._told < self._interval:
            return
        self._told = moment
        backend = backend_if_started()
        if backend is None or backend.context()["mode"] != "worker" or backend.info().get("one_process"):
            board.process_state_update(self._state())
            return
        text = json.dumps({"kind": "progress", "state": self._state()})
        try:
            os.write(1, note(text))
        except OSError:  # there is no reader: no reason to stop the work
            pass

    def _state(self) -> dict[str, Any]:
        return {
            "x": self.n,
            "pos": self._position,
            "desc": self._desc[:_LONGEST_TEXT],
            "total": self.total,
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
