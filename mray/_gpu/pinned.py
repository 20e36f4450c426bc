"""Channel whose tensors pass through pinned memory of the host, between GPUs that cannot reach each other's memory.

    writer's GPU ══ asynchronous copy ══▶ memory of the host that both have registered ══ asynchronous copy ══▶ reader's GPU

As `mray._gpu.cuda_ipc` in all else: nobody on the host waits, and timelines order the copies.
"""

from __future__ import annotations

from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter


class PinnedWriter(CudaIpcWriter):
    """The writing end."""

    __slots__ = ()
    _pinned = True


class PinnedReader(CudaIpcReader):
    """One reader's end: whatever lies in host memory is copied to the reader's device."""

    __slots__ = ()
