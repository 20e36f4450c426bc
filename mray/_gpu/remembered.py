"""Leases that both ends of an edge remember: a message on one is known except for a number.

    the first messages of a kind:  all facts of the tensor, and a lease ─▶ the reader keeps a view of the block, by lease
    every further one:             (lease, use, number) ─────────────────▶ another tensor over that view, once the number is reached

Tensors of one *kind* differ only in their contents: they share shape, dtype, strides and device. A remembered lease keeps its block when
the reader has released it. While all are in use, or their reader's device is late, the next message carries all facts again, and one
more lease is remembered, up to the number of blocks that an edge caches.

For edges with one reader, which need not pass through host memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from struct import Struct
from typing import Any

from mray._device.device import Aliases, Device, NotOpenedError, Platform
from mray._device.device_faults import promise
from mray._device.exports import MOST_SPARE, OPENS_NOTHING, ExportedMessage, ExportedTensor, TensorExports
from mray._device.timelines import PeerPoint, Peers, Timeline, point_of, timelines_of
from mray._gpu.channel_leases import Lender, Note
from mray._inside.memory import trust_fence
from mray._ipc import layout as at

#: A message: lease, use, number.
AGAIN = Struct("@QQQ")


@dataclass(slots=True, eq=False)
class LentMessage:
    """A message on lease: ends when its readers have released it, unless the lease is remembered, or its memory in use here."""

    message: ExportedMessage
    peers: Peers
    #: Called with a reader's index and whether it can open what it gets.
    heed: Callable[[int, bool], None]
    lease: RememberedLease | None = None

    def returned(self, notes: list[Note]) -> bool:
        if self.lease is not None and (self.lease.is_remembered or self.lease.is_shared()):
            return True
        points = []
        for reader, note, number in notes:
            self.heed(reader, note != OPENS_NOTHING)
            if note != OPENS_NOTHING:
                points.append(point_of(note, number))
        return not self.message.end(points, self.peers)


class RememberedLease:
    __slots__ = (
        *("_aliases", "_view_of", "address", "device", "ended", "index", "is_remembered", "kind", "lent", "mark", "number", "point"),
        *("size", "stream", "theirs", "timeline", "use"),
    )

    def __init__(self, kind: Hashable, lent: LentMessage, info: ExportedTensor, ended: int) -> None:
        message = lent.message
        self.kind = kind
        self.lent = lent
        self.is_remembered = True
        self.number, self.use = info[:2]
        self.device: Device = message.device
        self.stream = message.stream
        self.timeline: Timeline = timelines_of(message.device).of(message.stream)
        self.address = message.blocks[0].address
        self.size = info[11]
        #: The layout: dtype, shape, strides.
        self._view_of = info[12:15]
        #: The tensors over its memory in this process, after the first.
        self._aliases: Aliases | None = None
        #: The index of the reader's first word of it.
        self.ended = ended
        #: The word that identifies the reader's note (0: none); the note's content: the point, its number, and where that is.
        self.mark = 0
        self.point: PeerPoint
        self.theirs: memoryview
        self.index = 0

    def another(self) -> Any:
        """A tensor over its memory; None where holders cannot be counted."""
        if self._aliases is None:
            self._aliases = self.device.aliases(self.device.tensor(self.address, self.size, *self._view_of, None))
        return None if self._aliases is None else self._aliases.another()

    def is_shared(self, besides: int = 0) -> bool:
        """Whether such tensors other than `dying`, or views of them, are left."""
        return self._aliases is not None and self._aliases.are_left(besides)


class RememberedLeases:
    def __init__(self, platform: Platform, exports: TensorExports, lender: Lender, peers: Peers) -> None:
        self._platform = platform
        self._exports = exports
        self._lender = lender
        self._peers = peers
        #: Leases by kind, without those that are taken; the most recently used is the last.
        self._of: dict[Hashable, deque[RememberedLease]] = {}
        self._all: list[RememberedLease] = []
        self.handed = 0

    def again(self, tensor: Any, sent: list[int], handed: RememberedLease | None = None) -> bytes | None:
        """Copy a tensor to where a reader expects it, unless it is there already (`handed`), and add the lease to those of the message
        being written.

        Returns the message; None: it must carry all facts.
        """
        if handed is not None:
            self.handed += 1
            return self._send(handed, sent)
        look = self._platform.look(tensor) if self._of else None
        leases = None if look is None else self._of.get(look[0])
        if look is None or not leases:
            return None
        stream = leases[0].device.current_stream()
        found = self._free(leases, stream)
        if found is None:
            return None
        self._platform.use_on(tensor, stream)
        found.device.copy(found.address, look[1], found.size, stream)
        self._exports.copied += 1
        leases.remove(found)
        return self._send(found, sent)

    def _send(self, found: RememberedLease, sent: list[int]) -> bytes:
        number = found.number
        sent.append(number)
        found.use = use = self._lender.lend_again(number, found.lent)
        self._of[found.kind].append(found)
        point = found.timeline.mark(found.stream)
        promise(found.device, found.timeline)
        self._exports.sent += found.size
        return AGAIN.pack(number, use, point)

    def _free(self, leases: deque[RememberedLease], stream: int) -> RememberedLease | None:
        """The next one to use; None: one more is to be remembered, or the reader still uses all."""
        words = self._lender.words
        late = None
        waiting = 0
        for found in leases:
            start = found.ended
            if words[start] == found.use and found.stream == stream:
                # SYNC POINT loan: last read, NOTE, fence, its word | read its word, fence, read NOTE, overwrite.
                trust_fence()
                number = words[start + at.NUMBER]
                if words[start + at.NOTE_LENGTH] == found.mark:
                    if found.theirs[found.index] >= number:
                        # SYNC POINT timeline: work, fence, word | read word, fence, work.
                        trust_fence()
                        return found
                    found.point.number = number
                elif not self._learn(found, number):
                    continue
                elif found.point.reached():
                    return found
                late = late or found
                waiting += 1
        if late is None or self._exports.may_take_another(waiting, late.size):
            return None
        late.point.wait(stream)
        return late

    def _learn(self, found: RememberedLease, number: int) -> bool:
        """Read the reader's new note. Returns whether this process can wait for that point now."""
        note = self._lender.note(found.ended)
        where = point_of(note, number)
        try:
            found.point = self._peers.point(found.device, where)
            found.theirs = self._peers.open(found.device, where.key, where.handle).words
        except NotOpenedError:
            return False
        found.index = where.offset // 8
        found.mark = self._lender.words[found.ended + at.NOTE_LENGTH]
        return True

    # ------------------------------------------------------------------------------------ what is remembered
    def may_add(self, tensor: Any) -> Hashable | None:
        """The kind of a tensor of which one more lease may be remembered, else None. Forgets others to make room."""
        look = self._platform.look(tensor)
        if look is None:
            return None
        if look[0] not in self._of and self._all and not self._exports.may_keep(len(self._all), tensor.nbytes):
            self.forget()
        return look[0] if len(self._all) < MOST_SPARE else None

    def add(self, kind: Hashable, info: ExportedTensor) -> None:
        _use, lent = self._lender.out[info[0]]
        assert isinstance(lent, LentMessage)
        lent.lease = lease = RememberedLease(kind, lent, info, self._lender.first_word(info[0]))
        self._of.setdefault(kind, deque()).append(lease)
        self._all.append(lease)

    def __len__(self) -> int:
        return len(self._all)

    def take(self, kind: Hashable, stream: int) -> RememberedLease | None:
        """An unused one, reserved until it is given back or lent."""
        leases = self._of.get(kind)
        found = self._free(leases, stream) if leases else None
        if found is not None:
            assert leases is not None
            leases.remove(found)
        return found

    def give_back(self, lease: RememberedLease) -> None:
        if lease.is_remembered:
            self._of[lease.kind].appendleft(lease)

    def forget(self) -> bool:
        """End leases when their readers have released them. Returns whether any was remembered."""
        if not self._all:
            return False
        for lease in self._all:
            lease.is_remembered = False
        self._of.clear()
        self._all.clear()
        self._lender.sweep()
        return True
