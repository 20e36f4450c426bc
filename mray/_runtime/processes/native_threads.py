"""Threads of native libraries in a worker: OpenMP's, OpenBLAS's, MKL's, torch's.

In the zygote while it preloads, and in a worker's main thread.

A library reads OMP_NUM_THREADS once, when it is loaded or first computes. Preloaded modules load libraries before the CPUs of a task are
known: these are loaded with one thread, so that they start none in the zygote, which a forked process would lack. Where a task or an
actor has more CPUs, functions of the loaded libraries set the number. With too many threads, workers would wait for each other in busy
loops.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
import warnings
from collections.abc import Callable, Iterator

from mray._common.kept import io, os

VARIABLE = "OMP_NUM_THREADS"
#: File names of libraries, with the possible names of the setter.
_SETTERS = (
    (re.compile(r"lib(gomp|omp|iomp5)\b"), ("omp_set_num_threads",)),
    (re.compile(r"lib\w*openblas"), tuple(f"{scipys}openblas_set_num_threads{wide}" for scipys in ("", "scipy_") for wide in ("", "64_"))),
    (re.compile(r"libmkl_rt\b"), ("MKL_Set_Num_Threads",)),
)

#: Name prefixes of threads that an allocator restarts after a fork.
_ALLOCATORS = ("jemalloc_bg_thd",)


class NativeThreads:
    def __init__(self) -> None:
        #: Whether the user has set the variable: it holds for all processes then.
        self._is_users = VARIABLE in os.environ
        #: The number that the loaded libraries have; None before the first.
        self._told: int | None = None
        self._setters: list[Callable[[int], object]] = []
        #: The number of imported modules at the last search for setters.
        self._looked_at = 0

    @contextlib.contextmanager
    def one_while_loading(self) -> Iterator[None]:
        if self._is_users or VARIABLE in os.environ:
            yield
            return
        os.environ[VARIABLE] = "1"
        try:
            yield
        finally:
            del os.environ[VARIABLE]
            self._told = 1

    def one_for_loaded(self) -> None:
        """Set loaded libraries, which use one thread per processor, to one."""
        if not self._is_users:
            self._told = 0
            self.set(1)
            del os.environ[VARIABLE]

    def set(self, count: int) -> None:
        if self._is_users:
            return
        os.environ[VARIABLE] = str(count)
        if self._told not in (None, count):
            for setter in self._find_setters():
                setter(count)
            # torch has a number of its own, for all threads of the process.
            set_torchs = getattr(sys.modules.get("torch"), "set_num_threads", None)
            if set_torchs is not None:
                set_torchs(count)
        self._told = count

    def adopt(self) -> None:
        """Set modules that were loaded with one thread to the variable's number."""
        count = os.environ.get(VARIABLE, "")
        if self._told is not None and count.isdigit() and int(count) > 1:
            self._told = 0
            self.set(int(count))

    def _find_setters(self) -> list[Callable[[int], object]]:
        if self._looked_at != len(sys.modules):
            self._looked_at = len(sys.modules)
            self._setters = [setter for path in sorted(loaded_libraries()) for setter in _setters_of(path)]
        return self._setters


def lasting_threads() -> set[int]:
    """The kernel's ids of this process's other threads whose work waits for them in a forked process: OpenMP waits forever.

    Some libraries handle forks: an allocator restarts its threads, and OpenBLAS has ended its own when a fork returns. So, where there
    are threads, a fork is tried. Main thread only.
    """
    if not (found := _other_threads()):
        return found
    with warnings.catch_warnings(action="ignore") if sys.version_info >= (3, 11) else contextlib.nullcontext():
        child = os.fork()  # from Python 3.12 on it warns of threads
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return found & _other_threads()


def _other_threads() -> set[int]:
    found = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), io.open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            if int(thread) != os.getpid() and not file.read().startswith(_ALLOCATORS):
                found.add(int(thread))
    return found


def loaded_libraries() -> set[str]:
    with io.open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return {path for line in maps if (path := line.rstrip("\n").partition("/")[2]) and ".so" in path}


def _setters_of(path: str) -> Iterator[Callable[[int], object]]:
    for pattern, names in _SETTERS:
        if pattern.match(os.path.basename(path)):
            try:
                library = ctypes.CDLL(f"/{path}", mode=os.RTLD_NOLOAD)
            except OSError:  # its file was replaced, or is in another namespace
                continue
            found = [getattr(library, name) for name in names if hasattr(library, name)]
            yield from found[:1]


native_threads = NativeThreads()
