"""Memory of a reader's device that tensors of other devices and of the host are copied to, concurrently with the device's work.

    the reader's loop                  copy stream of the edge                       the stream that uses the tensors
    Staging.tensor(...)      each     waits for the block's last user, copies
    Staging.end_message()             marks that the message is staged  ─ ─ ─ ─ ▶  waits for that (`Staged.settle`)
    the last view dies                 the next copy into that block waits  ◀ ─ ─ ─  marks that it has used it

A copy on the using stream would begin only after all of its queued work. With more than two blocks in use by the device, copies wait:
memory stays bounded.

Rejected: tensors of torch's allocator as targets. It frees memory that is used on two streams by polling events (`record_stream`), at
allocations.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mray._common.process_local import kernel_pid
from mray._device.death_watch import watching
from mray._device.device import Device, DeviceFaultError
from mray._device.device_faults import report
from mray._device.lending import lend_stream, return_stream
from mray._device.memory_pool import Block, block_size, pool_of
from mray._device.timelines import Point, mark

#: Blocks that the device may still compute with when a copy goes to another one.
BUFFERS = 2


class Staged:
    """The copies of one message, and the stream that uses its tensors."""

    __slots__ = ("_copying", "_device", "_end", "_is_marked", "_stream")

    def __init__(self, device: Device, copying: int, stream: int) -> None:
        self._device = device
        self._copying = copying
        self._stream = stream
        self._end: Point | None = None
        self._is_marked = False

    def mark(self) -> None:
        """Everything is queued on the copy stream."""
        self._end = mark(self._device, self._copying)
        self._is_marked = True

    def settle(self) -> None:
        """Make the using stream wait for the queued copies. Idempotent."""
        if self._end is None and self._is_marked:
            return
        (self._end or mark(self._device, self._copying)).wait(self._stream)
        self._end = None


class _StagingBlock:
    __slots__ = ("_block", "_process", "_staged", "_staging", "_stream")

    def __init__(self, staging: Staging, block: Block, staged: Staged, stream: int) -> None:
        self._staging = staging
        self._block = block
        self._staged = staged
        self._stream = stream
        self._process = kernel_pid()

    def __del__(self) -> None:
        if kernel_pid() == self._process and not sys.is_finalizing():
            try:
                if not watching.is_one:
                    self._staged.settle()
            finally:
                self._staging.leave(self._block, self._stream)


class Staging:
    """Staging memory of one edge on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = lend_stream(device)
        self._pool = pool_of(device, staging=True)
        self._pool.users += 1
        #: Blocks without tensors, with their last user's stream and the end of its work; the oldest first.
        self._spare: deque[tuple[Block, int, Point]] = deque()
        self._current: Staged | None = None
        self._closed = False

    def tensor(
        self,
        source: int,
        size: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        chunk: int,
        numbers: Sequence[int],
        wait: Callable[[int], None],
    ) -> Any:
        """A tensor that `size` bytes from `source` on are copied to, on the copy stream. Raises DeviceOutOfMemoryError.

        `numbers`: those of the sender's timeline at which each `chunk` of bytes is there; `wait` makes the copy stream wait for one.
        """
        user = self.device.current_stream()
        if self._current is None:
            self._current = Staged(self.device, self.stream, user)
        block = self._claim(block_size(size))
        keep = _StagingBlock(self, block, self._current, user)
        for start, number in zip(range(0, size, chunk), numbers, strict=True):
            wait(number)
            self.device.copy(block.address + start, source + start, min(chunk, size - start), self.stream)
        return self.device.tensor(block.address, size, dtype, shape, strides, keep)

    def end_message(self) -> Staged | None:
        """Returns the copies that its user settles."""
        staged, self._current = self._current, None
        if staged is not None:
            staged.mark()
        return staged

    def _claim(self, size: int) -> Block:
        if self._spare:
            block, _user, end = self._spare[0]
            if block.size != size:
                self._give_back_spare()
            elif len(self._spare) >= BUFFERS or end.reached():
                self._spare.popleft()
                end.wait(self.stream)
                return block
        return self._pool.claim(size, self.stream)

    def leave(self, block: Block, user: int) -> None:
        """A block has no view any more. In finalizers."""
        if watching.is_one:
            self._pool.free(block, (user, self.stream))
            return
        try:
            end = mark(self.device, user)
        except DeviceFaultError as error:
            report(error)
            return
        except Exception:  # a graph is captured; or the first mark of a stream lacks a descriptor or memory
            self._pool.free(block, (user,))
            return
        self._spare.append((block, user, end))
        if self._closed:
            self._give_back_spare()

    def _give_back_spare(self) -> None:
        while True:
            try:
                block, user, _end = self._spare.popleft()
            except IndexError:
                return
            self._pool.free(block, (user,))

    def close(self) -> None:
        """Stage nothing more; live tensors stay."""
        self._closed = True
        self._pool.users -= 1
        self._give_back_spare()
        return_stream(self.device, self.stream)
