"""The end of user code in a worker that ends in order, as at the end of any Python process: its objects go, and its files are flushed.

Main thread. A worker ends by `os._exit`, so that neither native libraries nor threads have a say in that. Before, the user's objects go as
they would if Python itself ended:

    the actor goes        its `__del__`, its files, `finally` of its generators and of coroutines that still run
    exit handlers run     `atexit`, `weakref.finalize`
    garbage, functions    with their variables, which are those of the program that defined them
    modules of the user   those that came into this process with user code, unless threads still run such code
    files                 whatever refers to them is flushed and closed

Rejected: to have Python itself finalize the process. It waits for every thread that is no daemon: on Ray an actor with such a thread stays
for ever. And it runs the destructors of native libraries, some of which crash beside threads of their own.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Collection
from types import FrameType, ModuleType
from typing import Any

from mray._common.kept import io, os
from mray._common.places import SUSPENDED
from mray._common.uncollected import uncollected
from mray._common.whose_code import USERS, kind_of

#: Paths of the standard library and of the interpreter's frozen modules; and of the runtime's own code.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_RUNTIME = (_PACKAGE, os.path.dirname(os.__file__) + os.sep, "<frozen ")


def finalize(known: Collection[str]) -> None:
    """Let go of all that user code has left in this process; `known`: the names of modules that are not the user's."""
    _flush(_files())  # of garbage in a circle, a file may go before what is to be written to it
    gc.collect()
    with uncollected:
        is_busy = any(_runs_user_code(frame) for thread, frame in sys._current_frames().items() if thread != threading.get_ident())
    if not is_busy:
        _clear([sys.modules.pop(name) for name in reversed(tuple(sys.modules)) if name not in known and _is_of_program(sys.modules[name])])
        gc.collect()
    for file in _files():
        with contextlib.suppress(BaseException):
            file.close()


def end_children() -> None:
    """End the processes of `multiprocessing` that its exit handler would wait for, however long they take."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in () if multiprocessing is None else multiprocessing.active_children():
        child.kill()


def close_tasks(loop: Any) -> None:
    """Close the coroutines that still run in an event loop of asyncio: their ``finally`` clauses run."""
    for task in sys.modules["asyncio"].all_tasks(loop):
        task._log_destroy_pending = False  # noqa: SLF001  (asyncio's)
        try:
            task.get_coro().close()
        except ValueError:  # it runs at the moment, in another thread
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())


def _runs_user_code(frame: FrameType) -> bool:
    """Whether a thread runs code of the user's, or may: one that leaves a generator at this moment hides the frames outside of it."""
    each: FrameType | None = frame
    while each is not None:
        if kind_of(each) == USERS:
            return True
        frame, each = each, each.f_back
    return bool(frame.f_code.co_flags & SUSPENDED)


def _is_of_program(module: Any) -> bool:
    """Whether a module is of the program, and not of a library."""
    if not issubclass(type(module), ModuleType):
        return False
    path = object.__getattribute__(module, "__dict__").get("__file__")  # a lazy module is not to be loaded now
    return isinstance(path, str) and path.endswith(".py") and not path.startswith(_RUNTIME) and "-packages" not in path


def _clear(modules: list[ModuleType]) -> None:
    """Drop what these modules refer to, in Python's order: first the private names, and what makes functions work never."""
    for is_private in (True, False):
        for module in modules:
            variables = object.__getattribute__(module, "__dict__")
            for name in [name for name in variables if name.startswith("_") == is_private and not name.startswith("__")]:
                variables[name] = None


def _files() -> list[io.IOBase]:
    """The open files that keep what is written to them, those that write through others first."""
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    own = {id(stream) for stream in standard} | {id(getattr(stream, "buffer", None)) for stream in standard}
    files = [each for each in gc.get_objects() if issubclass(type(each), io.IOBase) and id(each) not in own and _is_open(each)]
    return sorted(files, key=_depth)


def _is_open(file: io.IOBase) -> bool:
    with contextlib.suppress(BaseException):
        return not isinstance(file, io.RawIOBase) and not file.closed and file.writable()
    return False


def _flush(files: list[io.IOBase]) -> None:
    for file in files:
        with contextlib.suppress(BaseException):
            file.flush()


def _depth(file: io.IOBase) -> int:
    if isinstance(file, io.TextIOBase):
        return 0
    return 2 if isinstance(file, (io.BufferedWriter, io.BufferedRandom, io.BufferedRWPair)) else 1
