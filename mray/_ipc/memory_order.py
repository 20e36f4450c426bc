"""Memory order: what a writer does before it publishes, what a reader does before it trusts.

Python has no memory model, so the rules of shared memory live in this one file; everything else cites it with
comments ``# SYNC POINT <name>: <words>`` that stand with the same words at both ends.

Assumptions
-----------
1. *One writer.* Every word in shared memory has exactly one writing process.
2. *No torn words.* A word is eight aligned bytes behind ``memoryview.cast("Q")``; CPython stores and loads an item with
   one eight-byte move (a ``memcpy`` of constant size eight), which is single-copy atomic on x86-64 and aarch64.
3. *Program order reaches the compiler's output.* Each item access is a call through the buffer protocol; no compiler
   moves one across another.
4. *The processor.* x86-64 keeps stores in order and loads in order; only a load may pass an earlier store.
   aarch64 keeps none of these without a barrier.

``fence()`` is a full barrier made of what plain Python has: locks. A lock is a POSIX semaphore up to Python 3.13 and a byte of CPython's
own since; taking a free one is one atomic read-modify-write either way (glibc's ``sem_trywait``, ``_Py_atomic_compare_exchange``).

* x86-64: that is a locked instruction (``lock cmpxchg`` in glibc's ``sem_trywait``), across which no load and no store moves (Intel SDM
  vol. 3, "Memory Ordering", 9.2.3.9 in 2023): a full barrier by itself.
* aarch64: taking a lock has acquire semantics on its load, and giving it back release semantics on its store, and no more. So the fence
  takes, gives back and takes again: what stands before is ordered before the release, what stands behind is ordered after the second
  acquire, and a store-release is ordered before a load-acquire that follows it in program order (Arm ARM, B2.3, "Barrier-ordered-before":
  ``[L]; po; [A]``). The exception there, acquires with RCpc semantics (``LDAPR``), is none of a read-modify-write: ``LDAXR`` and
  ``CASA`` are RCsc.

The lock is made anew for each fence, because a fence may run inside a fence: a finalizer or a signal handler
can run between any two byte codes, and on a shared lock it would wait for the frame it interrupted.

The patterns
------------
publish:  write the payload; ``publish_fence()``; write the sequence word.
trust:    read the sequence word; ``trust_fence()``; read the payload.
park:     write the own parked word; ``fence()``; look again; only then sleep.
ring:     publish; ``fence()``; read the peer's parked word; ring its doorbell if it is set.

``park`` and ``ring`` are Dekker's pattern: of the two processes at least one sees the other's store, so either the
sleeper sees the message or the writer sees the sleeper. It is the one pattern that needs an instruction on x86-64 too, on both sides.

Evidence
--------
*Explored*: ``tests/interleavings`` runs the real code in every order of its steps, with a crash of either side after any step; its package
says which protocol is explored by what, and within which bounds. Rings (full ones too), slots (also while they grow), doorbells and the
reactor's parking and spinning, with one writer and up to three readers; values that are passed on (three processes); leases; rings that
processes join; groups of two that find each other, meet in collectives, queue work on streams, and part: in three orders of memory. One
thing after another; stores held back in queues, which is x86-64; and, for the smallest shapes (no spinning), stores that leave and loads
that are answered in any order between two fences, with dependencies ordering nothing, which is weaker than aarch64 (two loads at most wait
for their answers at a time). The threads of a process that dozes are explored one thing after another only. Where a protocol rests on one
of the patterns above, its fences are taken away in turn, and what goes wrong is found: torn messages, overwritten slots, sleepers nobody
wakes, members taken for lost. (Some fences stand beside another one that does their work too, such as those of a reader's last release;
taking one away breaks nothing.)
*Proved* for aarch64 is with that: in those shapes, on any processor that reorders no more than this, given that ``fence()`` is a full
barrier and words are not torn, no order of steps goes wrong. No more: larger shapes are not covered.
*Measured* on x86-64: ``tests/stress/test_memory_order.py`` plays publish, park and ring, and whole words, between two processes; what a
group does (ARRIVED, then LEFT; NEED and ARRIVED) are these same patterns. Without the fence one in ten rounds of park and ring ended with
neither side seeing the other; with it none.
*Only argued* for aarch64: that the words are single-copy atomic, that the locks of the C library make a full barrier, that what one process
has told the kernel (a file, a name, a message) another one finds out after what was written before, and the null device's events. Nothing
here has run on such a processor. On none is it proved that a compiler will never merge two accesses through the buffer protocol (rule 3):
the interpreter calls them through pointers that no compiler of today can see through.
"""

from __future__ import annotations

from _thread import allocate_lock

from mray._common.kept import os

#: Whether the processor keeps stores in order and loads in order (x86-64).
TOTAL_STORE_ORDER = os.uname().machine in ("x86_64", "AMD64", "i686")


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
