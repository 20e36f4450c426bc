"""Faults of the devices of this process: detected while other processes wait for queued work, and reported once.

    the thread that writes, finalizers           a thread of this process                   the runtime
    promise(device, point) -----------------> polls until it is reached ------ fault ---> listen(tell): ends the process, with the reason
    report(error), of a call that failed ---> immediately -------------------- fault --->

After a fault a device does no more work for this process: its promised work never completes, and other processes' streams wait, while it
lives and does not query its device. So a thread polls while a promise is open.

Without a listener nothing is watched. Any thread, finalizers too: nothing here takes a lock.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from typing import Protocol

from mray._common.kept import os
from mray._device.device import Device, DeviceFaultError

#: Seconds between two polls while a promise is open.
LOOK = 0.05


class FaultPromise(Protocol):
    """Work on a stream that another process waits for. Hashable by identity."""

    def reached(self) -> bool:
        """Whether it is done."""


class _Watch:
    def __init__(self, tell: Callable[[DeviceFaultError], None]) -> None:
        self._tell = tell
        self.promises: dict[FaultPromise, None] = {}
        #: A new promise since the last poll: more may follow, each of which would wake the thread if it slept.
        self.is_fresh = False
        self._devices: dict[Device, None] = {}
        self._fault: DeviceFaultError | None = None
        #: Held, except for a moment when the thread is to poll.
        self._wakeup = allocate_lock()
        self._wakeup.acquire()
        #: Whether the thread waits without a limit.
        self._sleeps = False
        self._is_ended = False
        self._teller = 0
        #: Held while there is a thread.
        self._running = allocate_lock()

    def promise(self, device: Device, promise: FaultPromise) -> None:
        self._devices[device] = None
        self.promises[promise] = None
        if self._sleeps:
            self._wake()
        elif not self._running.locked():
            self._start()

    def report(self, fault: DeviceFaultError) -> None:
        if self._fault is None:
            self._fault = fault
            self._wake()
            self._start()

    def _wake(self) -> None:
        try:
            self._wakeup.release()
        except RuntimeError:
            pass  # already released

    def _start(self) -> None:
        if self._is_ended or not self._running.acquire(blocking=False):
            return
        try:
            # Not of `threading`: its threads take a lock to start, which the frame that a finalizer interrupts may hold.
            start_new_thread(self._run, ())
        except BaseException as error:
            self._running.release()
            if not isinstance(error, RuntimeError):  # the interpreter ends, or no more threads can start
                raise
            self.promises.clear()  # the next promise tries again

    def _forsake(self) -> None:
        """If this process continues, release the streams that wait for its devices."""
        for device in list(self._devices):
            timelines = device.belongings.get("timelines")
            if timelines is not None:
                timelines.forsake()

    def _run(self) -> None:
        try:
            while not self._is_ended:
                fault = self._fault or self._look()
                if fault is not None:
                    self._is_ended = True
                    self._teller = get_ident()
                    try:
                        self._tell(fault)
                    finally:
                        self._forsake()
                    return
                self._sleeps = True
                if self.promises or self.is_fresh:
                    self._sleeps = self.is_fresh = False
                    self._wakeup.acquire(timeout=LOOK)
                else:
                    self._wakeup.acquire()
                    self._sleeps = False
        finally:
            self._running.release()

    def _look(self) -> DeviceFaultError | None:
        promises = list(self.promises)  # atomic: finalizers add to it
        try:
            for device in list(self._devices):
                device.check()
        except DeviceFaultError as error:
            return error
        except RuntimeError:
            return None  # of another kind: promises are polled again
        for promise in promises:
            del self.promises[promise]
            if not promise.reached():  # checked afterwards: it may be promised again
                self.promises[promise] = None
        return None

    def end(self) -> None:
        self._is_ended = True
        if self._teller == get_ident():
            return
        while not self._running.acquire(timeout=LOOK):
            self._wake()
        self._running.release()


_watch: _Watch | None = None


def promise(device: Device, promise: FaultPromise) -> None:
    """Another process is going to wait for this work, queued on a stream of the device."""
    watch = _watch
    if watch is not None:
        watch.is_fresh = True
        if promise not in watch.promises:
            watch.promise(device, promise)


def report(fault: DeviceFaultError) -> None:
    """Report a fault of a call. Returns immediately."""
    watch = _watch
    if watch is not None:
        watch.report(fault)


def listen(tell: Callable[[DeviceFaultError], None]) -> Callable[[], None]:
    """Report the first fault of this process, once, in a separate thread, to the latest listener. Returns the function that ends that.

    The function waits for the thread, unless `tell` calls it; idempotent.
    """
    global _watch
    watch = _watch = _Watch(tell)

    def end() -> None:
        global _watch
        if _watch is watch:
            _watch = None
        watch.end()

    return end


def _after_fork() -> None:
    global _watch
    _watch = None


os.register_at_fork(after_in_child=_after_fork)
