"""The orderly end of user code in a worker, as at the end of any Python process, before `os._exit`. Main thread.

  the actor             its `__del__`, its files, `finally` of its generators and of coroutines that still run
  exit handlers         `atexit`, `weakref.finalize`
  garbage, functions    with their variables, which are those of the program that defined them
  the user's modules    loaded into this process by user code, unless threads still run such code
  files                 all that still have references are flushed and closed

Rejected: finalizing by Python. It waits for every non-daemon thread, and runs the destructors of native libraries, some of which crash
while their own threads run.
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

#: Paths of the runtime and of the standard library.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_RUNTIME = (_PACKAGE, os.path.dirname(os.__file__) + os.sep, "<frozen ")


def finalize(known: Collection[str]) -> None:
    """Release all that user code has left; `known`: the names of modules that are not the user's."""
    _flush(_files())  # in cyclic garbage, a file may be collected before a buffer that writes to it
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
    """Kill the processes of `multiprocessing`, for which its exit handler would wait without limit."""
    multiprocessing = sys.modules.get("multiprocessing")
    for child in () if multiprocessing is None else multiprocessing.active_children():
        child.kill()


def close_tasks(loop: Any) -> None:
    """Run the ``finally`` clauses of coroutines that still run in an asyncio event loop."""
    for task in sys.modules["asyncio"].all_tasks(loop):
        task._log_destroy_pending = False  # noqa: SLF001  (asyncio's)
        try:
            task.get_coro().close()
        except ValueError:  # it is running, in another thread
            pass
        except BaseException:
            sys.excepthook(*sys.exc_info())


def _runs_user_code(frame: FrameType) -> bool:
    """Whether a thread may run user code: one that is leaving a generator hides the outer frames."""
    each: FrameType | None = frame
    while each is not None:
        if kind_of(each) == USERS:
            return True
        frame, each = each, each.f_back
    return bool(frame.f_code.co_flags & SUSPENDED)


def _is_of_program(module: Any) -> bool:
    """Whether a module belongs to the program, not to a library."""
    if not issubclass(type(module), ModuleType):
        return False
    path = object.__getattribute__(module, "__dict__").get("__file__")  # avoids loading a lazy module
    return isinstance(path, str) and path.endswith(".py") and not path.startswith(_RUNTIME) and "-packages" not in path


def _clear(modules: list[ModuleType]) -> None:
    """Clear the variables of these modules, private names first; functions need the dunder names."""
    for is_private in (True, False):
        for module in modules:
            variables = object.__getattribute__(module, "__dict__")
            for name in [name for name in variables if name.startswith("_") == is_private and not name.startswith("__")]:
                variables[name] = None


def _files() -> list[io.IOBase]:
    """The open buffered files, outer layers first."""
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
