"""NCCL on pretended devices: the calls of `mray._device.libnccl`, between processes, over host memory.

    rank a                                                   rank b
    send(...)  queued on a stream                            recv(...)  queued on a stream
    its thread: waits for b's header <---- bytes, dtype ---- its thread: ready to receive
                -------------------------------- the bytes -->  into the memory

    a collective: every rank sends its bytes to rank 0, which computes, and receives its result

As with NCCL, calls are queued, and the work of one communicator runs in the order of the calls, on any streams. A send ends no sooner
than the other side receives. Work whose peer is dead or has left waits until this side calls `abort`. Mismatched calls are reported
by `check_async_error`, where NCCL hangs or computes a wrong result.

Ranks meet on unix sockets in the abstract namespace, which vanish with their processes. Any thread; one at a time per communicator.

Rejected: mray's own groups over shared memory (`mray._channel.shared_memory_group`). The tested code uses them, so a fault of theirs
would go unnoticed; and they raise an error where NCCL waits forever.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any

from mray._common import clock, settings
from mray._common.clock import monotonic
from mray._device.libnccl import NcclError
from mray._device.nccl_library import AVG, DTYPES
from mray._ipc.connection import peer_is_ours
from mray.testing.null_memory import resolve

_SYSTEM, _ARGUMENT, _USAGE = 2, 4, 5
_ID_BYTES = 128
_SIZES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_KINDS = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")

_PATIENCE = 120.0
_PAUSE = 0.005

#: Purposes of connections: bytes from the higher rank to the lower one, the other direction, collectives.
_UP, _DOWN, _STAR = range(3)
#: Kind of call, dtype, operation, root, bytes.
_HEAD = Struct("<iiiiq")
_SEND, _ALLREDUCE, _REDUCE, _BROADCAST, _ALLGATHER, _REDUCESCATTER = range(6)


class _Current(threading.local):
    device: Any = None


_current = _Current()


@contextlib.contextmanager
def current_device(device: Any) -> Iterator[None]:
    """Make it the device of communicators that this thread creates."""
    before, _current.device = _current.device, device
    try:
        yield
    finally:
        _current.device = before


def get_version() -> int:
    """The pretended version: MRAY_NULL_NCCL_VERSION."""
    return settings.NULL_NCCL_VERSION.get()


def get_unique_id() -> bytes:
    """A new communicator id."""
    return secrets.token_hex(_ID_BYTES // 2).encode()


# ------------------------------------------------------------------------------------------ communicators
class NcclCommunicator:
    """One rank, on the calling thread's current device."""

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:  # noqa: N803  (the header's names)
        """Wait until all ranks have joined. Raises NcclError when they cannot be ranks of one communicator."""
        if not 0 <= rank < ndev or len(commId) != _ID_BYTES:
            raise NcclError(_ARGUMENT)
        if _current.device is None:
            raise NcclError(1, "no device is current")
        self._device = _current.device
        self._rank = rank
        self._size = ndev
        self._aborted = threading.Event()
        self._open = True
        self._error = 0
        #: One event per unfinished call, on any stream; set when it is done.
        self._pending: deque[threading.Event] = deque()
        self._running = threading.Lock()
        #: (peer, purpose): for sending to it, for receiving from it, for collectives.
        self._lines: dict[tuple[int, int], socket.socket] = _meet(ndev, commId, rank)
        try:
            self._check_ranks()
        except BaseException:
            self._close()
            raise

    def _check_ranks(self) -> None:
        multiple = settings.of_library("NCCL_MULTI_RANK_GPU_ENABLE") == "1" and get_version() >= 23000
        own = json.dumps([self._device.uuid, get_version(), multiple]).encode()
        info = self._share(own, lambda all_info: [b"[" + b",".join(all_info) + b"]"] * self._size)
        ranks = json.loads(info)
        if any(version != ranks[0][1] for _uuid, version, _multiple in ranks):
            raise NcclError(_USAGE, "ranks of different versions")
        for later in range(self._size):
            for earlier in range(later):
                if ranks[later][0] == ranks[earlier][0] and not (ranks[later][2] and ranks[earlier][2]):
                    raise NcclError(_USAGE, f"Duplicate GPU detected : rank {later} and rank {earlier} both on device {ranks[later][0]}")

    # ------------------------------------------------------------------------------------ ending
    def abort(self) -> None:
        if self._open:
            self._open = False
            self._aborted.set()
            for line in self._lines.values():
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)  # wakes readers and writers
            for done in tuple(self._pending):
                done.set()
            with self._running:
                self._close()

    def _close(self) -> None:
        for line in self._lines.values():
            line.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False) and hasattr(self, "_lines"):
            self._open = False
            self._close()

    def check_async_error(self) -> None:
        if self._error:
            raise NcclError(self._error)

    def _check(self) -> None:
        if not self._open:
            raise NcclError(_ARGUMENT)

    # ------------------------------------------------------------------------------------ calls
    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        size = self._bytes(count, datatype, peer)
        self._queue(stream, lambda: self._message(sendbuf, size, datatype, peer, True))

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        size = self._bytes(count, datatype, peer)
        self._queue(stream, lambda: self._message(recvbuf, size, datatype, peer, False))

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        size = self._bytes(count, datatype)
        self._collect(stream, _ALLREDUCE, datatype, op, 0, sendbuf, size, recvbuf)

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        size = self._bytes(count, datatype, root)
        self._collect(stream, _REDUCE, datatype, op, root, sendbuf, size, recvbuf)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        size = self._bytes(count, datatype, root)
        self._collect(stream, _BROADCAST, datatype, 0, root, sendbuff, size, recvbuff)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:  # noqa: N802
        size = self._bytes(count, datatype)
        self._collect(stream, _ALLGATHER, datatype, 0, 0, sendbuf, size, recvbuf)

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        size = self._bytes(recvcount, datatype) * self._size
        self._collect(stream, _REDUCESCATTER, datatype, op, 0, sendbuf, size, recvbuf)

    def _bytes(self, count: int, datatype: int, peer: int = 0) -> int:
        self._check()
        if not 0 <= peer < self._size or not 0 <= datatype < len(_SIZES) or count < 0:
            raise NcclError(_ARGUMENT)
        return count * _SIZES[datatype]

    def _queue(self, stream: int, work: Callable[[], None]) -> None:
        queue = self._device.streams.get(stream)  # raises for an unknown stream
        before = self._pending[-1] if self._pending else None
        done = threading.Event()
        self._pending.append(done)

        def run() -> None:
            if before is not None:
                before.wait()
            with self._running:
                if self._aborted.is_set() or self._error:
                    return
                with contextlib.suppress(OSError, EOFError, ValueError):
                    work()
                    return
            self._aborted.wait()  # the peer's death ends nothing

        def end() -> None:
            done.set()
            self._pending.remove(done)

        queue.launch(run)
        queue.submit(end)  # also after a fault of the device

    # ------------------------------------------------------------------------------------ work
    def _message(self, address: int, size: int, datatype: int, peer: int, sends: bool) -> None:
        if peer == self._rank:
            self._error = _USAGE  # needs a receive in one group
            return
        line = self._lines[peer, _UP if sends == (self._rank > peer) else _DOWN]
        head = _HEAD.pack(_SEND, datatype, 0, 0, size)
        if not sends:
            line.sendall(head)
        fits = _read(line, _HEAD.size) == head
        if sends:
            line.sendall(head)
        if not fits:
            self._error = _USAGE
            return
        with _memory(address, size) as memory:
            line.sendall(memory) if sends else _read_into(line, memory)

    def _collect(self, stream: int, kind: int, datatype: int, op: int, root: int, source: int, size: int, target: int) -> None:
        head = _HEAD.pack(kind, datatype, op, root, size)

        def work() -> None:
            sends = kind != _BROADCAST or self._rank == root
            with _memory(source, size if sends else 0) as memory:
                own = head + bytes(memory)
            got = self._share(own, lambda parts: _results(parts, self._size))
            if got[:1] != b"+":
                self._error = _USAGE
            elif kind != _REDUCE or self._rank == root:
                with _memory(target, len(got) - 1) as memory:
                    memory[:] = memoryview(got)[1:]

        self._queue(stream, work)

    def _share(self, own: bytes, compute: Callable[[list[bytes]], list[bytes]]) -> bytes:
        if self._rank:
            line = self._lines[0, _STAR]
            _write_message(line, own)
            return _read_message(line)
        lines = [self._lines[peer, _STAR] for peer in range(1, self._size)]
        first, *others = compute([own, *map(_read_message, lines)])
        for line, other in zip(lines, others, strict=True):
            _write_message(line, other)
        return first


