"""Collectives over shared memory: the work of one process, rank r of a group.

    rank 0                         rank 1                         rank 2
    copy the block in ─┐           copy the block in ─┐           copy the block in ─┐
                     board 0                        board 1                        board 2
    reduce part 0 of all blocks    reduce part 1                  reduce part 2                 straight out of the others' memory
    copy parts 0, 1, 2 out         copy parts 0, 1, 2 out         copy parts 0, 1, 2 out

An allreduce of small tensors, or in a group of two, skips the second half: every rank reduces everything, which saves a wait. Larger
tensors go block by block, so that blocks stay in the cores' caches, and a block's parts are collected in the step that brings the next
block in. `mray._channel.board` has the steps.

Each collective is a generator that yields what it waits for; `Group._run` waits. Messages between two members go through a ring.

Rejected: a ring around the members, each adding to what its neighbour passes on. It moves the same bytes and waits world size times as
often.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from mray._api.communicator import ReduceOp
from mray._channel.base import NOTHING, Failed
from mray._channel.board import ALIGN, BLOCK, GRACE, LEFT, RECEIVED, RING, SENT, SIGNATURE, SIGNATURES
from mray._channel.collective_ops import check_same_dtype, check_tensors, is_contiguous, library_of, reduce_into
from mray._channel.group import ALL, Group, Machine
from mray._channel.group_host import GroupHost
from mray._channel.rendezvous import GroupMember
from mray._channel.shm import ReaderEnd, ShmReader, ShmWriter, WriterEnd
from mray._common.tensor_layout import FREED, has_memory
from mray._ipc.mapped import address_of, claim
from mray.exceptions import RayChannelError

#: An allreduce of at most this many bytes is one step.
DIRECT_BYTES = 32 * 1024

ALLREDUCE, ALLGATHER, REDUCESCATTER, BROADCAST, REDUCE, BARRIER = range(1, 7)
_NAMES = ("nothing", "allreduce", "allgather", "reducescatter", "broadcast", "reduce", "barrier")
_DTYPES = (
    *("bytes", "bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
#: Computed by numpy also for torch's tensors. numpy has no bfloat16, and no vector instructions for float16.
_NUMPYS = frozenset(_DTYPES) - {"bytes", "float16", "bfloat16"}


_dtype_names: dict[Any, str] = {}
_OPERATIONS = {op: number for number, op in enumerate(ReduceOp, 1)}


def dtype_name(tensor: Any) -> str:
    """``"float32"`` and so on, for torch and numpy alike."""
    dtype = tensor.dtype
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype).removeprefix("torch.")
    return name


def _flat(tensor: Any) -> Any:
    """The elements of a tensor (or of a contiguous copy) in one dimension, in the library that computes them."""
    name = dtype_name(tensor)
    if library_of(tensor) == "numpy":
        numpy = sys.modules["numpy"]
        if tensor.dtype.hasobject:
            raise ValueError(f"Arrays of {name} hold references, which mean nothing in another process. Send them as arguments of calls.")
        flat = numpy.asarray(tensor).ravel()
        if flat.strides != (flat.itemsize,):  # at most one element
            flat = numpy.lib.stride_tricks.as_strided(flat, strides=(flat.itemsize,), writeable=flat.flags.writeable)
        if name == "float16" and flat.flags.aligned and "torch" in sys.modules:
            return sys.modules["torch"].from_numpy(flat if flat.flags.writeable else flat.copy())
        return flat
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise ValueError(f"This group works on the CPU, and the tensor is on {tensor.device}. Move it to the CPU first.")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise ValueError(f"This group takes dense tensors, and this one is {kind}. Send the tensors that it is made of.")
    if not has_memory(tensor):
        raise ValueError(FREED)
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)
    if flat.stride(0) != 1:
        flat = flat.as_strided(flat.shape, (1,))
    return flat.numpy() if name in _NUMPYS else flat


def _bytes_of(flat: Any) -> Any:
    if library_of(flat) == "torch":
        return flat.view(sys.modules["torch"].uint8).numpy()
    return flat.view("u1")


def _check_overlap(tensor: Any) -> None:
    strides = tensor.stride() if library_of(tensor) == "torch" else tensor.strides
    if _count(tensor) and any(size > 1 and not stride for size, stride in zip(tensor.shape, strides, strict=True)):
        raise ValueError(
            f"Several elements of the tensor to receive into are the same memory: its shape is {tuple(tensor.shape)}, its strides "
            f"{tuple(strides)}. Copy it first."
        )


def _claimed(array: Any) -> Any:
    """A writable array in the memory of a read-only one: of a received value, if no other reading received the same memory.

    Raises ValueError for any other array.
    """
    base = array.base
    while library_of(base) == "numpy":
        base = base.base
    memory = claim(base) if isinstance(base, memoryview) else None
    if memory is None:
        raise ValueError("The array to receive into is read-only; copy it first.")
    place = array.ctypes.data - address_of(memory)
    return sys.modules["numpy"].ndarray(array.shape, array.dtype, memory, place, array.strides)


class _Output:
    """An output tensor as a flat array; `put_back` copies the results where that is not the tensor's own memory."""

    def __init__(self, tensor: Any) -> None:
        library = library_of(tensor)
        if library == "numpy" and not tensor.flags.writeable:
            tensor = _claimed(tensor)
        self.flat = _flat(tensor)
        _check_overlap(tensor)
        self._tensor = tensor if library == "numpy" else tensor.detach()
        self._inside = is_contiguous(tensor) and not (library == "torch" and (tensor.is_conj() or tensor.is_neg()))

    def put_back(self) -> None:
        if not self._inside:
            result = self.flat.reshape(tuple(self._tensor.shape))
            libraries = library_of(self._tensor), library_of(result)
            if libraries == ("torch", "numpy"):
                result = sys.modules["torch"].from_numpy(result)
            self._tensor[...] = result


