"""Memory order: what a writer does before it publishes, what a reader does before it trusts.

Python has no memory model, so the rules of shared memory live in this one file; everything else cites it with
comments ``# SYNC POINT <name>: <words>`` that stand with the same words at both ends.

What we rely on
---------------
1. *One writer.* Every word in shared memory has exactly one writing process.
2. *No torn words.* A word is eight aligned bytes behind ``memoryview.cast("Q")``; CPython stores and loads an item with
   one eight-byte move (a ``memcpy`` of constant size eight), which is single-copy atomic on x86-64 and aarch64.
3. *Program order reaches the compiler's output.* Each item access is a call through the buffer protocol; no compiler
   moves one across another.
4. *The processor.* x86-64 keeps stores in order and loads in order; only a load may pass an earlier store.
   aarch64 keeps none of these without a barrier.

``fence()`` is a full barrier made of what plain Python has: locks. Acquiring a fresh lock is an atomic
read-modify-write, on x86-64 a locked instruction, which is a full barrier by itself. On aarch64 the fence acquires, releases
and acquires: release is a store-release (everything before stays before), the acquire behind it is a
load-acquire (everything after stays after), and the architecture keeps a store-release before a load-acquire that follows
it in program order (RCsc). On aarch64 this is argued, not proved, for C libraries whose locks use RCpc loads.

The lock is made anew for each fence, because a fence may run inside a fence: a finalizer or a signal handler
can run between any two byte codes, and on a shared lock it would wait for the frame it interrupted.

The patterns
------------
publish:  write the payload; ``publish_fence()``; write the sequence word.
trust:    read the sequence word; ``trust_fence()``; read the payload.
park:     write the own parked word; ``fence()``; look again; only then sleep.
ring:     publish; ``fence()``; read the peer's parked word; ring its doorbell if it is set.

``park`` and ``ring`` are Dekker's pattern: of the two processes at least one sees the other's store, so either the
sleeper sees the message or the writer sees the sleeper.
"""

from __future__ import annotations

import platform
from _thread import allocate_lock

#: Whether the processor keeps stores in order and loads in order (x86-64).
TOTAL_STORE_ORDER = platform.machine() in ("x86_64", "AMD64", "i686")


def _fence_locked() -> None:
    """A full memory barrier of this thread (about 0.1 microseconds)."""
    allocate_lock().acquire()


def _fence_paired() -> None:
    """A full memory barrier of this thread, for processors with weak order."""
    lock = allocate_lock()
    lock.acquire()
    lock.release()
    lock.acquire()


def _nothing() -> None:
    """On x86-64 stores stay in order and loads stay in order: publishing and trusting need no instruction."""


#: A full barrier: no access of this thread moves across it in either direction.
fence = _fence_locked if TOTAL_STORE_ORDER else _fence_paired
#: Before the sequence word is written.
publish_fence = _nothing if TOTAL_STORE_ORDER else _fence_paired
#: After the sequence word is read.
trust_fence = _nothing if TOTAL_STORE_ORDER else _fence_paired
