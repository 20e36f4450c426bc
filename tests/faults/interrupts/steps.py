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
import threading
from collections.abc import Callable, Iterator
from opcode import opname
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, cast

import mray
from mray._common.places import counts_as, is_returning, looks_for_signals
from mray._common.whose_code import OWN

#: A file and a module of mray's that do not exist.
_FILE, _MODULE = f"{Path(mray.__file__).parent}/pretended.py", "mray.pretended"


def as_own(function: Callable[..., Any], module: str = _MODULE) -> Any:
    """The function, and those that it defines, as if a module of mray's had them."""
    assert isinstance(function, FunctionType)
    scope = {**function.__globals__, "__name__": module}
    copy = FunctionType(_own_code(function.__code__), scope, None, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _own_code(code: CodeType) -> CodeType:
    constants = tuple(_own_code(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=_FILE, co_consts=constants)


_PLAIN = ("LOAD_FAST", "LOAD_CONST", "STORE_FAST", "POP", "COPY", "SWAP", "JUMP", "RETURN", "NOP", "PRECALL", "PUSH", "RESUME", "CACHE")


def allocates(frame: FrameType, offset: int) -> bool:
    """Whether the byte code of a frame at this place may make an object."""
    return not opname[frame.f_code.co_code[offset]].startswith(_PLAIN)


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


def _at_step(wanted: int, act: Callable[[], object], *, looks: bool | None = None) -> Iterator[Steps]:
    """Call `act` at the byte code with this number, from 0 on.

    `looks`: only those before which Python looks for signals are counted; False: those in which the collector may run as well, which is
    where something is allocated, and since Python 3.12 where it looks for signals.
    """
    steps = Steps(wanted)
    before: list[Any] = [None, False]

    def passes(frame: FrameType, offset: int) -> bool:
        """Whether `act` is called before this byte code; counts it."""
        if frame.f_code.co_filename == _FILE:
            return False  # the end of the steps itself
        same, looked = before
        before[:] = frame, looks_for_signals(frame, offset)
        may = same is frame and looked
        if is_returning(frame, offset):
            return False  # too late for the function's return to be noticed, and nothing comes there
        if steps.where or (looks is not None and not (may or (not looks and allocates(frame, offset)))):
            return False
        if steps.count == wanted:
            steps.where = f"{frame.f_globals['__name__']}:{frame.f_code.co_name}:{frame.f_lineno}+{offset}"
            return True
        steps.count += 1
        return False

    end = _monitor(as_own(passes), act) if sys.version_info >= (3, 12) else _trace(as_own(passes), act)
    try:
        yield steps
    finally:
        end()
        before[:] = None, False


def _trace(passes: Callable[[FrameType, int], bool], act: Callable[[], object]) -> Callable[[], None]:
    """Ask `passes` before each byte code of mray's in this thread, until it is true or the end is called."""

    def in_frame(frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode" and passes(frame, frame.f_lasti):
            sys.settrace(None)
            act()
            return None
        return traced

    def called(frame: FrameType, _event: str, _arg: Any) -> Any:
        if counts_as(frame) != OWN:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return traced

    traced, calls = as_own(in_frame), as_own(called)
    sys.settrace(calls)

    def end() -> None:
        if sys.gettrace() is calls:
            sys.settrace(None)

    return cast(Callable[[], None], as_own(end))


def _monitor(passes: Callable[[FrameType, int], bool], act: Callable[[], object]) -> Callable[[], None]:
    """The same from Python 3.12 on, where frames that run already are traced less exactly."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    thread = threading.get_ident()
    tool = monitoring.DEBUGGER_ID

    def instruction(_code: Any, offset: int) -> None:
        frame = sys._getframe(1)
        if threading.get_ident() == thread and counts_as(frame) == OWN and passes(frame, offset):
            monitoring.set_events(tool, 0)
            act()

    monitoring.use_tool_id(tool, "steps")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, as_own(instruction))
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)

    def end() -> None:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)

    return cast(Callable[[], None], as_own(end))


#: As mray's own: nothing comes in the middle of its end.
at_step = contextlib.contextmanager(as_own(_at_step))
