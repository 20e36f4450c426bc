"""One rank of a group over NCCL: tensors from GPU to GPU, queued on streams, for the processes of one host.

    member a                                                          member b
    send(tensor, b): current stream ── NCCL ── GPU to GPU ──────────▶ recv(shape, dtype, a): current stream
    with communication streams:
      compute ─ point ─▶ send stream ── NCCL ───────────────────────▶ receive stream ─ point ─▶ compute
    watching thread: polls whether the others still live, while work is on the streams

No call waits for the GPU, unless it is `MOST_QUEUED` pieces of work behind. (The first message between two members, and the first
collective, wait for the other's call.) The work of one communicator is done in the order of the calls, so the orders of all members
must match. The schedule of a graph ensures that.

*Memory.* A tensor that is sent on a communication stream is retained until it is sent; a received one lies in memory of that stream, whose
allocator is notified that the reader's stream uses it too (`record_stream`).

*Death.* Work on a stream waits for a dead peer forever. When a member dies, leaves without its half of what others have queued, or is
refused that half, the watching thread aborts NCCL's communicator. Streams then continue, **with undefined contents in what was to be
received**; every later call raises RayChannelError, and `on_failure` is called before the streams continue.

*Rejected.* One communicator for all graphs of the same actors: two members may call in different orders, so that one graph receives a
tensor of the other. ``ncclCommDestroy`` where a peer may be dead: it waits for all ranks of the host. Waiting for the stream after each
receive, to find an abort, as Ray does: it takes the pipeline out of a graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mray._api.communicator import ReduceOp
from mray._api.current import current_backend
from mray._channel.site import Site, SiteGpu
from mray._common import clock
from mray._common.clock import monotonic
from mray._common.log import logger
from mray._device.device import DeviceFaultError, Platform, TensorInfo
from mray._device.device_faults import report
from mray._device.lending import lend_stream, return_stream
from mray._device.nccl_library import BYTES, Library, library, shares_gpus
from mray._device.timelines import Point, mark
from mray._gpu.stream_group import StreamGroup
from mray._inside.plans import select
from mray._inside.transports import join

TICK = 0.02
#: Unfinished pieces of work after which a member waits for its GPU, since sent tensors take memory until then.
MOST_QUEUED = 64
#: Seconds that an abort waits for a call that is about to return.
_GRACE = 1.0


class Later:
    """Work begun by calls inside of `NcclMember.deferring`, for the streams that need the results."""

    def __init__(self, member: NcclMember) -> None:
        self._member = member
        self._ends: list[tuple[Point, list[Any]]] = []

    def add(self, end: Point, results: list[Any]) -> None:
        self._ends.append((end, results))

    def wait(self) -> None:
        """Make the thread's current stream wait for the results. Idempotent, from any thread."""
        ends, self._ends = self._ends, []
        for end, results in ends:
            self._member.await_results(end, results)


class _Deferring(threading.local):
    later: Later | None = None