class MemberOfGroup(Group):
    """The collectives of a group, for one of its members. One at a time; from any thread.

    Results are written into the given tensors. A wait ends with RayChannelError when a member dies or leaves, or this one does, and when
    a member is refused the call (its ValueError is in the text) and does not call again. An error in the middle of a collective breaks
    the group, since its members no longer agree on the next call; a refusal of all breaks nothing.
    """

    def __init__(self, host: GroupHost, name: str, own: GroupMember) -> None:
        super().__init__(host, name, own)
        self._views: dict[tuple[str, Any], tuple[list[Any], ...]] = {}
        self._senders: dict[int, ShmWriter] = {}
        self._receivers: dict[int, ShmReader] = {}

    def _release(self) -> None:
        self._views.clear()
        for sender in self._senders.values():
            sender.close()
        for receiver in self._receivers.values():
            receiver.close()
        super()._release()

    def _compare(self, signature: int, rank: int = ALL) -> None:
        """Raise ValueError unless the members to read from have made the same call. After the wait for them (A4)."""
        # SYNC POINT block: write the half, fence, ARRIVED | read ARRIVED, fence, read the half.
        index = SIGNATURE + (self._step - 1) % SIGNATURES
        for peer, words, _doorbell in self._peers:
            if rank in (ALL, peer) and words[index] != signature:
                raise ValueError(
                    f"The members of the group '{self.name}' call different collectives: {self._own} calls {_describe(signature)}, "
                    f"and {self._members[peer]} calls {_describe(words[index])}."
                )

    def _views_of(self, flat: Any) -> tuple[list[Any], ...]:
        """Both halves of all boards, by rank, as arrays like `flat`; then their computed parts."""
        library = library_of(flat) or "numpy"
        key = (library, flat.dtype)
        views = self._views.get(key)
        if views is None:
            count = BLOCK // flat.itemsize
            parts = (count + self.world_size - 1) // self.world_size
            boards = [self._boards[rank] for rank in range(self.world_size)]
            views = (
                *([board.view(board.half(half), count, flat.dtype, library) for board in boards] for half in (0, 1)),
                *([board.view(board.computed(half), parts, flat.dtype, library) for board in boards] for half in (0, 1)),
            )
            self._views[key] = views
        return views

    def _call(self, machine: Machine, *outputs: _Output) -> None:
        self._enter("collective")
        try:
            self._run(machine)
            for output in outputs:
                output.put_back()
        finally:
            self._exit("collective")

    # ------------------------------------------------------------------------------------ collectives
    def barrier(self) -> None:
        self._call(self._barrier())

    def _barrier(self) -> Machine:
        signature = _signature(BARRIER)
        yield from self._begin()
        self._arrive(signature)
        yield self._step, ALL
        self._compare(signature)

    def allreduce(self, source: Any, out: Any, op: ReduceOp) -> None:
        """Reduce every rank's `source` into every rank's `out`, which may be the same tensor. Bit by bit the same on all ranks."""
        with self.refusing():
            if out is source:
                check_tensors([source])
            else:
                _check_fit([source, out], (source, out))
            _check_reducible(out)
            output = _Output(out)
            flat = output.flat if out is source else _flat(source)
        size = len(flat)
        if self.world_size == 2 or size * flat.itemsize <= DIRECT_BYTES:
            machine = self._reduce_all(flat, output.flat, op)
        else:
            machine = self._reduce_parts(flat, output.flat, op)
        self._call(machine, output)

    def _reduce_all(self, source: Any, out: Any, op: ReduceOp) -> Machine:
        signature = _signature(ALLREDUCE, source, op)
        views = self._views_of(source)
        for start, stop in _blocks(len(source), BLOCK // source.itemsize):
            yield from self._begin()
            halves = views[self._step & 1]
            halves[self.rank][: stop - start] = source[start:stop]
            self._arrive(signature)
            yield self._step, ALL
            self._compare(signature)
            reduce_into(out[start:stop], [half[: stop - start] for half in halves], op)

    def _reduce_parts(self, source: Any, out: Any, op: ReduceOp) -> Machine:
        signature = _signature(ALLREDUCE, source, op)
        views = self._views_of(source)
        ranks = range(self.world_size)
        earlier: tuple[int, list[int]] | None = None
        for start, stop in (*_blocks(len(source), BLOCK // source.itemsize), (-1, -1)):
            if start >= 0:
                yield from self._begin()
                halves = views[self._step & 1]
                halves[self.rank][: stop - start] = source[start:stop]
            number = self._step & 1
            self._arrive(signature)
            yield self._step, ALL
            self._compare(signature)
            if earlier is not None:
                begin, cuts = earlier
                for rank in ranks:
                    first, last = cuts[rank], cuts[rank + 1]
                    out[begin + first : begin + last] = views[2 + number][rank][: last - first]
            if start < 0:
                return
            cuts = [(stop - start) * rank // self.world_size for rank in (*ranks, self.world_size)]
            first, last = cuts[self.rank], cuts[self.rank + 1]
            # Every rank has arrived at this step, so A1 holds for the next.
            reduce_into(views[3 - number][self.rank][: last - first], [half[first:last] for half in halves], op)
            earlier = start, cuts

    def allgather(self, source: Any, outs: Sequence[Any]) -> None:
        with self.refusing():
            _check_fit([source, *outs], (source, *outs))
            if len(outs) != self.world_size:
                raise ValueError(f"Expected {self.world_size} tensors to gather into, but got {len(outs)}")
            outputs = [_Output(out) for out in outs]
            memory, into = _bytes_of(_flat(source)), [_bytes_of(output.flat) for output in outputs]
        self._call(self._gather(memory, into, source), *outputs)

    def _gather(self, source: Any, outs: Sequence[Any], of: Any) -> Machine:
        signature = _signature(ALLGATHER, of)
        views = self._views_of(source)
        for start, stop in _blocks(len(source), BLOCK):
            yield from self._begin()
            halves = views[self._step & 1]
            halves[self.rank][: stop - start] = source[start:stop]
            self._arrive(signature)
            yield self._step, ALL
            self._compare(signature)
            for out, half in zip(outs, halves, strict=True):
                out[start:stop] = half[: stop - start]

    def reducescatter(self, sources: Sequence[Any], out: Any, op: ReduceOp) -> None:
        """Reduce the tensors for this rank out of every rank's `sources`, one for each rank, into `out`."""
        with self.refusing():
            if len(sources) != self.world_size:
                raise ValueError(f"Expected {self.world_size} tensors to scatter, but got {len(sources)}")
            _check_fit([*sources, out], (sources[self.rank], out))
            _check_reducible(out)
            output = _Output(out)
            flats = [_flat(source) for source in sources]
        self._call(self._scatter(flats, output.flat, op), output)

    def _scatter(self, sources: Sequence[Any], out: Any, op: ReduceOp) -> Machine:
        signature = _signature(REDUCESCATTER, sources[0], op, size=sum(len(source) for source in sources) * out.itemsize)
        views = self._views_of(out)
        # Each rank's part of the block shares no cache lines.
        place = BLOCK // self.world_size // ALIGN * ALIGN // out.itemsize
        for start, stop in _blocks(max(len(source) for source in sources), place):
            yield from self._begin()
            halves = views[self._step & 1]
            for rank, source in enumerate(sources):
                part = source[start:stop]
                halves[self.rank][rank * place : rank * place + len(part)] = part
            self._arrive(signature)
            yield self._step, ALL
            self._compare(signature)
            target = out[start:stop]
            begin = self.rank * place
            if len(target):
                reduce_into(target, [half[begin : begin + len(target)] for half in halves], op)

    def broadcast(self, tensor: Any, root: int) -> None:
        with self.refusing():
            check_tensors([tensor])
            output = _Output(tensor) if self.rank != root else None
            memory = _bytes_of(_flat(tensor) if output is None else output.flat)
        self._call(self._spread(memory, root, tensor), *(() if output is None else (output,)))

    def _spread(self, memory: Any, root: int, of: Any) -> Machine:
        signature = _signature(BROADCAST, of, root=root)
        views = self._views_of(memory)
        for start, stop in _blocks(len(memory), BLOCK):
            half = self._step & 1
            if self.rank == root:
                yield from self._begin()
                views[half][root][: stop - start] = memory[start:stop]
                self._arrive(signature)
            else:
                self._arrive(signature)
                yield self._step, root
                self._compare(signature, root)
                memory[start:stop] = views[half][root][: stop - start]

    def reduce(self, tensor: Any, root: int, op: ReduceOp) -> None:
        """Reduce into the root's `tensor`; the others' are unchanged."""
        with self.refusing():
            check_tensors([tensor])
            _check_reducible(tensor)
            output = _Output(tensor) if self.rank == root else None
            flat = _flat(tensor) if output is None else output.flat
        self._call(self._reduce_to(flat, root, op), *(() if output is None else (output,)))

    def _reduce_to(self, flat: Any, root: int, op: ReduceOp) -> Machine:
        signature = _signature(REDUCE, flat, op, root=root)
        views = self._views_of(flat)
        for start, stop in _blocks(len(flat), BLOCK // flat.itemsize):
            yield from self._begin()
            halves = views[self._step & 1]
            halves[self.rank][: stop - start] = flat[start:stop]
            self._arrive(signature)
            if self.rank == root:
                yield self._step, ALL
                self._compare(signature)
                reduce_into(flat[start:stop], [half[: stop - start] for half in halves], op)

    # ------------------------------------------------------------------------------------ from one to another
    def send(self, tensor: Any, peer: int) -> None:
        """Returns when the tensor is in flight. Waits while too many are."""
        with self.refusing(sent=peer):
            check_tensors([tensor])
            flat = _flat(tensor)
        self._enter("send")
        try:
            writer = self._senders.get(peer)
            if writer is None:
                board = self._board
                prefix = f"{self._own.board}p{peer:x}-"
                writer = self._senders[peer] = ShmWriter(WriterEnd(board.segment, board.ring(peer), RING, prefix, [self._doorbells[peer]]))
            # numpy arrays are the fastest message; types without a numpy name go as bytes.
            message = flat if library_of(flat) == "numpy" else (dtype_name(flat), _bytes_of(flat))
            while not writer.try_write(message):
                self._wait_for_half(writer.has_room, sent=peer)
            self._board.words[self._board.queued_for(peer) + SENT] += 1
        finally:
            self._exit("send")

    def recv(self, tensor: Any, peer: int) -> None:
        """Wait for the next tensor of a member, into `tensor`. Raises ValueError when it differs in size or dtype."""
        with self.refusing(received=peer):
            check_tensors([tensor])
            output = _Output(tensor)
        self._enter("receive")
        try:
            reader = self._receivers.get(peer)
            if reader is None:
                board, host = self._boards[peer], self.host
                prefix = f"{self._members[peer].board}p{self.rank:x}-"
                reader = self._receivers[peer] = ShmReader(
                    ReaderEnd(
                        board.segment,
                        board.ring(self.rank),
                        RING,
                        0,
                        prefix,
                        self._doorbells[peer],
                        lambda error: host.failure(error, "recv"),
                        host.ask_of(self._members[peer].process),
                    )
                )
            message = self._receive(reader, peer)
            name, memory = message if message.__class__ is tuple else (dtype_name(message), message.view("u1"))
            into = _bytes_of(output.flat)
            if name != dtype_name(tensor) or len(memory) != len(into):
                raise ValueError(
                    f"{self._members[peer]} sent {len(memory)} bytes of {name}, "
                    f"and {self._own} receives {len(into)} of {dtype_name(tensor)}."
                )
            into[...] = memory
        finally:
            self._exit("receive")
        output.put_back()

    def _receive(self, reader: ShmReader, peer: int) -> Any:
        while (message := reader.try_read()) is NOTHING:
            self._wait_for_half(reader.ready, received=peer)
        self._board.words[self._board.queued_for(peer) + RECEIVED] += 1
        if message.__class__ is Failed:
            raise RayChannelError(f"A message of {self._members[peer]} in the group '{self.name}' is lost: that member has left.")
        return message

    def _wait_for_half(self, ready: Callable[[], bool], sent: int = -1, received: int = -1) -> None:
        """Wait until a message can proceed. Raises RayChannelError when that member has left, or was refused and does not call again."""
        peer, wait_until = max(sent, received), self.host.wait_until
        wait_until(lambda: ready() or self._gone(peer) or self.is_refused(sent, received), None, spin=True)
        if self.is_refused(sent, received):
            wait_until(lambda: ready() or self._gone(peer), GRACE)
        if self._gone(peer) and not ready():
            self._check_members()
        if self.is_refused(sent, received) and not ready():
            error = self.refused_by([peer])
            # Neither member has done its half, so they agree on the next call.
            self.refuse(error, sent, received)
            raise error

    def _gone(self, peer: int) -> bool:
        return self._ended() or bool(self._boards[peer].words[LEFT])


def _blocks(length: int, capacity: int) -> list[tuple[int, int]]:
    """Bounds of the blocks; at least one, so that members synchronize also over empty tensors."""
    return [(start, min(start + capacity, length)) for start in range(0, length, capacity)] or [(0, 0)]


def _check_fit(tensors: Sequence[Any], pair: Sequence[Any]) -> None:
    """Raise ValueError unless all have one dtype, and the tensors of `pair` the same number of elements."""
    check_tensors(tensors[:1])
    for tensor in tensors[1:]:
        check_tensors([tensor])
    names = [dtype_name(tensor) for tensor in tensors]
    if len(set(names)) > 1:
        check_same_dtype(tensors)
    counts = [_count(tensor) for tensor in pair]
    if len(set(counts)) > 1:
        raise ValueError(f"Expected as many elements to receive as are sent, but the shapes are {[tuple(tensor.shape) for tensor in pair]}")


def _check_reducible(tensor: Any) -> None:
    if dtype_name(tensor) not in _DTYPES:
        raise ValueError(f"Tensors of {dtype_name(tensor)} cannot be reduced.")


def _count(tensor: Any) -> int:
    return int(tensor.numel() if library_of(tensor) == "torch" else tensor.size)


# -------------------------------------------------------------------------------------------- signatures
def _signature(kind: int, tensor: Any = None, op: ReduceOp | None = None, *, root: int = 0, size: int | None = None) -> int:
    dtype = 0
    if tensor is not None:
        name = dtype_name(tensor)
        dtype = _DTYPES.index(name) if name in _DTYPES else len(_DTYPES) + crc32(name.encode()) % (256 - len(_DTYPES))
        size = _count(tensor) * tensor.itemsize if size is None else size
    return kind | (0 if op is None else _OPERATIONS[op]) << 4 | dtype << 8 | root << 16 | ((size or 0) & 0xFFFFFFFF) << 32


def _describe(signature: int) -> str:
    kind, op, dtype = signature & 15, signature >> 4 & 15, signature >> 8 & 255
    words = [_NAMES[kind]]
    if op:
        words.append(list(ReduceOp)[op - 1].name)
    if kind != BARRIER:
        words.append(f"of {signature >> 32} bytes of {_DTYPES[dtype] if dtype < len(_DTYPES) else 'another dtype'}")
    if kind in (BROADCAST, REDUCE):
        words.append(f"with root {signature >> 16 & 0xFFFF}")
    return " ".join(words)
