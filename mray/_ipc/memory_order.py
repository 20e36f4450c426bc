"""Memory order: what a writer does before it publishes, what a reader does before it trusts.

Python has no memory model, so these are the rules of shared memory. Comments ``# SYNC POINT <name>: <words>`` cite them, with the same
words at both ends.

Assumptions
-----------
1. *One writer.* Every word in shared memory has exactly one writing process.
2. *No torn words.* A word is eight aligned bytes behind ``memoryview.cast("Q")``; CPython stores and loads an item with
   one eight-byte move (a ``memcpy`` of constant size eight), which is single-copy atomic on x86-64 and aarch64.
3. *Program order reaches the compiler's output.* Each item access is a call through the buffer protocol; no compiler
   moves one across another.
4. *The processor.* x86-64 keeps stores in order and loads in order; only a load may pass an earlier store.
   aarch64 keeps none of these without a barrier.

``fence()`` is a full barrier built from locks. A lock is a POSIX semaphore up to Python 3.13 and a byte of CPython's own since; taking a
free one is one atomic read-modify-write.

* x86-64: that is a locked instruction, across which no load and no store moves (Intel SDM vol. 3, "Memory Ordering").
* aarch64: taking a lock is an acquire, releasing it a release, and no more. So the fence takes, releases and takes again: earlier
  accesses are ordered before the release, later ones after the second acquire, and a store-release is ordered before a load-acquire
  that follows it in program order (Arm ARM, B2.3, "Barrier-ordered-before": ``[L]; po; [A]``). RCpc acquires (``LDAPR``) are
  excepted; those of a read-modify-write (``LDAXR``, ``CASA``) are RCsc.

Each fence creates its lock, because a finalizer or a signal handler may run a fence inside a fence, and on a shared lock would wait for
the frame it interrupted.

The patterns
------------
publish:  write the payload; ``publish_fence()``; write the sequence word.
trust:    read the sequence word; ``trust_fence()``; read the payload.
park:     write the own parked word; ``fence()``; poll again; only then sleep.
ring:     publish; ``fence()``; read the peer's parked word; ring its doorbell if it is set.

``park`` and ``ring`` are Dekker's pattern: at least one of the two processes sees the other's store, so either the sleeper sees the
message or the writer sees the sleeper. It alone needs an instruction on x86-64 too, on both sides.

Evidence
--------
*Explored*: ``tests/interleavings`` runs the real code in every order of its steps, with a crash of either side after any step: under
sequential consistency; with store buffers (x86-64); and, for the smallest shapes (no spinning), with stores and loads in any order
between two fences, which is weaker than aarch64 (two loads at most are outstanding at a time). The threads of a dozing process are
explored under sequential consistency only.
*Proved* for aarch64 thereby: in those shapes every order of steps is correct, given that ``fence()`` is a full barrier and words are not
torn.
*Measured* on x86-64: ``tests/stress/test_memory_order.py`` plays the patterns between two processes.
*Only argued* for aarch64: that words are single-copy atomic, that the C library's locks make a full barrier, that what one process has
passed to the kernel (a file, a name, a message) reaches another after what was written before, and the null device's events. Rule 3 is
argued too: the interpreter calls the buffer protocol through pointers that no present compiler can see through.
"""

from __future__ import annotations

from _thread import allocate_lock

from mray._common.kept import os

TOTAL_STORE_ORDER = os.uname().machine in ("x86_64", "AMD64", "i686")


def _fence_locked() -> None:
    allocate_lock().acquire()


def _fence_paired() -> None:
    """A full barrier for processors with weak order."""
    lock = allocate_lock()
    lock.acquire()
    lock.release()
    lock.acquire()


def _nothing() -> None:
    """No barrier: x86-64 keeps stores in order and loads in order."""


#: No access of this thread moves across it in either direction.
fence = _fence_locked if TOTAL_STORE_ORDER else _fence_paired
#: Precedes the write of the sequence word.
publish_fence = _nothing if TOTAL_STORE_ORDER else _fence_paired
#: Follows the read of the sequence word.
trust_fence = _nothing if TOTAL_STORE_ORDER else _fence_paired
