"""Device memory in pieces: allocations that are mapped one after another, as torch does with ``expandable_segments``.

    owner                                                      peer
    the pieces that a tensor lies in, by their handles         a range of addresses, each piece imported and mapped into it
    `export`: a descriptor for each, whenever one opens it --> `open`; no descriptor is kept (`mray._device.descriptors`)

CUDA's handles for other processes (``cuIpcGetMemHandle``) are for what was allocated at once. Where a piece begins nobody tells but its
allocation handle, which is the same at every address of it: memory is felt along in steps of the smallest piece. A piece that is mapped
somewhere stays allocated, whatever its owner does.

Any thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterator

from mray._common.kept import os
from mray._device import libcuda
from mray._device.base import Allocation
from mray._device.cuda_context import Context
from mray._device.descriptors import Handing, handed
from mray._device.libcuda import AccessDescription, LibCuda

#: Pieces are multiples of it, and start at multiples.
GRAIN = 2 << 20
#: Places that are remembered.
_MOST_REMEMBERED = 4096

#: Numbers of allocations, far from those of the driver.
_numbers = itertools.count(1 << 48)


class CudaPieces:
    """The memory in pieces of one device: this process's own, and that of others which it has open."""

    def __init__(self, cuda: LibCuda, context: Context, ordinal: int) -> None:
        self._cuda = cuda
        self._context = context
        self._ordinal = ordinal
        self._lock = threading.Lock()
        self._handing = Handing(self._hand)
        #: The first and the last grain of a place -> the pieces that it lies in, all of them as one allocation.
        self._known: dict[tuple[int, int], Allocation | None] = {}
        self._allocations: dict[tuple[int, int], Allocation] = {}
        #: Memory of other processes: its address -> the sizes of its pieces.
        self._opened: dict[int, list[int]] = {}

    # ------------------------------------------------------------------------------------ own memory
    def allocation_of(self, address: int, size: int) -> Allocation | None:
        """The pieces of this process in which so many bytes lie; None: there is none.

        They are remembered as long as `forget` was not called, so it is for memory that stays so long (`Device.is_output`).
        """
        place = address // GRAIN, (address + max(size, 1) - 1) // GRAIN
        try:
            return self._known[place]
        except KeyError:
            pass
        found = None if self._is_opened(address) else self._feel(place[0] * GRAIN, place[1] * GRAIN)
        with self._lock:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[place] = found
        return found

    def _feel(self, first: int, last: int) -> Allocation | None:
        begin, end = self._edge_of_piece(first, -GRAIN), self._edge_of_piece(last, GRAIN)
        if begin is None or end is None:
            return None
        # With those beside them, up to places that tensors of many sizes have in common: peers open few allocations, and not one for each
        # pair of pieces that some tensor begins and ends in.
        unit = 1 << (end + GRAIN - begin - 1).bit_length()
        lowest = begin // unit * unit
        begin, end = self._with_neighbours(begin, lowest, -GRAIN), self._with_neighbours(end, lowest + 2 * unit - GRAIN, GRAIN)
        extent = begin, end + GRAIN - begin
        with self._lock:
            if len(self._allocations) >= _MOST_REMEMBERED:
                self._allocations.clear()  # pieces that are found anew have a new number, so peers open them once more
            return self._allocations.setdefault(extent, Allocation(*extent, next(_numbers), in_pieces=True))

    def _edge_of_piece(self, address: int, step: int) -> int | None:
        """The outermost grain, in this direction, of the piece at an address; None: there is none."""
        handle = self._handle_at(address)
        if handle is None:
            return None
        while self._handle_at(address + step) == handle:
            address += step
        return address

    def _with_neighbours(self, address: int, limit: int, step: int) -> int:
        """The outermost grain of the own pieces that follow one another from an address on, in this direction, and lie within a limit."""
        while True:
            edge = None if self._is_opened(address + step) else self._edge_of_piece(address + step, step)
            if edge is None or (limit - edge) * step < 0:
                return address
            address = edge

    def _handle_at(self, address: int) -> int | None:
        """The handle of the piece at an address, not retained; None: nothing of the kind is there."""
        handle = ctypes.c_uint64()
        if self._context.status_during_captures(self._cuda.cuMemRetainAllocationHandle, ctypes.byref(handle), address):
            return None
        self._release(handle.value)
        return handle.value

    def _release(self, handle: int) -> None:
        self._context.call_during_captures("Releasing memory", self._cuda.cuMemRelease, handle)

    def export(self, base: int, size: int) -> bytes:
        """The handle by which other processes open these pieces. Raises RuntimeError when they were not made to be exported."""
        for _size, fd in itertools.islice(self._hand(base, size), 1):
            os.close(fd)
        return self._handing.handle(base, size)

    def _hand(self, address: int, size: int) -> Iterator[tuple[int, int]]:
        """The size of each piece and a new descriptor of it."""
        end = address + size
        while address < end:
            handle, fd = ctypes.c_uint64(), ctypes.c_int()
            action = "Exporting memory"
            self._context.call_during_captures(action, self._cuda.cuMemRetainAllocationHandle, ctypes.byref(handle), address)
            try:
                export, kind = self._cuda.cuMemExportToShareableHandle, libcuda.MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                self._context.call_during_captures(action, export, ctypes.addressof(fd), handle, kind, 0)
            finally:
                self._release(handle.value)
            last = self._edge_of_piece(address, GRAIN)
            after = end if last is None else last + GRAIN
            yield after - address, fd.value
            address = after

    def forget(self) -> None:
        """The own pieces go: hand out nothing of them any more. Idempotent."""
        with self._lock:
            self._known.clear()
            self._allocations.clear()
        self._handing.close()

    # ------------------------------------------------------------------------------------ others' memory
    def open(self, handle: bytes) -> int:
        """Map the pieces of another process: the address of the first. Raises RuntimeError when they cannot be had."""
        call, cuda = self._context.call_during_captures, self._cuda
        pieces: list[tuple[int, int]] = []
        try:
            with contextlib.closing(handed(handle)) as coming:
                for size, fd in coming:
                    piece = ctypes.c_uint64()
                    kind = libcuda.MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                    call("Opening another process's memory", cuda.cuMemImportFromShareableHandle, ctypes.byref(piece), fd, kind)
                    pieces.append((size, piece.value))
            return self._map(pieces)
        finally:
            # Mapped pieces stay.
            for _size, each in pieces:
                self._release(each)

    def _map(self, pieces: list[tuple[int, int]]) -> int:
        call, cuda, action = self._context.call_during_captures, self._cuda, "Mapping another process's memory"
        start, whole, mapped = ctypes.c_uint64(), sum(size for size, _piece in pieces), list[int]()
        call(action, cuda.cuMemAddressReserve, ctypes.byref(start), whole, 0, 0, 0)
        try:
            for size, piece in pieces:
                call(action, cuda.cuMemMap, start.value + sum(mapped), size, 0, piece, 0)
                mapped.append(size)
            access = AccessDescription(libcuda.MEM_LOCATION_TYPE_DEVICE, self._ordinal, libcuda.MEM_ACCESS_FLAGS_PROT_READWRITE)
            call(action, cuda.cuMemSetAccess, start.value, whole, ctypes.byref(access), 1)
        except BaseException:
            self._unmap(start.value, mapped, whole)
            raise
        with self._lock:
            self._opened[start.value] = mapped
            self._known.clear()
        return start.value

    def _unmap(self, address: int, sizes: list[int], whole: int) -> None:
        place = address
        for size in sizes:
            self._context.call_during_captures("Closing another process's memory", self._cuda.cuMemUnmap, place, size)
            place += size
        self._context.call_during_captures("Closing another process's memory", self._cuda.cuMemAddressFree, address, whole)

    def close(self, address: int) -> bool:
        """Undo `open`; whether that is an address that it has returned."""
        with self._lock:
            sizes = self._opened.pop(address, None)
            if sizes is None:
                return False
            self._known.clear()
        if not self._context.is_forked:
            self._unmap(address, sizes, sum(sizes))
        return True

    def _is_opened(self, address: int) -> bool:
        with self._lock:
            return any(base <= address < base + sum(sizes) for base, sizes in self._opened.items())
