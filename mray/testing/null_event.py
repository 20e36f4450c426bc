"""Events of pretended devices: words in a page of the process that records them, which others map.

    who records                                            who waits, in any process
    record(stream): RECORDED := n, at once                 wait(stream): n := RECORDED, at once
    its stream, when it comes to it: COMPLETED >= n        its stream: until COMPLETED >= n, or the recording process is dead

A page has a line for each event: RECORDED, then LANES words of COMPLETED; number n is completed in word n % LANES. There are several so
that an event that is recorded on another stream, before the last mark was reached, does not make those wait who wait for the new one only.
Each word has one writer: the process that made the page.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
import weakref
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from struct import Struct

from mray._common import clock
from mray._common.process_local import kernel_pid
from mray._device.base import DeviceFaultError, Event
from mray._ipc.memory_order import publish_fence, trust_fence
from mray._ipc.process import start_of
from mray._ipc.segment import PAGE
from mray.testing.null_memory import OpenFile
from mray.testing.null_stream import Fault, Stream, Streams

LANES = 7
_LINE = 1 + LANES
_LINES = PAGE // 8 // _LINE

#: Pid, when it started, descriptor, inode, line.
_HANDLE = Struct("@QQQQQ")

#: Seconds between two looks at the words, at first and at most; and between two looks whether the process lives.
_FIRST_PAUSE, _LAST_PAUSE = 20e-6, 1e-3
_PROOF_OF_LIFE = 5e-3


class Page:
    """Lines of events of one process, mapped; unmapped with the last event there."""

    __slots__ = ("__weakref__", "file", "free", "inode", "memory", "pid", "started", "words")

    def __init__(self, file: OpenFile, pid: int, started: int) -> None:
        self.file = file
        self.inode = os.fstat(file.fd).st_ino
        self.pid = pid
        self.started = started
        self.memory = mmap.mmap(file.fd, PAGE)
        self.words = memoryview(self.memory).cast("Q")
        self.free = deque(range(_LINES))

    def is_recording(self) -> bool:
        """Whether the process that made it lives."""
        return start_of(self.pid) == self.started


#: The pages of this process, and those of others that it has open; by inode.
_own: weakref.WeakValueDictionary[int, Page] = weakref.WeakValueDictionary()
_others: weakref.WeakValueDictionary[int, Page] = weakref.WeakValueDictionary()


def _after_fork() -> None:
    _own.clear()
    _others.clear()


os.register_at_fork(after_in_child=_after_fork)


def _new_line() -> tuple[Page, int]:
    for page in list(_own.values()):
        try:
            return page, page.free.popleft()
        except IndexError:
            continue
    file = OpenFile(os.memfd_create("mray-null-events", os.MFD_CLOEXEC))
    os.ftruncate(file.fd, PAGE)
    page = Page(file, kernel_pid(), start_of(kernel_pid()))
    _own[page.inode] = page
    return page, page.free.popleft()


def _open_page(pid: int, started: int, number: int, inode: int) -> Page:
    gone = f"process {pid}, whose event this is, is gone or has closed it"
    page = (_own if pid == kernel_pid() else _others).get(inode)
    if page is not None and page.pid == pid and page.started == started:
        if not page.is_recording():
            raise RuntimeError(gone)
        return page
    try:
        file = OpenFile(os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        raise RuntimeError(gone) from error
    if os.fstat(file.fd).st_ino != inode or start_of(pid) != started:
        raise RuntimeError(gone)
    page = Page(file, pid, started)
    _others[inode] = page
    return page


class NullEvent(Event):
    """One line, of this process or of another one."""

    __slots__ = ("_line", "_marks", "_page", "_process", "_streams", "handle")

    def __init__(self, streams: Streams, handle: bytes = b"") -> None:
        self._streams = streams
        self._process = kernel_pid()
        if handle:
            pid, started, number, inode, place = _HANDLE.unpack(handle)
            page = _open_page(pid, started, number, inode)
            self.handle = b""
        else:
            page, place = _new_line()
            self.handle = _HANDLE.pack(page.pid, page.started, page.file.fd, page.inode, place)
        self._page: Page | None = page
        self._line = place * _LINE
        #: None: the event of another process.
        self._marks = None if handle else _Marks(page, place)

    def record(self, stream: int) -> None:
        if self._marks is None:
            raise RuntimeError("an event is recorded by the process that made it")
        if self._page is None:
            raise RuntimeError("this event is closed")
        self._marks.record(self._streams.get(stream))

    def wait(self, stream: int) -> None:
        page = self._page
        if page is None:
            raise RuntimeError("this event is closed")
        line = self._line
        number = page.words[line]
        waiting = self._streams.get(stream)
        waiting.enter()
        if page.words[line + 1 + number % LANES] < number:
            waiting.order(lambda: _wait(page, line, number, self._streams.fault))

    def done(self) -> bool:
        page = self._page
        if page is None:
            raise RuntimeError("this event is closed")
        self._streams.fault.check()
        number = page.words[self._line]
        if page.words[self._line + 1 + number % LANES] < number and (self._marks is not None or page.is_recording()):
            return False
        # SYNC POINT null event: work, fence, COMPLETED | read COMPLETED, fence, work.
        trust_fence()
        return True

    def close(self) -> None:
        if self._page is not None and kernel_pid() == self._process:
            with contextlib.suppress(DeviceFaultError):
                self._streams.settle()
        self._let_go()

    def _let_go(self) -> None:
        self._page = None
        if self._marks is not None and kernel_pid() == self._process:
            self._marks.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_marks") and not is_finalizing():
            self._let_go()


class _Marks:
    """The numbers of an own event; outlives it while marks are not reached."""

    def __init__(self, page: Page, place: int) -> None:
        self._page = page
        self._line = line = place * _LINE
        # A line that others had before goes on where they ended: who waits late waits for nothing that never comes.
        self._numbers = itertools.count(page.words[line] + 1)
        #: Numbers that are not completed, by lane; and the highest that is.
        self._open: list[list[int]] = [[] for _ in range(LANES)]
        self._highest = list(page.words[line + 1 : line + 1 + LANES])
        self._lock = allocate_lock()
        #: Empty once the line is free.
        self._places = [place]
        self._is_closed = False

    def record(self, stream: Stream) -> None:
        stream.enter()  # what waits for room, waits before anybody waits for this mark
        number = next(self._numbers)
        self._open[number % LANES].append(number)
        self._page.words[self._line] = number
        stream.order(lambda: self._complete(number))

    def _complete(self, number: int) -> None:
        """On the thread of a stream."""
        lane = number % LANES
        # Finalizers, which may run in here, never come here.
        with self._lock:
            numbers = self._open[lane]
            rest = [other for other in numbers if other != number]
            self._highest[lane] = max(self._highest[lane], number)
            completed = min(rest) - LANES if rest else self._highest[lane]
            # SYNC POINT null event: work, fence, COMPLETED | read COMPLETED, fence, work.
            publish_fence()
            if completed > 0:
                self._page.words[self._line + 1 + lane] = completed
            numbers.remove(number)  # last: without open numbers, the line may be given to another event
        if self._is_closed:
            self.close()

    def close(self) -> None:
        self._is_closed = True
        if not any(self._open):
            try:
                self._page.free.append(self._places.pop())
            except IndexError:
                pass  # has been done


def _wait(page: Page, line: int, number: int, fault: Fault) -> None:
    """On the thread of a stream."""
    pause = _FIRST_PAUSE
    since_proof = 0.0
    own = page.pid == kernel_pid()
    while page.words[line + 1 + number % LANES] < number and fault.error is None:
        clock.sleep(pause)
        since_proof += pause
        pause = min(1.5 * pause, _LAST_PAUSE)
        if since_proof > _PROOF_OF_LIFE and not own:
            since_proof = 0.0
            if not page.is_recording():
                break
    # SYNC POINT null event: work, fence, COMPLETED | read COMPLETED, fence, work.
    trust_fence()
