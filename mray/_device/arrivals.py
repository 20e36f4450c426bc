"""Tensors that come in: opening the memory they lie in, and letting their sender know when nobody looks at them any more.

    the thread that reads                                         finalizers, in any thread
    Arrivals.bring(facts) -> tensor       each tensor             the last view of a message's tensors dies: an event marks the
    Arrivals.end_message()                the whole message       reader's stream, and the lease is released with it

On the device that the tensor is on, it is a view of the sender's memory: nothing is copied, whatever its size. When the reader holds on
to very many tensors it is copied within the device, and the lease ends with the message: its sender would have nothing left to lend. To
another device, or from pinned memory, it is copied beside what the device computes (`mray._device.landings`), and the lease ends with the
copy.

The reader's stream waits for the sender's event, or for the copy; the reader does not. Work with a tensor must be queued on the stream that
was current when it was read, or be waited for by that one, before the last view of it goes.

Memory of other processes is opened once in each process, for all edges from there (`Mapping`), and closed when the last edge and the last
view are gone and the device is done with it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from mray._common.process_local import kernel_pid
from mray._device.base import CaptureError, Device, DeviceFaultError, Event, NotOpenedError, Platform
from mray._device.departures import OPENS, OPENS_NOTHING, DepartureFacts
from mray._device.faults import promise, report
from mray._device.landings import Landed, Landings
from mray._device.lending import lend_event, recorded, return_event
from mray._device.pinned_memory import PinnedMemory
from mray._device.pool import HOST

#: Releases a lease: its number, its use, and a note: the reader's word, and the handle of the event that marks its last work. For
#: finalizers.
Release = Callable[[int, int, bytes], None]


# ------------------------------------------------------------------------------------ others' memory
class Mapping:
    """One region of another process, as this one has it open."""

    __slots__ = ("__weakref__", "_memory", "address", "device")

    def __init__(self, device: Device, place: str, handle: bytes) -> None:
        self.device = device
        self._memory = PinnedMemory(device) if place == HOST else None
        self.address = device.open_memory(handle) if self._memory is None else self._memory.open(handle)

    def close(self) -> None:
        """Nobody looks at it, and no work on it is queued."""
        if self._memory is None:
            self.device.close_memory(self.address)
        else:
            self._memory.free(self.address)


class _Mappings:
    """All of this process: region key and device -> the mapping, and how many ends use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[tuple[bytes, Device], tuple[Mapping, int]] = {}

    def open(self, device: Device, place: str, key: bytes, handle: bytes) -> Mapping:
        with self._lock:
            mapping, users = self._known.get((key, device), (None, 0))
            if mapping is None:
                mapping = Mapping(device, place, handle)
            self._known[key, device] = mapping, users + 1
            return mapping

    def leave(self, device: Device, key: bytes) -> None:
        with self._lock:
            mapping, users = self._known.pop((key, device))
            if users > 1:
                self._known[key, device] = mapping, users - 1
            else:
                mapping.close()


_mappings = _Mappings()

#: Ends that are closed, and whose tensors are still held, or their last work not done.
_retired: deque[Arrivals] = deque()


def sweep_retired() -> bool:
    """Close the memory of ends that are done with it by now; whether none is left but for tensors that are held.

    Any thread, no finalizers.
    """
    for _ in range(len(_retired)):
        try:
            arrivals = _retired.popleft()
        except IndexError:
            break
        if not arrivals.retire():
            _retired.append(arrivals)
    return not any(not arrivals.held for arrivals in list(_retired))


# ------------------------------------------------------------------------------------ what is read
class _Hold:
    """Kept alive by the tensors of one lease; releases it."""

    __slots__ = ("_arrivals", "_lease", "_process", "_use", "device", "is_ready", "stream")

    def __init__(self, arrivals: Arrivals, device: Device, stream: int, lease: int, use: int) -> None:
        self._arrivals = arrivals
        self._lease = lease
        self._use = use
        self._process = kernel_pid()
        self.device = device
        self.stream = stream
        #: Whether the stream waits for the whole message of the sender.
        self.is_ready = False
        arrivals.held += 1

    def forget(self) -> None:
        """Release nothing."""
        self._process = 0
        self._arrivals.held -= 1

    def __del__(self) -> None:
        # A forked child has copies of its parent's tensors, and none of their memory. A process that ends releases everything by that.
        if kernel_pid() == self._process and not sys.is_finalizing():
            self._arrivals.let_go(self.device, self.stream, self._lease, self._use)


