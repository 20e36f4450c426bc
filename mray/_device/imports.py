"""Received tensors: opening their memory, and notifying their sender when they are released.

    the thread that reads                                         finalizers, in any thread
    TensorImports.bring(facts) -> tensor       each tensor             the last view of a message's tensors dies: the lease is released,
    TensorImports.again(...) -> tensor         a known one             with the point up to which the reader's stream has work
    TensorImports.end_message()                the whole message

On the sender's device, the tensor is a view of the sender's memory. When the reader holds very many tensors it is copied within the
device, and the lease ends with the message, since its sender would have nothing left to lend. To another device, or from pinned memory,
it is copied concurrently with the device's work (`mray._device.staging`), and the lease ends with the copy.

Of a message that is one tensor it retains a view, if its sender announces more of the kind: the next one of that lease is another tensor
over the same memory (`Aliases`).

The reader's stream waits for the sender's, or for the copy; the reader does not. Work with a tensor must be queued on the stream that
was current when it was read, or be waited for by that one, before its last view dies.

Opened memory is closed when the last edge and the last view are dead and the device has finished with it: when an edge ends or closed
edges are trimmed, never for a message.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from mray._common.process_local import kernel_pid
from mray._device.death_watch import watching
from mray._device.device import Aliases, Device, DeviceFaultError, Platform
from mray._device.device_faults import promise, report
from mray._device.exports import OPENS_NOTHING, ExportedTensor
from mray._device.mappings import HOST, Mapping, PeerTimelines, leave, open_region
from mray._device.staging import Staged, Staging
from mray._device.timelines import Peers, retire_later
from mray._inside.memory import trust_fence

#: Releases a lease: its number, its use, and the note of a timeline and a number there, which mark the end of the reader's work
#: (`point_of`); or it passes the note `OPENS_NOTHING`. For finalizers.
Release = Callable[[int, int, bytes, int], None]
#: The region, the timeline's byte offset in it, the number.
Awaited = tuple[PeerTimelines, int, int]


# ------------------------------------------------------------------------------------ what is read
class _Hold:
    """Kept alive by the tensors of one lease; releases it."""

    __slots__ = ("_imports", "_lease", "_process", "_use", "device", "stream")

    def __init__(self, imports: TensorImports, device: Device, stream: int, lease: int, use: int) -> None:
        self._imports = imports
        self._lease = lease
        self._use = use
        self._process = kernel_pid()
        self.device = device
        self.stream = stream
        imports.held += 1

    def forget(self) -> None:
        self._process = 0
        self._imports.held -= 1

    def __del__(self) -> None:
        # A forked child has copies of its parent's tensors, but not their memory. A process releases everything by its exit.
        if kernel_pid() == self._process and not sys.is_finalizing():
            self._imports.let_go(self.device, self.stream, self._lease, self._use)


class _Known:
    __slots__ = ("aliases", "device", "index", "info", "offset", "timelines", "words")

    def __init__(self, device: Device, info: ExportedTensor, aliases: Aliases | None, timelines: PeerTimelines) -> None:
        self.device = device
        self.info = info
        #: Aliases of the tensor that others are derived from; None: each is read as the first was.
        self.aliases = aliases
        self.timelines = timelines
        self.words = timelines.words
        self.offset = info[5]
        self.index = self.offset // 8


class _Loan(weakref.ref[Any]):
    """Watches a tensor that is an alias of a view; dies with the lease's release."""

    __slots__ = ("aliases", "device", "imports", "lease", "process", "stream", "use")

    imports: TensorImports
    aliases: Aliases
    device: Device
    stream: int
    lease: int
    use: int
    process: int


def _alias_dies(loan: Any) -> None:
    if kernel_pid() == loan.process and not sys.is_finalizing():
        loan.imports.end_loan(loan, loan.aliases.dying)


