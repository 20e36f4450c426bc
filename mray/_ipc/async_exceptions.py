"""Errors that one thread raises in another: `PyThreadState_SetAsyncExc`, as stopit, func_timeout and time limits of servers call it.

Such an error would cut mray's code at any byte code. So while a session lives, the function of `ctypes.pythonapi` calls mray's: the
raising thread waits until the other one may be cut, and raises then.

    the thread that raises                     the other thread
    ----------------------                     ----------------
    reads its frames ────────────────────────▶ runs mray's code: read again a little later
                     ────────────────────────▶ runs user code, sleeps in mray's, or is about to begin a function of mray's
    reads once more: the same frame? raises, without letting the other thread run in between
    wakes it, if it sleeps

Calls of the C function by other means raise immediately.

Note [no call in between]
-------------------------
Python checks for signals, switches threads and raises asynchronous errors where a function is called, begins or loops; not where an
attribute or an item is read. So a step that must be atomic reads attributes, which are properties implemented by C functions. The garbage
collector is off meanwhile: it would run finalizers in between (`mray._common.uncollected`).

Rejected: a lock or a flag around what must not be cut (two calls in each function); a trace function that raises in the waiting thread
(impossible before Python 3.12).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from functools import cache, partial
from opcode import opname
from operator import methodcaller
from types import FrameType
from typing import Any

from mray._common.clock import monotonic, sleep
from mray._common.places import RETURNS, SUSPENDED, Place, place_of, sleeps
from mray._common.record import Record
from mray._common.uncollected import uncollected

_NAME = "PyThreadState_SetAsyncExc"
#: First and longest pause between two polls, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 500e-6
#: Polls before the thread switch interval is shortened: the raising thread runs only when the other releases the GIL.
_LOOKS_BEFORE_HASTE = 3
_HASTE = 10e-6
#: Modules whose functions are outermost only in threads that mray has started.
_THREADS = ("mray._backends", "mray._common", "mray._device", "mray._gpu", "mray._ipc", "mray._runtime", "mray.proxy._")


class Guarded(Record):
    """The guard of a session."""

    #: Whether this thread owns a lock of mray.
    owns_lock: Callable[[int], bool]
    #: Wakes threads that sleep in mray's code.
    wake: Callable[[], None]
    #: Seconds an error waits for mray's code to return.
    patience: float


class _Threads:
    """Innermost frames by ident. See Note [no call in between]."""

    frames: Any = property(methodcaller("_current_frames"))

    def __init__(self) -> None:
        self._current_frames = sys._current_frames


class _Raised:
    """Calls the C function when `count` is read. See Note [no call in between]."""

    count: Any = property(methodcaller("_call"))

    def __init__(self, thread: int, kind: int | None) -> None:
        self._call = partial(_original(), thread, kind)


class _Seen:
    """A frame of another thread, with its caller then."""

    __slots__ = ("f_back", "f_code", "f_globals", "frame")

    def __init__(self, frame: FrameType, back: _Seen | None) -> None:
        self.frame = frame
        self.f_code = frame.f_code
        self.f_globals = frame.f_globals
        self.f_back = back


_threads = _Threads()
_guarded: list[Guarded] = []
_haste = threading.Lock()


@cache
def _original() -> Any:
    """The C function, even while the one of `ctypes.pythonapi` calls mray's."""
    function = ctypes.pythonapi[_NAME]
    function.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
    return function


@cache
def _replacement() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(_raise_in_thread)


def _raise_in_thread(thread: int, kind: int | None) -> Any:
    """Wait, then raise the class at address `kind`; returns the number of threads concerned.

    Called by ctypes, which drops errors: one raised in this thread meanwhile is raised again.
    """
    try:
        raised = _when_open(thread, kind)
    except BaseException as error:
        caught = type(error)
        raised = _Raised(get_ident(), id(caught))
    return raised if isinstance(raised, int) else raised.count