@contextlib.contextmanager
def _opening() -> Iterator[None]:
    """While entered, something of another process is opened."""
    try:
        yield
    except DeviceFaultError as error:
        report(error)
        raise
    except RuntimeError as error:
        raise NotOpenedError(str(error)) from error


class Arrivals:
    """The tensors that one end reads. `most`: how many leases it keeps; it copies what comes beyond. `copies`: it copies everything.

    `gone` is called once when the end is closed, nothing is held and all memory that it had opened is closed.
    """

    def __init__(
        self, platform: Platform, release: Release, most: int, *, copies: bool = False, gone: Callable[[], None] = lambda: None
    ) -> None:
        self._platform = platform
        self._release = release
        self._most = most
        self._copies = copies
        self._gone = gone
        #: Leases of tensors that somebody looks at.
        self.held = 0
        #: How many tensors are views of the sender's memory, and how many were copied.
        self.viewed = 0
        self.copied = 0
        #: The leases of the message that is being read.
        self._current: dict[int, _Hold] = {}
        self._opened: dict[tuple[bytes, Device], Mapping] = {}
        self._events: dict[tuple[bytes, Device], Event] = {}
        #: Own events, by lease; and the streams that were read on.
        self._released: dict[tuple[int, Device], Event] = {}
        self._streams: set[tuple[Device, int]] = set()
        #: Leases whose release could not be marked yet.
        self._late: deque[tuple[Device, int, int, int]] = deque()
        #: Where tensors of other devices are copied to.
        self._landings: dict[Device, Landings] = {}
        #: Whether the reader says when its stream is to wait for copies: `settle`.
        self.is_ahead = False
        #: Copies that are not settled yet.
        self.landed: list[Landed] = []
        #: Once the end is closed: what marks the end of its work on them.
        self._last: list[tuple[Device, Event]] = []
        self._closed = False

    def bring(
        self,
        lease: int,
        use: int,
        ready: bytes,
        place: str,
        key: bytes,
        handle: bytes,
        offset: int,
        size: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        index: int,
        chunk: int,
        parts: tuple[bytes, ...],
    ) -> Any:
        """The tensor of these facts of a departure. Raises NotOpenedError when its sender is dead and its memory gone, or cannot be opened
        here.
        """
        device = self._platform.device_of(place)
        here = device is not None
        if device is None:
            device = self._stand_in(place, index)
        hold = self._current.get(lease)
        if hold is None:
            stream = device.current_stream() if here else self._landings_on(device).stream
            hold = self._current[lease] = _Hold(self, device, stream, lease, use)
        if not (hold.is_ready or parts):
            hold.is_ready = True
            self._event(device, ready).wait(hold.stream)
        mapping = self._opened.get((key, device))
        if mapping is None:
            sweep_retired()
            with _opening():
                mapping = self._opened[key, device] = _mappings.open(device, place, key, handle)
        if here and size and not self._copies and self.held <= self._most:
            self.viewed += 1
            return device.tensor(mapping.address + offset, size, dtype, shape, strides, hold)
        if size and not here:
            self.copied += 1
            events = [self._event(device, part) for part in parts]
            return self._landings_on(device).tensor(mapping.address + offset, size, dtype, shape, strides, chunk, events)
        tensor = device.empty(dtype, shape, strides)
        if size:
            _tensor, facts = self._platform.facts(tensor)
            device.copy(facts.address, mapping.address + offset, size, hold.stream)
        self.copied += 1
        return tensor

    def try_bring(self, facts: DepartureFacts) -> str:
        """Open what a tensor needs, of which nobody knows yet whether this process can open it; the reason if it cannot, which the sender
        gets as the word of its lease.
        """
        try:
            self.bring(*facts)
            return ""
        except (RuntimeError, MemoryError) as error:
            hold = self._current.pop(facts[0], None)
            if hold is not None:
                hold.forget()
            self._release(facts[0], facts[1], bytes((OPENS_NOTHING,)))
            return str(error)

    def _landings_on(self, device: Device) -> Landings:
        found = self._landings.get(device)
        if found is None:
            found = self._landings[device] = Landings(device)
        return found

    def _stand_in(self, place: str, index: int) -> Device:
        """The own device for tensors of one that this process does not see: that of the same number, if it can reach it."""
        devices = self._platform.devices
        able = [device for device in devices if place == HOST or device.can_access(place)]
        if not able:
            raise RuntimeError(f"This process has no device that can reach the memory of {place}, where a tensor of the value lies.")
        return next((device for device in able if device.index == index), able[0])

    def _event(self, device: Device, handle: bytes) -> Event:
        event = self._events.get((handle, device))
        if event is None:
            with _opening():
                event = self._events[handle, device] = device.open_event(handle)
        return event

    def end_message(self) -> None:
        """Tensors that a message has brought keep its leases as long as they live. The reader's stream waits for those that are copied, now
        or (`is_ahead`) when the reader settles them.
        """
        for landings in self._landings.values():
            landed = landings.end_message()
            if landed is not None:
                self.landed.append(landed)
        if not self.is_ahead:
            self.settle()
        if self._current:
            self._current.clear()
        if self._late:
            self._catch_up()

    def settle(self) -> None:
        """Have the stream that was current when they were read wait for the tensors that were copied. The caller does not wait."""
        while self.landed:
            self.landed.pop().settle()

    def let_go(self, device: Device, stream: int, lease: int, use: int) -> None:
        """In finalizers: nobody looks at the tensors of a lease any more."""
        event = self._released.get((lease, device))
        if event is None:
            event = self._released[lease, device] = lend_event(device)
        try:
            event.record(stream)
        except CaptureError:
            self._late.append((device, stream, lease, use))
            return
        except DeviceFaultError as error:
            report(error)  # and the sender hears of the end of this process
            return
        promise(device, event)
        self._streams.add((device, stream))
        self.held -= 1
        self._release(lease, use, bytes((OPENS,)) + event.handle)

    def _catch_up(self) -> None:
        """Release what could not be when it was let go of."""
        for _ in range(len(self._late)):
            self.let_go(*self._late.popleft())

    # ------------------------------------------------------------------------------------ the end
    def close(self, is_sender_dead: Callable[[], bool] = lambda: False) -> None:
        """Read no more. Memory that was opened is closed once nothing is held and the device is done with it. Idempotent; waits for
        nothing.

        Streams that wait for what a sender did not live to do go on, over undefined contents.
        """
        if not self._closed:
            self._closed = True
            if is_sender_dead():
                self.forsake()
            self._current.clear()
            self.settle()
            for landings in self._landings.values():
                landings.close()
            _retired.append(self)
            sweep_retired()

    def forsake(self) -> None:
        """The sender is dead: streams that wait for it go on. Any thread."""
        for event in list(self._events.values()):
            event.forsake()

    def retire(self) -> bool:
        """Once closed: close what was opened, if nothing is held and the device is done with it; whether it was."""
        self._catch_up()
        if self.held:
            return False
        try:
            while self._streams:
                device, stream = next(iter(self._streams))
                self._last.append((device, recorded(device, stream)))
                self._streams.discard((device, stream))
            if not all(event.done() for _device, event in self._last):
                return False
        except RuntimeError:  # a graph is captured on a stream; or the device is broken, and nothing there will ever be closed
            return False
        for event in self._events.values():
            event.close()
        for key, device in self._opened:
            _mappings.leave(device, key)
        for device, event in [*self._last, *((device, event) for (_lease, device), event in self._released.items())]:
            return_event(device, event)
        self._opened.clear()
        self._events.clear()
        self._released.clear()
        self._gone()
        return True
