"""Results that a method creates in the memory where their reader expects them (`mray.dag.output`), so that nothing is copied.

    with the step                                       with the message
    take: a tensor over the block of a lease that       again: the lease is sent with the tensor in place
    the reader remembers and has released
    returned: is it what the method returned, without
    another holder of its memory?

Only a tensor without another holder may be sent in place: a holder would share memory with the reader. Python's reference count of
the object, taken when its method has just returned it, and the storage's use count show all holders. A block is not reused while its
tensor has a holder.

Rejected: running each method in a `torch.cuda.MemPool` of the edge, and lending what it returns: a CUDA graph that a method captures
would have its memory there too, and each replay would write into blocks lent since.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mray._device.device import Platform
from mray._gpu.remembered import RememberedLease, RememberedLeases

_MOST_KINDS = 64


class EdgeOutputs:
    """Outputs of one writer; in the thread that runs its actor's methods."""

    def __init__(self, platform: Platform, leases: RememberedLeases) -> None:
        self._platform = platform
        self._leases = leases
        #: (shape, dtype, index of the device) -> kind, as in `look`.
        self._kinds: dict[tuple[tuple[int, ...], str, int], Hashable] = {}
        #: Leases whose memory may have holders here.
        self._taken: list[RememberedLease] = []
        #: The lease sent in place, with the tensor over it.
        self.last: tuple[RememberedLease, Any] | None = None

    def take(self, shape: tuple[int, ...], dtype: str) -> Any:
        device = self._platform.current_device()
        key = shape, dtype, device.index
        if self.last is not None:
            self.handed(None)
        if self._taken:
            self._take_back()
        kind = self._kinds.get(key)
        lease = None if kind is None else self._leases.take(kind, device.current_stream())
        if lease is not None:
            tensor = lease.another()
            if tensor is not None:
                self._taken.append(lease)
                return tensor
            self._leases.give_back(lease)
        tensor = device.empty(dtype, shape)
        if kind is None and (look := self._platform.look(tensor)) is not None:
            if len(self._kinds) == _MOST_KINDS:
                self._kinds.clear()
            self._kinds[key] = look[0]
        return tensor

    def returned(self, value: Any, *, is_alone: bool) -> None:
        if not self._taken:
            return
        look = self._platform.look(value) if is_alone else None
        for lease in self._taken:
            if look == (lease.kind, lease.address) and not lease.is_shared(besides=1) and lease.device.current_stream() == lease.stream:
                self.last = lease, value
                self._taken.remove(lease)
                break
        if self._taken:
            self._take_back()

    def handed(self, tensor: Any) -> RememberedLease | None:
        """The lease of this tensor, if sent in place. `last` must not be None."""
        handed, self.last = self.last, None
        assert handed is not None
        if handed[1] is tensor and handed[0].is_remembered:
            return handed[0]
        self._taken.append(handed[0])  # another value was returned
        return None

    def _take_back(self) -> None:
        for lease in self._taken.copy():
            if not lease.is_shared():
                self._taken.remove(lease)
                self._leases.give_back(lease)