def _when_open(thread: int, kind: int | None) -> int | _Raised:
    """Raise it once the thread may be cut, and return the number of threads; or return what raises it immediately."""
    at_once = _Raised(thread, kind)
    if not _guarded or kind is None or thread == get_ident():
        return at_once
    guarded = _guarded[-1]
    begun, looks, pause, usual = monotonic(), 0, _FIRST_PAUSE, 0.0
    try:
        while monotonic() - begun <= guarded.patience:
            with uncollected:
                count = _raise_if_open(thread, kind, guarded)
            if count is not None:
                return count if count >= 0 else at_once
            looks += 1
            if looks == _LOOKS_BEFORE_HASTE and _haste.acquire(False):
                usual = sys.getswitchinterval()
                sys.setswitchinterval(min(usual, _HASTE))
            _pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return at_once
    finally:
        if usual:
            sys.setswitchinterval(usual)
            _haste.release()


def _raise_if_open(thread: int, kind: int, guarded: Guarded) -> int | None:
    """Raise it if the thread may be cut now, and return the number of threads; None if it may not, -1 if it has ended."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return -1
    seen = _seen(frame)
    if seen is None:
        return None
    place = place_of(seen, guarded.owns_lock(thread))
    is_nobodys = place.is_idle and _is_mrays_own(seen)  # between two calls
    if not (is_nobodys or place.is_open or place.sleeps or _is_about_to_begin(place, seen) or frame.f_code is _pause.__code__):
        return None
    raises, back = _original(), None if seen.f_back is None else seen.f_back.frame
    try:
        # See Note [no call in between].
        if _threads.frames[thread] is not frame or frame.f_back is not back:
            return None
        count: int = 1 if is_nobodys else raises(thread, kind)
    except KeyError:
        return -1
    if place.sleeps:
        for each in tuple(_guarded):
            each.wake()
    return count


def _seen(innermost: FrameType) -> Any:
    """A snapshot of another thread's frames; None if it has just left a generator or coroutine: such a frame has no caller, and perhaps
    another one later.
    """
    frames = [innermost]
    while (outside := frames[-1].f_back) is not None:
        frames.append(outside)
    if frames[-1].f_code.co_flags & SUSPENDED:
        return None
    seen = None
    for frame in reversed(frames):
        seen = _Seen(frame, seen)
    return seen


@sleeps
def _pause(seconds: float) -> None:
    sleep(seconds)


def _is_about_to_begin(place: Place, seen: Any) -> bool:
    """Whether a function of mray that user code calls has done nothing yet."""
    frame: FrameType = seen.frame
    if place.frame is not seen or place.how != RETURNS:
        return False
    return frame.f_lasti < 0 or opname[frame.f_code.co_code[frame.f_lasti]] == "RESUME"


def _is_mrays_own(innermost: _Seen) -> bool:
    frame: _Seen | None = innermost
    outermost = ""
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if type(name) is str and name.startswith("mray"):
            outermost = name
        frame = frame.f_back
    return outermost.startswith(_THREADS)


def guard_threads(guarded: Guarded) -> None:
    """Delay errors raised in other threads. Any thread."""
    _guarded.append(guarded)
    with contextlib.suppress(MemoryError, TypeError):  # where no code may be generated; or a test has replaced the function
        _call_instead(_replacement())


def release_threads(guarded: Guarded) -> None:
    """Undo `guard_threads`. Any thread. Idempotent."""
    if guarded in _guarded:
        _guarded.remove(guarded)
        if not _guarded:
            with contextlib.suppress(TypeError):
                _call_instead(_original())


def _call_instead(function: Any) -> None:
    """Replace the address in ctypes' function object; references to it and its argument types stay valid."""
    place = ctypes.c_void_p.from_address(ctypes.addressof(getattr(ctypes.pythonapi, _NAME)))
    place.value = ctypes.cast(function, ctypes.c_void_p).value
