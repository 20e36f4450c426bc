"""Where a signal has met the main thread: in code of the user's, in mray's own, or in a sleep.

Pure: frames in, a `Place` out. A handler of the user's may raise, and call anything. In the middle of mray's own code either would cut
in half what belongs together (a message that is sent and counted, a lock, a reply that is taken and kept), so `mray._ipc.interrupts` has it
run where the user's code goes on.

Functions of mray's that call one of the user's, and do nothing else that must not be cut, count as the user's (`runs_users`): that function
may be one of C, which has no frame. The owner of a frame's code is that of `whose_code`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from opcode import opname
from types import CodeType, FrameType
from typing import Any, TypeVar

from mray._common.dropped_errors import dropping_frame
from mray._common.record import Record
from mray._common.whose_code import OWN, USERS, kind_of, known

#: How a handler gets its turn later: when mray's outermost function `RETURNS`, in which the error is raised; or the user's code has gone on
#: to a place `AFTER` that, where Python itself would look for signals.
RETURNS, AFTER = "returns", "after"

SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_sleeps: set[CodeType] = set()
_runs_users: set[CodeType] = set()
_dispatches: set[CodeType] = set()
_precedes: set[CodeType] = set()
#: Of functions that take something away when they return it: called with their locals and the value.
undone_by: dict[CodeType, Callable[[dict[str, Any], Any], None]] = {}

F = TypeVar("F", bound=Callable[..., Any])


def sleeps(function: F) -> F:
    """This function sleeps, and may be left at any of its byte codes."""
    _sleeps.add(function.__code__)
    return function


def runs_users(function: F) -> F:
    """This function calls one of the user's, and may be left at any of its byte codes, as that may."""
    _runs_users.add(function.__code__)
    return function


def dispatches(function: F) -> F:
    """This function handles what has come, whosever it is: nothing that it calls may be cut, not even the user's."""
    _dispatches.add(function.__code__)
    return function


def precedes_dispatch(function: F) -> F:
    """While this function runs, the one that dispatches and has called it does not dispatch yet."""
    _precedes.add(function.__code__)
    return function


def undone(undo: Callable[[dict[str, Any], Any], None]) -> Callable[[F], F]:
    """When an error is raised in the place of the value that this function returns, `undo(locals, value)` puts the value back."""

    def note(function: F) -> F:
        undone_by[function.__code__] = undo
        return function

    return note


class Place(Record):
    """Where the main thread is."""

    #: A handler may run here: in the user's code, or in a sleep that it has called for.
    is_open: bool
    #: The thread sleeps.
    sleeps: bool
    #: Else: the frame to wait for, and how; None when there is none of the user's, in a worker between two calls.
    frame: FrameType | None = None
    how: str = RETURNS

    @property
    def is_idle(self) -> bool:
        """No code of the user's is under way."""
        return self.frame is None and not self.is_open


def counts_as(frame: FrameType) -> str:
    """The owner of a frame's code, but the user where it `runs_users`."""
    kind = known.get(frame.f_code.co_filename) or kind_of(frame)
    # (Only now: the hash of a function's code takes longer than all of that.)
    return USERS if kind == OWN and frame.f_code in _runs_users else kind


def place_of(innermost: FrameType | None, is_locked: bool = False, most: int = -1) -> Place:
    """The place of a thread whose innermost frame this is; `is_locked`: it owns a lock of mray's, whatever code it runs.

    With `most`, of a thread in which mray does not dispatch, no more frames than that are looked at (-1: all of them): a signal that comes
    often must not cost more the deeper the user's code is.
    """
    if innermost is None:  # at the prompt of an interpreter
        return Place(True, False)
    asleep = _is_asleep(innermost)
    dropping = dropping_frame(innermost, most)
    own = _outermost_own(innermost, is_locked, most) if dropping is None else None
    if dropping is not None:
        frame: FrameType | None = dropping.f_back
        # Perhaps mray's code has dropped the object.
        own = _region(dropping) if frame is not None and counts_as(frame) == OWN else None
        if own is None:
            users = users_frame(frame)
            return Place(False, False, users, AFTER)
    if own is None:
        return Place(True, asleep)
    outside = own.f_back
    users = users_frame(outside)
    if users is None:
        return Place(False, asleep)
    if asleep:
        return Place(True, True)
    if users is not outside or own.f_code.co_flags & SUSPENDED or dropping_frame(own, 1) is not None:
        return Place(False, False, users, AFTER)
    return Place(False, False, own, RETURNS)


def _is_asleep(innermost: FrameType) -> bool:
    """Whether mray sleeps, also by a function of a library's."""
    frame: FrameType | None = innermost
    while frame is not None and (kind := counts_as(frame)) != USERS:
        if kind == OWN:
            return frame.f_code in _sleeps and not _is_dispatching(frame)
        frame = frame.f_back
    return False


def _is_dispatching(innermost: FrameType) -> bool:
    """Whether a function below the user's next one dispatches what has come."""
    inner, frame = innermost, innermost.f_back
    while frame is not None and counts_as(frame) != USERS:
        if frame.f_code in _dispatches and inner.f_code not in _precedes:
            return True
        inner, frame = frame, frame.f_back
    return False


def _outermost_own(innermost: FrameType, is_locked: bool, most: int) -> FrameType | None:
    """The outermost of mray's frames between the user's code that must wait and what goes on; None when the user's may be cut here."""
    frame: FrameType | None = innermost
    while frame is not None:
        kind = counts_as(frame)
        if kind == OWN:
            return _region(frame)
        if kind == USERS:
            break
        frame = frame.f_back
    # The user's, which mray may have called in the middle of something.
    while frame is not None and most:
        if kind_of(frame) == OWN:
            code = frame.f_code
            if code in _runs_users:
                break
            if is_locked or code in _dispatches:
                return _region(frame)
        frame = frame.f_back
        most -= 1
    return None


def _region(frame: FrameType) -> FrameType:
    """The outermost frame of mray's before one of the user's, from one of mray's on outwards."""
    own = frame
    each = frame.f_back
    while each is not None:
        kind = counts_as(each)
        if kind == USERS:
            break
        if kind == OWN:
            own = each
        each = each.f_back
    return own


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The first frame of the user's from this one on outwards."""
    while frame is not None and counts_as(frame) != USERS:
        frame = frame.f_back
    return frame


def frame_of(code: CodeType, frame: FrameType | None) -> FrameType | None:
    """The first frame of this function from this one on outwards."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def is_amidst(codes: Collection[CodeType], owner: object) -> bool:
    """Whether the caller runs for code of the user's that was called in the middle of one of these methods of `owner`: a finalizer, say.

    `owner` is the method's ``self``, or its ``results``.
    """
    frame = users_frame(sys._getframe(1))
    while frame is not None:
        if frame.f_code in codes and owner in (frame.f_locals.get("self"), frame.f_locals.get("results")):
            return True
        frame = frame.f_back
    return False


# ---------------------------------------------------------------------------------------- byte codes
#: After these the interpreter looks for signals.
_LOOKS = tuple(name.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE")) for name in opname)
_RETURNS = tuple(name.startswith("RETURN_") for name in opname)


def looks_for_signals(frame: FrameType, offset: int) -> bool:
    """Whether Python looks for signals after the byte code of a frame at this place."""
    return _LOOKS[frame.f_code.co_code[offset]]


def is_returning(frame: FrameType, offset: int) -> bool:
    """Whether the byte code of a frame at this place, the last that it runs, returns a value; else an error goes through it."""
    return _RETURNS[frame.f_code.co_code[offset]]