class TensorImports:
    """The tensors that one end reads. `most`: leases that it holds before it copies. `copies`: it copies everything.

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
        #: Leases in use.
        self.held = 0
        #: Tensors that are views of the sender's memory; copied ones.
        self.viewed = 0
        self.copied = 0
        #: The leases of the message being read.
        self._current: dict[int, _Hold] = {}
        self._opened: dict[tuple[bytes, Device], Mapping] = {}
        #: Leases of which more messages are announced.
        self._known: dict[int, _Known] = {}
        #: The tensors derived from views, by lease; dead ones whose memory is still held.
        self._loans: dict[int, _Loan] = {}
        self._shared: list[_Loan] = []
        self._peers = Peers()
        #: Leases whose release could not be marked yet.
        self._late: deque[tuple[Device, int, int, int]] = deque()
        self._staging: dict[Device, Staging] = {}
        #: Points of the message being read.
        self.awaited: list[Awaited] = []
        #: Whether the reader calls `settle` when its stream is to wait for copies.
        self.is_ahead = False
        #: Copies not settled yet.
        self.staged: list[Staged] = []
        self._closed = False

    def bring(
        self,
        lease: int,
        use: int,
        place: str,
        timelines: bytes,
        timelines_handle: bytes,
        timeline: int,
        numbers: tuple[int, ...],
        chunk: int,
        key: bytes,
        handle: bytes,
        offset: int,
        size: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        index: int,
    ) -> Any:
        """The tensor of an export's facts. Raises NotOpenedError when its sender is dead and its memory freed, or cannot be opened here."""
        device = self._platform.device_of(place)
        here = device is not None
        if device is None:
            device = self._stand_in(place, index)
        hold = self._current.get(lease)
        if hold is None:
            stream = device.current_stream() if here else self._staging_on(device).stream
            hold = self._current[lease] = _Hold(self, device, stream, lease, use)
        stream = hold.stream
        mapping = self._opened.get((key, device))
        if mapping is None:
            mapping = self._opened[key, device] = open_region(device, place, key, handle)

        def wait(number: int) -> None:
            found = self._peers.wait(device, stream, timelines, timelines_handle, timeline, number)
            if found is not None:
                self.awaited.append((found, timeline, number))

        if size and not here:
            self.copied += 1
            return self._staging_on(device).tensor(mapping.address + offset, size, dtype, shape, strides, chunk, numbers, wait)
        wait(numbers[-1])
        if size and not self._copies and self.held <= self._most:
            self.viewed += 1
            return device.tensor(mapping.address + offset, size, dtype, shape, strides, hold)
        tensor = device.empty(dtype, shape, strides)
        if size:
            _tensor, info = self._platform.info(tensor)
            device.copy(info.address, mapping.address + offset, size, stream)
        self.copied += 1
        return tensor

    def bring_first(self, info: ExportedTensor) -> Any:
        """`bring`, of a lease whose next messages `again` reads."""
        # fmt: off
        (
            lease, use, place, timelines, timelines_handle, _timeline, numbers, _chunk,
            key, handle, offset, size, dtype, shape, strides, index,
        ) = info
        # fmt: on
        device = self._platform.device_of(place)
        aliases = None
        if device is None:
            device = self._stand_in(place, index)
        elif size and not self._copies:
            mapping = self._opened.get((key, device))
            if mapping is None:
                mapping = self._opened[key, device] = open_region(device, place, key, handle)
            aliases = device.aliases(device.tensor(mapping.address + offset, size, dtype, shape, strides, None))
        self._known[lease] = _Known(device, info, aliases, self._peers.open(device, timelines, timelines_handle))
        return self.again(lease, use, numbers[0])

    def again(self, lease: int, use: int, number: int) -> Any:
        """The tensor of a message that is known except for its use and its number."""
        known = self._known[lease]
        aliases, device = known.aliases, known.device
        if aliases is None or self.held >= self._most:
            info: ExportedTensor = (lease, use, *known.info[2:6], (number,), *known.info[7:])
            return self.bring(*info)
        stream = device.current_stream()
        if known.words[known.index] < number:
            self._peers.await_word(known.timelines, known.offset, number, stream)
        else:
            # SYNC POINT timeline: work, fence, word | read word, fence, work.
            trust_fence()
        tensor = aliases.another()
        loan = _Loan(tensor, _alias_dies)
        loan.imports, loan.aliases, loan.device, loan.stream = self, aliases, device, stream
        loan.lease, loan.use, loan.process = lease, use, kernel_pid()
        self._loans[lease] = loan
        self.held += 1
        self.viewed += 1
        return tensor

    def end_loan(self, loan: _Loan, dying: int = 0) -> None:
        """The received tensor is dead, or `dying`. In finalizers."""
        if loan.aliases.are_left(dying):
            self._shared.append(loan)
        else:
            self._loans.pop(loan.lease, None)
            self.let_go(loan.device, loan.stream, loan.lease, loan.use)

    def try_bring(self, info: ExportedTensor) -> str:
        """Open a tensor's memory where this may fail. Returns the reason if it does, which the sender gets as the note of its lease."""
        try:
            self.bring(*info)
            return ""
        except (RuntimeError, MemoryError) as error:
            hold = self._current.pop(info[0], None)
            if hold is not None:
                hold.forget()
            self._release(info[0], info[1], OPENS_NOTHING, 0)
            return str(error)

    def _staging_on(self, device: Device) -> Staging:
        found = self._staging.get(device)
        if found is None:
            found = self._staging[device] = Staging(device)
        return found

    def _stand_in(self, place: str, index: int) -> Device:
        """For a device that this process does not see: the own one of the same index, if it can access it."""
        devices = self._platform.devices
        able = [device for device in devices if place == HOST or device.can_access(place)]
        if not able:
            raise RuntimeError(f"This process has no device that can reach the memory of {place}, where a tensor of the value lies.")
        return next((device for device in able if device.index == index), able[0])

    def end_message(self) -> None:
        """The tensors of a message hold its leases while they live. The reader's stream waits for copied ones, now or (`is_ahead`) at
        `settle`.
        """
        if self._staging:
            for staging in self._staging.values():
                staged = staging.end_message()
                if staged is not None:
                    self.staged.append(staged)
            if not self.is_ahead:
                self.settle()
        if self._current:
            self._current.clear()
        if self.awaited:
            self.awaited = []
        if self._late or self._shared:
            self._catch_up()

    def settle(self) -> None:
        """Make the stream that was current when they were read wait for copied tensors."""
        while self.staged:
            self.staged[-1].settle()
            self.staged.pop()

    def let_go(self, device: Device, stream: int, lease: int, use: int) -> None:
        """The last tensor of a lease is dead. In finalizers."""
        if watching.is_one:
            self._late.append((device, stream, lease, use))
            return
        try:
            timeline = self._peers.streams.get((device, stream)) or self._peers.timeline(device, stream)
            number = timeline.mark(stream)
        except DeviceFaultError as error:
            report(error)  # and the sender is notified of this process's exit
            return
        except Exception:  # a graph is captured; or the first mark of a stream lacks a descriptor or memory
            self._late.append((device, stream, lease, use))
            return
        promise(device, timeline)
        self.held -= 1
        self._release(lease, use, timeline.note, number)

    def _catch_up(self) -> None:
        for _ in range(len(self._shared)):
            self.end_loan(self._shared.pop(0))
        for _ in range(len(self._late)):
            self.let_go(*self._late.popleft())

    # ------------------------------------------------------------------------------------ the end
    def close(self) -> None:
        """Opened memory is closed once unused. Idempotent."""
        if not self._closed:
            self._closed = True
            self._current.clear()
            self.settle()
            for staging in self._staging.values():
                staging.close()
            retire_later(self)

    def retire(self) -> bool:
        """Returns whether it is closed."""
        self._catch_up()
        if self.held or not self._peers.retire():
            return False
        self._known.clear()
        while self._opened:
            (key, device), _mapping = self._opened.popitem()
            leave(device, key)
        self._gone()
        return True
