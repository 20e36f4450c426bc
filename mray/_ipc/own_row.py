"""Page protection of the session's table: a process can write to its own row only, and a wild write to another is a SIGSEGV.

Not in `mray._ipc.table`, since the node does without ctypes, and writes to each row.
"""

from __future__ import annotations

import ctypes
import mmap

from mray._ipc.mapped import address_of
from mray._ipc.segment import PAGE
from mray._ipc.table import SessionTable

_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def keep_to(table: SessionTable, row: int) -> None:
    """Make this row the only writable one of this process. Where the kernel has no room for the mappings, all stay writable."""
    start, size = address_of(table.segment.memory), table.segment.size
    _protect(start, row * PAGE, mmap.PROT_READ)
    _protect(start + (row + 1) * PAGE, size - (row + 1) * PAGE, mmap.PROT_READ)
