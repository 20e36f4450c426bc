"""Interrupts that come where Python drops what is raised: in finalizers, and in callbacks of weak references."""

from __future__ import annotations

import gc
import importlib
import itertools
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mray._common.dropped_errors import import_whole
from mray._ipc.interrupts import InterruptGuard
from mray._objects.ownership import Guard


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """The handler of this process is Python's own at first, and as it was in the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


_numbers = itertools.count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Makes a module of this source, and returns its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def make(source: str) -> str:
        # A name of its own: the import's lock of an earlier one lives as long as the traceback of what went wrong there.
        name = f"made_for_interrupts_{next(_numbers)}"
        names.append(name)
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return name

    yield make
    for name in names:
        sys.modules.pop(name, None)


def interrupt_at_each_line(name: str, act: Callable[[], object]) -> int:
    """Send SIGINT at each line that a function of this name begins while `act` runs; returns how often that was."""
    sent = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal sent
        if frame.f_code.co_name != name:
            return None
        if event == "line":
            sent += 1
            signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return sent


@pytest.mark.parametrize("where", ["module", "callback"])
def test_an_interrupt_of_a_long_import_is_raised_when_the_module_is_there(module: Callable[[str], str], where: str) -> None:
    if where == "module":
        inner = module("import signal\nsignal.raise_signal(signal.SIGINT)\n")
        outer = module(f"import {inner}\nwhole = True\n")
        with pytest.raises(KeyboardInterrupt):
            import_whole(outer)
    else:
        outer = module("whole = True\n")
        with pytest.raises(KeyboardInterrupt):
            interrupt_at_each_line("cb", lambda: import_whole(outer))
    assert sys.modules[outer].whole
    assert import_whole(outer) is sys.modules[outer]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_import_leaves_a_handler_of_the_users_alone(module: Callable[[str], str]) -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    import_whole(module("import signal\nsignal.raise_signal(signal.SIGINT)\n"))
    assert came == [signal.SIGINT]


def drop_weak_value() -> None:
    kept = {0, 1}
    values = weakref.WeakValueDictionary({0: kept})
    del kept
    gc.collect()
    assert len(values) == 0


def finalize() -> None:
    deferred: list[Callable[[], None]] = []
    done: list[int] = []
    Guard(deferred.append, done.append, 1)
    deferred[0]()
    assert done == [1]


@pytest.mark.parametrize("name", ["cb", "remove", "__del__"])
@pytest.mark.parametrize("users", [False, True], ids=["default handler", "the user's handler"])
def test_an_interrupt_that_python_would_drop_comes_again(module: Callable[[str], str], name: str, users: bool) -> None:
    acts: dict[str, Callable[[], object]] = {
        "cb": lambda: importlib.import_module(module("")),
        "remove": drop_weak_value,
        "__del__": finalize,
    }

    def raises(_number: int, _frame: Any) -> None:
        raise TimeoutError

    soon: list[Callable[[], None]] = []
    guard = InterruptGuard()
    later: list[Callable[[], None]] = []
    guard.again, guard.later = soon.append, lambda _seconds, callback: later.append(callback)
    if users:
        signal.signal(signal.SIGINT, raises)
    guard.install()
    try:
        assert interrupt_at_each_line(name, acts[name])
        assert soon
        soon[0]()
        again = threading.Thread(target=later.pop())
        with pytest.raises(TimeoutError if users else KeyboardInterrupt):
            again.start()
            again.join()
            for _ in range(1000):
                pass
    finally:
        guard.uninstall()


def test_a_second_interrupt_ends_a_long_import(module: Callable[[str], str]) -> None:
    name = module("import signal\nfor _ in range(2):\n    signal.raise_signal(signal.SIGINT)\nraise AssertionError\n")
    with pytest.raises(KeyboardInterrupt):
        import_whole(name)
    assert name not in sys.modules


def test_a_module_that_keeps_the_handler_it_has_met_keeps_nothing_that_swallows(module: Callable[[str], str]) -> None:
    name = module("import signal\nkept = signal.signal(signal.SIGINT, signal.SIG_IGN)\n")
    kept = import_whole(name).kept
    signal.signal(signal.SIGINT, kept)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
