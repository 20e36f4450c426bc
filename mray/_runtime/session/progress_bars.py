"""The progress bars of a session, drawn together by its driver.

In the driver, in the thread that prints the output of workers and in threads of the program that have bars of their own; one lock guards
them all. A bar's state comes as a dict (`mray.experimental.tqdm_ray`). The bars of one process stand together, the processes in the order
of their first bars; each bar has a line of its own below all output.

tqdm draws the bars. Without that package bars are not shown, and one warning is logged.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from mray._common import settings
from mray._common.log import logger

_print = builtins.print


class _Bar:
    """One bar on the screen."""

    __slots__ = ("drawn", "state")

    def __init__(self, drawn: Any, state: dict[str, Any]) -> None:
        self.drawn = drawn
        self.state = state


class BarBoard:
    """All bars that this process draws."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._bars: dict[str, _Bar] = {}
        #: Processes in the order of their first bars.
        self._processes: list[Any] = []
        self._hidden = False
        self._kind: Callable[..., Any] | None = None
        self._warned = False

    # ------------------------------------------------------------------------------------ states that come
    def process_state_update(self, state: dict[str, Any]) -> None:
        """Show a bar as its owner has it now: a new one, one that moved, or the last of one that is closed."""
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
        own = state["pid"] == os.getpid()
        desc = state["desc"] if own else f"(pid={state['pid']}) {state['desc']}"
        self._clear()
        drawn = kind(desc=desc, total=state["total"], unit=state["unit"], dynamic_ncols=True, unit_scale=True, leave=True)
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
            own = state["pid"] == os.getpid()
            drawn.set_description(state["desc"] if own else f"(pid={state['pid']}) {state['desc']}", refresh=False)
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
                from tqdm.auto import tqdm  # noqa: PLC0415
            except ImportError:
                if not self._warned:
                    self._warned = True
                    logger.warning("tqdm is not installed. Progress bars will be disabled.")
                return None
            # Neither a thread that watches bars nor a lock between processes: only this process draws.
            self._kind = type("Bar", (tqdm,), {"monitor_interval": 0, "_lock": self.lock})
        return self._kind

    # ------------------------------------------------------------------------------------ the screen
    def _arrange(self) -> None:
        """Give each bar its line, and draw."""
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
        """Take the bars off the screen before other output is printed."""
        with self.lock:
            self._clear()
            self._hidden = True

    def unhide_bars(self) -> None:
        """Draw them again."""
        with self.lock:
            if self._hidden:
                self._hidden = False
                for bar in self._bars.values():
                    bar.drawn.refresh()

    def forget(self, pid: int) -> None:
        """Drop the bars of a process that has ended; they stay on the screen as they were."""
        with self.lock:
            for bar in [bar for bar in self._bars.values() if bar.state["pid"] == pid]:
                self._close(bar)
            if pid in self._processes:
                self._processes.remove(pid)

    def forget_others(self) -> None:
        """Drop the bars of all processes but this one: they have ended."""
        with self.lock:
            for pid in [pid for pid in self._processes if pid != os.getpid()]:
                self.forget(pid)


_board: BarBoard | None = None
_board_lock = threading.Lock()


def board() -> BarBoard:
    """The bars of this process, from the first one on."""
    global _board
    with _board_lock:
        if _board is None:
            _board = BarBoard()
        return _board


def hide() -> None:
    """`BarBoard.hide_bars`, if there are any."""
    if _board is not None:
        _board.hide_bars()


def unhide() -> None:
    """`BarBoard.unhide_bars`, if there are any."""
    if _board is not None:
        _board.unhide_bars()


def forget(pid: int) -> None:
    """`BarBoard.forget`, if there are any bars."""
    if _board is not None:
        _board.forget(pid)


def close_others() -> None:
    """`BarBoard.forget_others`, if there are any bars: the session has ended."""
    if _board is not None:
        _board.unhide_bars()
        _board.forget_others()


def safe_print(*values: Any, **options: Any) -> None:
    """Print without breaking bars; while there are bars, this takes the place of `print` (see MRAY_TQDM_PATCH_PRINT)."""
    if options.get("file") not in (sys.stdout, sys.stderr, None) or _board is None:
        _print(*values, **options)
        return
    # Other threads must not draw in between.
    with _board.lock:
        _board.hide_bars()
        try:
            _print(*values, **options)
        finally:
            _board.unhide_bars()