class NcclMember:
    """A rank of a group on one GPU. Any thread; the work is done in the order of the calls.

    Created by `join_nccl`. All tensors are dense and on the member's device.
    """

    def __init__(self, group: StreamGroup, nccl: Library, device: int, communicator: Any, streams: Sequence[int]) -> None:
        """`streams`: to send and to receive on, lent for "communicators"; none: the thread's current one."""
        self.group = group
        self.nccl = nccl
        self.platform: Platform = nccl.platform
        self.device = nccl.platform.devices[device]
        self._communicator = communicator
        self._on_failure: list[Callable[[], None]] = []
        self._calling = threading.Lock()
        self._inside = False
        self._closed = False
        #: Unfinished work in order: its number, its end, what it needs.
        self._queue: deque[tuple[int, Point, Any]] = deque()
        self._books = threading.Lock()
        self._alarm = threading.Event()
        self._watcher_sleeps = False
        self._deferring = _Deferring()
        self._streams = streams
        group.on_death = self._alarm.set
        self._watcher = threading.Thread(target=self._watch, name="mray-nccl-watch", daemon=True)
        self._watcher.start()

    @property
    def rank(self) -> int:
        return self.group.rank

    @property
    def world_size(self) -> int:
        return self.group.world_size

    @property
    def send_stream(self) -> int:
        """The thread's current stream, unless there are communication streams."""
        return self._streams[0] if self._streams else self.device.current_stream()

    @property
    def receive_stream(self) -> int:
        return self._streams[1] if self._streams else self.device.current_stream()

    # ------------------------------------------------------------------------------------ messages
    def send(self, tensor: Any, peer: int) -> None:
        """Queue a tensor to a member. With communication streams, it must not be written to any more."""
        with self.group.refusing(sent=peer):
            tensor, info = self._dense(tensor)
            self._check_other(peer)
        stream = self.send_stream
        self._follow_current(stream)
        self._queue_call(stream, (tensor,), [], lambda nccl: nccl.send(info.address, info.size, BYTES, peer, stream), sent=peer)

    def recv(self, allocate: Callable[[], Any], peer: int) -> Any:
        """The next tensor of a member, in memory that `allocate` creates on the receiving stream."""
        stream = self.receive_stream
        with self.group.refusing(received=peer), self.device.on_stream(stream):
            tensor = allocate()
        self.recv_into(tensor, peer, stream)
        return tensor

    def recv_into(self, tensor: Any, peer: int, stream: int | None = None) -> None:
        with self.group.refusing(received=peer):
            info = self._target(tensor)
            self._check_other(peer)
        if stream is None:
            stream = self.receive_stream
            self._follow_current(stream)
        self._queue_call(stream, (), [tensor], lambda nccl: nccl.recv(info.address, info.size, BYTES, peer, stream), received=peer)

    # ------------------------------------------------------------------------------------ collectives
    def allreduce(self, source: Any, out: Any, op: ReduceOp) -> None:
        with self.group.refusing():
            source, given = self._dense(source)
            target = self._target(out)
            self._check_fit(given, target, 1)
            dtype, operation, parts = self.nccl.reduction(given.dtype, op)
        count = _count(given) * parts
        self._collect(source, out, lambda nccl, stream: nccl.allReduce(given.address, target.address, count, dtype, operation, stream))

    def reduce(self, tensor: Any, root: int, op: ReduceOp) -> None:
        with self.group.refusing():
            info = self._target(tensor)
            dtype, operation, parts = self.nccl.reduction(info.dtype, op)
        count = _count(info) * parts
        self._collect(tensor, tensor, lambda nccl, stream: nccl.reduce(info.address, info.address, count, dtype, operation, root, stream))

    def broadcast(self, tensor: Any, root: int) -> None:
        with self.group.refusing():
            info = self._target(tensor)
        self._collect(tensor, tensor, lambda nccl, stream: nccl.broadcast(info.address, info.address, info.size, BYTES, root, stream))

    def allgather(self, source: Any, out: Any) -> None:
        with self.group.refusing():
            source, given = self._dense(source)
            target = self._target(out)
            self._check_fit(given, target, self.world_size)
        self._collect(source, out, lambda nccl, stream: nccl.allGather(given.address, target.address, given.size, BYTES, stream))

    def reducescatter(self, source: Any, out: Any, op: ReduceOp) -> None:
        """Reduce every rank's `source`, and write part r into `out` of rank r."""
        with self.group.refusing():
            source, given = self._dense(source)
            target = self._target(out)
            self._check_fit(target, given, self.world_size)
            dtype, operation, parts = self.nccl.reduction(given.dtype, op)
        count = _count(target) * parts
        self._collect(source, out, lambda nccl, stream: nccl.reduceScatter(given.address, target.address, count, dtype, operation, stream))

    def _collect(self, source: Any, out: Any, call: Callable[[Any, int], None]) -> None:
        stream = self.send_stream
        self._follow_current(stream)
        self._queue_call(stream, (source,), [out], lambda nccl: call(nccl, stream))

    # ------------------------------------------------------------------------------------ streams
    @contextlib.contextmanager
    def deferring(self) -> Iterator[Later]:
        """Context manager: this thread's calls do not make its current stream wait for what they receive; `Later.wait` does.

        So communication overlaps with computing that does not need it.
        """
        before, later = self._deferring.later, Later(self)
        self._deferring.later = later
        try:
            yield later
        finally:
            self._deferring.later = before

    def await_results(self, end: Point, results: list[Any]) -> None:
        """Make the current stream wait for results of another one; it uses their memory afterwards."""
        current = self.device.current_stream()
        end.wait(current)
        for tensor in results:
            self.platform.use_on(tensor, current)

    def _follow_current(self, stream: int) -> None:
        if self._streams:
            mark(self.device, self.device.current_stream()).wait(stream)

    # ------------------------------------------------------------------------------------ calls
    def _queue_call(
        self,
        stream: int,
        needs: tuple[Any, ...],
        results: list[Any],
        call: Callable[[Any], None],
        sent: int = -1,
        received: int = -1,
    ) -> None:
        if len(self._queue) >= MOST_QUEUED:
            self._wait_for_room()
        with self._calling:
            number = self.group.note(sent, received)
            self._inside = True
            try:
                # An abort sets the failure before it checks whether a call is inside.
                self.group.check()
                call(self._communicator)
            except self.nccl.error as error:
                self.group.fail(f"NCCL failed in rank {self.rank}: {error}", error)
                self._alarm.set()
                self.group.check()
            finally:
                self._inside = False
            end = mark(self.device, stream)
            with self._books:
                self._queue.append((number, end, (*needs, *results)))
            self._tidy()
            if self._watcher_sleeps:
                self._alarm.set()
            if self._streams and results:
                later = self._deferring.later
                if later is None:
                    self.await_results(end, results)
                else:
                    later.add(end, results)

    def _wait_for_room(self) -> None:
        """Poll: nothing rings when a GPU has finished work."""
        group, pause = self.group, 50e-6
        while not self._tidy() and len(self._queue) >= MOST_QUEUED and not group.has_failed and not self._closed:
            group.host.wait_until(lambda: group.has_failed, pause)
            pause = min(2 * pause, 1e-3)

    def _tidy(self) -> bool:
        """Release what finished work needed. Returns whether none is left."""
        queue = self._queue
        with self._books:
            done = 0
            while queue and queue[0][1].reached():
                done, _end, _needs = queue.popleft()
            if done:
                self.group.note_done(done)
            return not queue

    # ------------------------------------------------------------------------------------ arguments
    def _check_other(self, peer: int) -> None:
        if not 0 <= peer < self.world_size or peer == self.rank:
            raise ValueError(
                f"Rank {peer} is not another member of this group of {self.world_size}, in which this process is rank {self.rank}."
            )

    def _dense(self, tensor: Any) -> tuple[Any, TensorInfo]:
        """A tensor in C order, perhaps a copy, and its facts."""
        tensor = self._mine(tensor)
        tensor, info = self.platform.info(tensor)
        if info.strides is not None:
            tensor, info = self.platform.info(tensor.contiguous())
        return tensor, info

    def _target(self, tensor: Any) -> TensorInfo:
        tensor = self._mine(tensor)
        dense, info = self.platform.info(tensor)
        if dense is not tensor or info.strides is not None:
            raise ValueError(f"The tensor to receive into, of shape {tuple(tensor.shape)}, is not contiguous.")
        return info

    def _mine(self, tensor: Any) -> Any:
        if not self.platform.is_tensor(tensor):
            where = getattr(tensor, "device", "the host")
            raise ValueError(f"NCCL moves tensors of GPUs, and this {type(tensor).__name__} is on {where}. Move it to the GPU first.")
        return tensor

    def _check_fit(self, small: TensorInfo, large: TensorInfo, times: int) -> None:
        if small.device != self.device.index or large.device != self.device.index:
            raise ValueError(
                f"Rank {self.rank} of the group '{self.group.name}' is on GPU {self.device.index} of its process, and the tensors are on "
                f"{small.device} and {large.device}."
            )
        if small.dtype != large.dtype:
            raise ValueError(f"Expected all input tensors to have the same dtype, but got {[small.dtype, large.dtype]}")
        if small.size * times != large.size:
            raise ValueError(f"Expected {times} times the elements of a tensor of shape {small.shape}, but the shape is {large.shape}")

    # ------------------------------------------------------------------------------------ ending
    def on_failure(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the group fails, in another thread, before waiting streams continue with undefined contents."""
        self._on_failure.append(callback)

    def _watch(self) -> None:
        while True:
            self._watcher_sleeps = True
            idle = not self._queue
            self._alarm.wait(None if idle and not self.group.has_failed and not self._closed else TICK)
            self._watcher_sleeps = False
            self._alarm.clear()
            if self._closed:
                return
            try:
                ended = self._look()
            except Exception as error:  # the device itself
                if isinstance(error, DeviceFaultError):
                    report(error)
                self.group.fail(f"the GPU failed in rank {self.rank}: {error}", error)
                ended = True
            if ended:
                self._abort()
                return

    def _look(self) -> bool:
        if not self.group.has_failed:
            try:
                self._communicator.check_async_error()
            except self.nccl.error as error:
                self.group.fail(f"NCCL failed in rank {self.rank}: {error}", error)
            if not self._tidy():
                self.device.check()
                blocker = self.group.blocker()
                if blocker is not None:
                    self.group.fail(blocker)
        return self.group.has_failed

    def _abort(self) -> None:
        callbacks, self._on_failure = self._on_failure, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("reporting that the group %r is broken failed", self.group.name)
        # A call inside is either about to return or waits for a dead process, which only the abort ends.
        deadline = monotonic() + _GRACE
        while self._inside and monotonic() < deadline:
            clock.sleep(0.001)
        self._communicator.abort()
        self.group.give_up()

    def destroy(self) -> None:
        """Leave the group. Work that all members have queued is done first; other work is lost. Idempotent."""
        with self._books:
            if self._closed:
                return
            self._closed = True
        group = self.group
        group.begin_to_leave()
        pause = 0.0005
        # Check the finished work before the waiting members, and not again after that: another member may queue its half in between, and
        # would wait forever for a member that has left.
        while True:
            is_done = self._tidy()
            if group.has_failed or not ((not is_done and group.may_be_done()) or group.is_awaited()):
                break
            self.device.check()
            group.host.wait_until(lambda: group.has_failed, pause)
            pause = min(2 * pause, TICK)
        if not is_done:
            group.give_up()
        self._alarm.set()
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        self._communicator.abort()
        self._tidy()
        self._queue.clear()
        for stream in self._streams:
            return_stream(self.device, stream, "communicators")
        group.destroy()


def _count(info: TensorInfo) -> int:
    count = 1
    for size in info.shape:
        count *= size
    return count


def join_nccl(
    name: str,
    world_size: int,
    rank: int,
    *,
    device: int = 0,
    use_communication_streams: bool = False,
    actors: Sequence[bytes] = (),
    timeout: float | None = None,
) -> NcclMember:
    """Become a rank of the group of that name; waits until all members do.

    Raises LookupError without NCCL, ValueError that names both ranks when two are on one GPU and NCCL does not support that,
    RayChannelError when a member dies meanwhile, TimeoutError after `timeout` seconds.
    """
    nccl = library()
    current_backend().host().gpus()  # a fault of the device ends this process
    own = nccl.platform.devices[device]
    group = join(name, world_size, rank, timeout=timeout, actors=actors, kind=StreamGroup)
    try:
        unique_id = nccl.unique_id() if rank == 0 else None
        gpu = SiteGpu(device, own.uuid, own.name)
        here = Site(nccl.platform.name, (gpu,), nccl.version, shares_gpus(), name=group.label(group.rank))
        told = group.tell_all((here, unique_id))
        platforms = {site.platform for site, _unique_id in told}
        if len(platforms) > 1:
            raise ValueError(f"The members of the group '{name}' have devices of different kinds: {sorted(platforms)}.")
        why = select.why_no_nccl(site for site, _unique_id in told)
        if why is not None:
            raise ValueError(f"The group '{name}' cannot go through NCCL: {why}.")
        communicator = group.make_beside(
            lambda: nccl.communicator(group.world_size, told[0][1], group.rank, device), "mray-nccl-init", lambda late: late.abort()
        )
        streams: list[int] = []
        try:
            while use_communication_streams and len(streams) < 2:
                streams.append(lend_stream(own, "communicators"))
            return NcclMember(group, nccl, device, communicator, streams)
        except BaseException:
            communicator.abort()
            for stream in streams:
                return_stream(own, stream, "communicators")
            raise
    except BaseException:
        group.destroy()
        raise
