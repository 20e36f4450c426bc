"""Where a signal has interrupted the main thread: in user code, in mray's own, or in a sleep.

A user's handler may raise, and call anything. In the middle of mray's own code that would tear apart what belongs together (a message
that is sent and counted, a lock), so `mray._ipc.interrupts` runs it where user code continues.

Functions of mray that call user code, and do nothing else that must not be cut, count as user code (`runs_users`), since the called
function may be one of C, which has no frame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from opcode import opname
from types import CodeType, FrameType
from typing import Any, TypeVar

from mray._common.dropped_errors import dropping_frame
from mray._common.record import Record
from mray._common.whose_code import OWN, USERS, kind_of, known

#: A delayed handler runs when mray's outermost function `RETURNS`, in which the error is raised; or when user code has reached a location
#: `AFTER` that, where Python would check for signals.
RETURNS, AFTER = "returns", "after"

SUSPENDED = 0x20 | 0x80 | 0x200  # `inspect`: CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR

_sleeps: set[CodeType] = set()
_runs_users: set[CodeType] = set()
_dispatches: set[CodeType] = set()
_precedes: set[CodeType] = set()
#: Keyed by the code of `undone` functions.
undone_by: dict[CodeType, Callable[[dict[str, Any], Any], None]] = {}

F = TypeVar("F", bound=Callable[..., Any])


def sleeps(function: F) -> F:
    """Mark a function that sleeps, and may be left at any byte code."""
    _sleeps.add(function.__code__)
    return function


def runs_users(function: F) -> F:
    """Mark a function that calls user code, and may be left at any byte code."""
    _runs_users.add(function.__code__)
    return function


def dispatches(function: F) -> F:
    """Mark a function that handles messages of any receiver: nothing that it calls may be cut, not even user code."""
    _dispatches.add(function.__code__)
    return function


def precedes_dispatch(function: F) -> F:
    """Mark a function during which its caller, which `dispatches`, does not dispatch yet."""
    _precedes.add(function.__code__)
    return function


def undone(undo: Callable[[dict[str, Any], Any], None]) -> Callable[[F], F]:
    """Mark a function that removes what it returns: `undo(locals, value)` restores the value if an error is raised instead."""

    def note(function: F) -> F:
        undone_by[function.__code__] = undo
        return function

    return note


class Place(Record):
    """Where the main thread is."""

    #: A handler may run here: in user code, or in a sleep on its behalf.
    is_open: bool
    sleeps: bool
    #: If not open: the frame to wait for; None if no user code is on the stack, as in a worker between two calls.
    frame: FrameType | None = None
    how: str = RETURNS

    @property
    def is_idle(self) -> bool:
        return self.frame is None and not self.is_open


def counts_as(frame: FrameType) -> str:
    """The owner of a frame's code, or the user if it `runs_users`."""
    kind = known.get(frame.f_code.co_filename) or kind_of(frame)
    # Last, since hashing a function's code is slower than all the rest.
    return USERS if kind == OWN and frame.f_code in _runs_users else kind


def place_of(innermost: FrameType | None, is_locked: bool = False, most: int = -1) -> Place:
    """The place of a thread with this innermost frame. `is_locked`: it owns a lock of mray, whatever code it runs.

    At most `most` frames (-1: all) are examined where mray does not dispatch, so that deep user code does not make signals slow.
    """
    if innermost is None:  # at the prompt of an interpreter
        return Place(True, False)
    asleep = _is_asleep(innermost)
    dropping = dropping_frame(innermost, most)
    own = _outermost_own(innermost, is_locked, most) if dropping is None else None
    if dropping is not None:
        frame: FrameType | None = dropping.f_back
        # mray's code may have dropped the object.
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
    frame: FrameType | None = innermost
    while frame is not None and (kind := counts_as(frame)) != USERS:
        if kind == OWN:
            return frame.f_code in _sleeps and not _is_dispatching(frame)
        frame = frame.f_back
    return False


def _is_dispatching(innermost: FrameType) -> bool:
    inner, frame = innermost, innermost.f_back
    while frame is not None and counts_as(frame) != USERS:
        if frame.f_code in _dispatches and inner.f_code not in _precedes:
            return True
        inner, frame = frame, frame.f_back
    return False


def _outermost_own(innermost: FrameType, is_locked: bool, most: int) -> FrameType | None:
    """The outermost of mray's frames that must return before a handler may run, or None if user code may be cut here."""
    frame: FrameType | None = innermost
    while frame is not None:
        kind = counts_as(frame)
        if kind == OWN:
            return _region(frame)
        if kind == USERS:
            break
        frame = frame.f_back
    # User code, which mray may have called in the middle of something.
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
    """The outermost of mray's frames from this one outwards, up to the next user frame."""
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
    """The first user frame from this one outwards."""
    while frame is not None and counts_as(frame) != USERS:
        frame = frame.f_back
    return frame


def frame_of(code: CodeType, frame: FrameType | None) -> FrameType | None:
    """The first frame of this code from this one outwards."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame


def is_amidst(codes: Collection[CodeType], owner: object) -> bool:
    """Whether the caller runs on behalf of user code, such as a finalizer, that interrupted one of these methods of `owner` (the method's
    ``self`` or ``results``).
    """
    frame = users_frame(sys._getframe(1))
    while frame is not None:
        if frame.f_code in codes and owner in (frame.f_locals.get("self"), frame.f_locals.get("results")):
            return True
        frame = frame.f_back
    return False


# ---------------------------------------------------------------------------------------- byte codes
#: Byte codes after which the interpreter checks for signals.
_LOOKS = tuple(name.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE")) for name in opname)
_RETURNS = tuple(name.startswith("RETURN_") for name in opname)


def looks_for_signals(frame: FrameType, offset: int) -> bool:
    """Whether Python checks for signals after the byte code at this offset."""
    return _LOOKS[frame.f_code.co_code[offset]]


def is_returning(frame: FrameType, offset: int) -> bool:
    """Whether the frame's last byte code, at this offset, returns a value; else an error propagates."""
    return _RETURNS[frame.f_code.co_code[offset]]