# --------------------------------------------------------------------------------------------- computing
def _results(parts: list[bytes], world_size: int) -> list[bytes]:
    """The answer to each rank: a plus and its bytes, or a minus when the ranks called different things."""
    heads = {part[: _HEAD.size] for part in parts}
    if len(heads) > 1:
        return [b"-"] * world_size
    kind, datatype, op, root, size = _HEAD.unpack(heads.pop())
    memories = [memoryview(part)[_HEAD.size :] for part in parts]
    if kind == _BROADCAST:
        return [b"+" + memories[root]] * world_size
    if kind == _ALLGATHER:
        return [b"+" + b"".join(memories)] * world_size
    reduced = b"+" + _reduced(memories, datatype, op)
    if kind != _REDUCESCATTER:
        return [reduced] * world_size
    part = size // world_size
    return [b"+" + reduced[1 + rank * part : 1 + (rank + 1) * part] for rank in range(world_size)]


def _reduced(memories: Sequence[memoryview], datatype: int, op: int) -> bytes:
    import numpy  # noqa: PLC0415

    if datatype == DTYPES["bfloat16"]:
        # The upper half of a float32.
        arrays = [(numpy.frombuffer(memory, "u2").astype("u4") << 16).view("f4") for memory in memories]
    else:
        arrays = [numpy.frombuffer(memory, _KINDS[datatype]) for memory in memories]
    function = (numpy.add, numpy.multiply, numpy.maximum, numpy.minimum, numpy.add)[op]
    with numpy.errstate(all="ignore"):  # devices do not warn
        total = arrays[0].copy()
        for array in arrays[1:]:
            function(total, array, out=total)
        if op == AVG:
            if total.dtype.kind == "f":
                total = (total / len(arrays)).astype(total.dtype)
            else:
                total = (numpy.sign(total) * (numpy.abs(total) // len(arrays))).astype(total.dtype)
        if datatype == DTYPES["bfloat16"]:
            bits = total.view("u4")
            rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")
            return bytes(numpy.where(numpy.isnan(total), numpy.uint16(0x7FC0), rounded).astype("u2").tobytes())
    return bytes(total.tobytes())


# ------------------------------------------------------------------------------------------------- bytes
@contextlib.contextmanager
def _memory(address: int, size: int) -> Iterator[memoryview]:
    """Memory of a device; RuntimeError if it is not, since an illegal address is an error of the device."""
    if not size:
        yield memoryview(b"")
        return
    region = resolve(address, size)
    yield memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    del region


def _read_into(line: socket.socket, memory: memoryview) -> None:
    while memory:
        count = line.recv_into(memory)
        if not count:
            raise EOFError
        memory = memory[count:]


def _read(line: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    _read_into(line, memoryview(buffer))
    return bytes(buffer)


_LENGTH = Struct("<q")
#: Limit of one message between ranks.
_MOST_BYTES = 1 << 36


def _write_message(line: socket.socket, message: bytes) -> None:
    line.sendall(_LENGTH.pack(len(message)))
    line.sendall(message)


def _read_message(line: socket.socket) -> bytes:
    size = _LENGTH.unpack(_read(line, _LENGTH.size))[0]
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"a message of {size} bytes was announced")
    return _read(line, size)


# ---------------------------------------------------------------------------------------------- meeting
_HELLO = Struct("<iii")


def _meet(world_size: int, unique_id: bytes, rank: int) -> dict[tuple[int, int], socket.socket]:
    """Each rank accepts the higher ones, and connects to the lower ones."""
    lines: dict[tuple[int, int], socket.socket] = {}
    name = b"\0mray-null-nccl-" + unique_id[:64] + b"-"
    deadline = monotonic() + _PATIENCE
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(name + b"%d" % rank)
        listener.listen(3 * world_size)
        for peer in range(rank):
            for kind in (_UP, _DOWN, _STAR) if peer == 0 else (_UP, _DOWN):
                lines[peer, kind] = _connect(name + b"%d" % peer, deadline)
                lines[peer, kind].sendall(_HELLO.pack(world_size, rank, kind))
        for _connection in range((world_size - 1 - rank) * (3 if rank == 0 else 2)):
            listener.settimeout(max(deadline - monotonic(), _PAUSE))
            line = _accept(listener)
            line.settimeout(None)
            theirs, peer, kind = _HELLO.unpack(_read(line, _HELLO.size))
            lines[peer, kind] = line
            if theirs != world_size:
                raise NcclError(_ARGUMENT, f"rank {peer} has a world of {theirs}, and rank {rank} one of {world_size}")
    except BaseException as error:
        for line in lines.values():
            line.close()
        if isinstance(error, OSError | EOFError):
            raise NcclError(_SYSTEM, f"rank {rank} has not found its peers: {error}") from error
        raise
    finally:
        listener.close()
    return lines


def _accept(listener: socket.socket) -> socket.socket:
    """The next connection of this user: any user can see such names, and connect."""
    while True:
        line, _address = listener.accept()
        if peer_is_ours(line):
            return line
        line.close()


def _connect(name: bytes, deadline: float) -> socket.socket:
    while True:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(name)
            if not peer_is_ours(line):
                raise PermissionError(f"another user has taken the name {name!r}")
        except OSError:
            line.close()
            if monotonic() > deadline:
                raise
            clock.sleep(_PAUSE)
        else:
            return line
