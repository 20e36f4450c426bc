"""The progress bars of a session, drawn together by its driver.

    any process: `tqdm`, a bar ── its state, a dict: a note in the worker's output ──▶ driver: `BarBoard`

The driver draws in the thread that prints the output of workers and in threads of the program that have bars of their own; one lock
guards them all. The bars of one process are adjacent, the processes in the order of their first bars; each bar has a line below all
output.

While there are bars, `sys.stdout` and `sys.stderr` pass what the program prints through the board, which hides the bars from the first
piece of a line to its end. A replaced `print` could not: ``print(get(ref))`` looks `print` up before the bars appear.

tqdm draws the bars, on a terminal and in a notebook. Without that package bars are not shown, and one warning is logged.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO

from mray._api.current import backend_if_started
from mray._common import settings
from mray._common.clock import monotonic
from mray._common.kept import os
from mray._common.log import logger
from mray._ipc.output import note

#: Characters of a bar's description and of its unit, so that a state fits into a note.
_LONGEST_TEXT = 300
#: Seconds after which a line that the program has not ended is ended for it.
_SILENCE = 1.0
#: Streams of the driver that are remembered.
_MOST_STREAMS = 16


class _Bar:
    __slots__ = ("drawn", "state")

    def __init__(self, drawn: Any, state: dict[str, Any]) -> None:
        self.drawn = drawn
        self.state = state


class _ProgramStream:
    """A stream of the driver while there are bars."""

    def __init__(self, board: BarBoard, stream: TextIO) -> None:
        self.stream = stream
        self._board = board

    def write(self, text: str) -> int:
        return self._board.write_beside(self.stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class BarBoard:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._bars: dict[str, _Bar] = {}
        self._processes: list[Any] = []
        self._hidden = False
        #: The stream that has the beginning of a line of the program, and the time of its last piece.
        self._begun: tuple[TextIO, float] | None = None
        #: Kept, since `print` of another thread may be using one that is replaced, and CPython does not hold it.
        self._above_streams: deque[_ProgramStream] = deque(maxlen=_MOST_STREAMS)
        #: The latest states that arrived in such a line, by bar.
        self._later: dict[str, dict[str, Any]] = {}
        self._kind: Callable[..., Any] | None = None
        self._warned = False

    # ------------------------------------------------------------------------------------ states that come
    def process_state_update(self, state: dict[str, Any]) -> None:
        with self.lock:
            if self._begun is not None:
                self._later[state["uuid"]] = state
                if monotonic() - self._begun[1] >= _SILENCE:
                    self._end_line()
            else:
                self._process(state)

    def _process(self, state: dict[str, Any]) -> None:
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

    def shows_others(self) -> bool:
        """Whether another process has a bar that it has not closed."""
        return any(bar.state["pid"] != os.getpid() for bar in self._bars.copy().values())

    def _new(self, state: dict[str, Any]) -> _Bar | None:
        kind = self._bar_class()
        if kind is None:
            return None
        self._clear()
        drawn = kind(desc=_label(state), total=state["total"], unit=state["unit"], dynamic_ncols=True, leave=True)
        bar = self._bars[state["uuid"]] = _Bar(drawn, {**state, "x": 0})
        if state["pid"] not in self._processes:
            self._processes.append(state["pid"])
        if len(self._bars) == 1 and settings.TQDM_PATCH_PRINT.get():
            self._replace_streams()
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
        if not self._bars:
            self._restore_streams()
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
            self._kind = lambda **how: kind(disable=not for_a_person(sys.stderr), file=_below(sys.stderr), **how)
        return self._kind

    # ------------------------------------------------------------------------------------ the screen
    def _arrange(self) -> None:
        order = {pid: number for number, pid in enumerate(self._processes)}
        bars = sorted(self._bars.values(), key=lambda bar: (order[bar.state["pid"]], bar.state["pos"]))
        for line, bar in enumerate(bars):
            bar.drawn.pos = -line
        self._refresh()

    def _refresh(self) -> None:
        if not self._hidden and self._begun is None:
            for bar in sorted(self._bars.values(), key=lambda bar: -bar.drawn.pos):
                bar.drawn.refresh()

    def _clear(self) -> None:
        if not self._hidden and self._begun is None:
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
                self._refresh()

    # ------------------------------------------------------------------------------------ the program's lines
    def _replace_streams(self) -> None:
        sys.stdout, sys.stderr = (
            stream if stream is None or isinstance(stream, _ProgramStream) else self._above(stream) for stream in (sys.stdout, sys.stderr)
        )

    def _above(self, stream: TextIO) -> Any:
        for each in self._above_streams:
            if each.stream is stream:
                return each
        above = _ProgramStream(self, stream)
        self._above_streams.append(above)
        return above

    def _restore_streams(self) -> None:
        sys.stdout, sys.stderr = _below(sys.stdout), _below(sys.stderr)

    def write_beside(self, stream: TextIO, text: str) -> int:
        """Write a piece of a line of the program, without bars from its first piece to its end. Any thread."""
        with self.lock:  # other threads must not draw in between
            if not self._bars:
                return stream.write(text)
            self._clear()
            self._begun = stream, monotonic()
            try:
                return stream.write(text)
            finally:
                if text.endswith("\n"):
                    self._ended()

    def _end_line(self) -> None:
        """End the line that the program has begun: the bars need the screen."""
        if self._begun is not None:
            stream, _time = self._begun
            with contextlib.suppress(OSError, ValueError):  # the program has closed it
                stream.write("\n")
                stream.flush()
            self._ended()

    def _ended(self) -> None:
        self._begun = None
        states, self._later = self._later, {}
        for state in states.values():
            self._process(state)
        self._refresh()

    # ------------------------------------------------------------------------------------ processes that have exited
    def forget(self, pid: int) -> None:
        """Drop the bars of an exited process; they stay on the screen."""
        with self.lock:
            self._end_line()
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


def _below(stream: TextIO) -> TextIO:
    return stream.stream if isinstance(stream, _ProgramStream) else stream


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
    """Print above the bars. `print` does so too, unless MRAY_TQDM_PATCH_PRINT is off."""
    if options.get("file") not in (sys.stdout, sys.stderr, None):
        print(*values, **options)  # noqa: T201  (it is a `print`)
        return
    # Other threads must not draw in between.
    with board.lock:
        board.hide_bars()
        try:
            print(*values, **options)  # noqa: T201
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
        self._is_known = False

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
            return
        if not self._is_known:
            self._is_known = True
            backend.query("printed")  # the driver knows the bar before the value of its task

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
