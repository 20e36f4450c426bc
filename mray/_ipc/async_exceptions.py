"""Errors that one thread raises in another: `PyThreadState_SetAsyncExc`, as stopit, func_timeout and time limits of servers call it.

Python raises such an error at the next byte code of the other thread where it looks for signals, and asks nobody. In the middle of mray's
own code it would cut in half what belongs together, as a handler of a signal would (`mray._ipc.interrupts`). So while a session lives, the
function of `ctypes.pythonapi` is replaced: the thread that raises waits until the other one is where it may be cut, which takes micro- or
milliseconds, and raises then.

    the thread that raises                     the other thread
    ----------------------                     ----------------
    looks at its frames ─────────────────────▶ runs mray's code: looks again a little later
                        ─────────────────────▶ runs the user's, sleeps in mray's, or is about to begin a function of mray's
    looks once more: the same frame? raises, without letting the other thread run in between
    wakes it, if it sleeps

Nothing runs in between because no byte code there looks for signals, which is where a thread hands the interpreter on: attributes and
indices are read, and no function is called (Note [no call in between]).

Rejected: a lock or a flag around what must not be cut (two calls in each function, and what is forgotten is cut); to raise in the thread
that waits from a function that traces it (a thread can have no other traced before Python 3.12).

Who calls the function of the C library by another way (an extension module, `ctypes.PyDLL`) raises at once, as ever.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from _thread import get_ident
from collections.abc import Callable
from opcode import opname
from operator import methodcaller
from types import FrameType
from typing import Any

from mray._common.clock import now
from mray._common.places import RETURNS, Place, place_of, sleeps
from mray._common.record import Record

_NAME = "PyThreadState_SetAsyncExc"
#: How long the thread that raises waits between two looks, at first and at most, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 20e-6, 500e-6
#: After so many looks Python is asked to hand itself on more often: the thread that raises sees the other one only where it lets go.
_LOOKS_BEFORE_HASTE = 3
_HASTE = 10e-6
#: Modules whose functions are the outermost of a thread of mray's own, never of one that the user has started with a function of mray's.
_THREADS = ("mray._backends", "mray._common", "mray._device", "mray._gpu", "mray._ipc", "mray._runtime", "mray.proxy._")


class Guarded(Record):
    """A session's part in this."""

    #: Whether the thread with this ident owns a lock of mray's.
    owns_lock: Callable[[int], bool]
    #: Has threads that sleep in mray's code look whether there is something to do.
    wake: Callable[[], None]
    #: So many seconds an error waits for mray's code to come to an end: then it is raised wherever that is.
    patience: float


class _Threads:
    """The innermost frames of all threads, by their idents.

    Note [no call in between]: `frames` is read like any attribute, and no byte code of Python's runs for it.
    """

    frames: Any = property(methodcaller("_current_frames"))

    def __init__(self) -> None:
        self._current_frames = sys._current_frames


_threads = _Threads()
_guarded: list[Guarded] = []
_haste = threading.Lock()


class AsyncExceptions:
    """In the place of the function of ctypes; its attributes are that one's."""

    def __init__(self, original: Any) -> None:
        vars(self)["original"] = original
        #: The same function, with these types whatever the user gives the other one.
        raises = vars(self)["raises"] = ctypes.pythonapi[_NAME]
        raises.argtypes = (ctypes.c_ulong, ctypes.py_object)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.original, name, value)

    def __call__(self, *args: Any) -> Any:
        """Raise an error in a thread: its ident, and the class; how many threads there were. Waits, mostly for less than a millisecond."""
        guarded = _guarded[-1] if _guarded else None
        try:
            thread, kind = (getattr(each, "value", each) for each in args)
        except ValueError:  # there is no class, or not two arguments
            return self.original(*args)
        if guarded is None or type(thread) is not int or not isinstance(kind, type) or thread == get_ident():
            return self.original(*args)
        begun, looks, pause = now(), 0, _FIRST_PAUSE
        usual = 0.0
        try:
            while now() - begun <= guarded.patience:
                frame = sys._current_frames().get(thread)
                if frame is None:
                    break
                place = place_of(frame, guarded.owns_lock(thread))
                if place.is_idle and _is_mrays_own(frame):
                    return 1  # between two calls it is nobody's
                if place.is_open or place.sleeps or _is_about_to_begin(place, frame):
                    raises, back = self.raises, frame.f_back
                    try:
                        # See Note [no call in between].
                        if _threads.frames[thread] is frame and frame.f_back is back:
                            count = raises(thread, kind)
                            if place.sleeps:
                                for each in tuple(_guarded):
                                    each.wake()
                            return count
                    except KeyError:
                        break
                    finally:
                        del back
                looks += 1
                if looks == _LOOKS_BEFORE_HASTE and _haste.acquire(False):
                    usual = sys.getswitchinterval()
                    sys.setswitchinterval(min(usual, _HASTE))
                del frame, place
                _pause(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            frame = place = None  # type: ignore[assignment]
            if usual:
                sys.setswitchinterval(usual)
                _haste.release()
        return self.original(*args)


@sleeps
def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _is_about_to_begin(place: Place, frame: FrameType) -> bool:
    """Whether a function of mray's that the user calls has done nothing yet."""
    if place.frame is not frame or place.how != RETURNS:
        return False
    return frame.f_lasti < 0 or opname[frame.f_code.co_code[frame.f_lasti]] == "RESUME"


def _is_mrays_own(innermost: FrameType) -> bool:
    """Whether mray has started the thread."""
    frame: FrameType | None = innermost
    outermost = ""
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if type(name) is str and name.startswith("mray"):
            outermost = name
        frame = frame.f_back
    return outermost.startswith(_THREADS)


def guard_threads(guarded: Guarded) -> None:
    """From now on an error that a thread raises in another waits for mray's code. Any thread."""
    _guarded.append(guarded)
    found = getattr(ctypes.pythonapi, _NAME)
    if type(found) is not AsyncExceptions:
        setattr(ctypes.pythonapi, _NAME, AsyncExceptions(found))


def release_threads(guarded: Guarded) -> None:
    """Undo `guard_threads`; twice is safe. Any thread."""
    if guarded not in _guarded:
        return
    _guarded.remove(guarded)
    found = getattr(ctypes.pythonapi, _NAME)
    if not _guarded and type(found) is AsyncExceptions:
        setattr(ctypes.pythonapi, _NAME, found.original)
