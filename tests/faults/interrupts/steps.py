"""Something done to the main thread at the k-th byte code of mray's that it runs.

    with at_step(k, act) as steps:       # traces the main thread
        mray.get(ref)                    # act() is called before the k-th byte code of mray's in here
    steps.count                          # the byte codes of mray's there were, if `act` did not come
    steps.where                          # the place, if it did

`act` is called as if a signal, or the garbage collector, had come there: the innermost frames belong to mray.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from opcode import opname
from types import FrameType, FunctionType
from typing import Any

from mray._common.places import OWN, kind_of, looks_for_signals


def as_own(function: Callable[..., Any]) -> Any:
    """The function as if a module of mray's had it."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__, {**function.__globals__, "__name__": "mray.pretended"}, None, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_PLAIN = ("LOAD_FAST", "LOAD_CONST", "STORE_FAST", "POP", "COPY", "SWAP", "JUMP", "RETURN", "NOP", "PRECALL", "PUSH", "RESUME", "CACHE")


def allocates(frame: FrameType) -> bool:
    """Whether the byte code that a frame is about to run may make an object."""
    return not opname[frame.f_code.co_code[frame.f_lasti]].startswith(_PLAIN)


class Steps:
    """How far the thread has come."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0
        self.where = ""

    @property
    def came(self) -> bool:
        """Whether the wanted byte code was reached."""
        return bool(self.where)


@contextlib.contextmanager
def at_step(wanted: int, act: Callable[[], object], *, looks: bool | None = None) -> Iterator[Steps]:
    """Call `act` at the byte code with this number, from 0 on.

    `looks`: only those before which Python looks for signals are counted; False: those in which the collector may run as well, which is
    where something is allocated, and since Python 3.12 where it looks for signals.
    """
    steps = Steps(wanted)
    before: list[Any] = [None, False]

    def in_frame(frame: FrameType, event: str, _arg: Any) -> Any:
        if steps.where:
            return None
        if event == "opcode":
            same, looked = before
            before[:] = frame, looks_for_signals(frame)
            may = same is frame and looked
            if looks is not None and not (may or (not looks and allocates(frame))):
                return traced
            if steps.count == wanted:
                sys.settrace(None)
                steps.where = f"{frame.f_globals['__name__']}:{frame.f_code.co_name}:{frame.f_lineno}+{frame.f_lasti}"
                act()
                return None
            steps.count += 1
        return traced

    def called(frame: FrameType, _event: str, _arg: Any) -> Any:
        if steps.where or kind_of(frame) != OWN:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return traced

    traced = as_own(in_frame)
    sys.settrace(as_own(called))
    try:
        yield steps
    finally:
        before[:] = None, False
        if not steps.where:
            sys.settrace(None)
