"""The communicator over torch.distributed, for the actors of one host: NCCL as torch brings it, or gloo on the CPU.

Each group has a ProcessGroup of its own, made without ``init_process_group``: the actor may have torch's default group besides, of whatever
backend. Members find each other through a file in the session's directory, and gloo's connections stay on the loopback interface.

Another way than `mray._channel.nccl`, with torch's own collectives. Work on the CPU (gloo) is done when a call returns. Work on a GPU is
queued; the current stream waits for it.

*Death.* A member that hears of one aborts its ProcessGroup. gloo cannot be aborted while it waits: its connections break with the process,
and with the groups of those who have heard, so whoever waits gets an error, which is told as what it is, a death.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from mray._api.actor_handle import ids_of
from mray._api.communicator import ReduceOp, TorchTensorAllocator
from mray._api.current import current_backend
from mray._channel.membership import join
from mray._channel.rank_communicator import RankCommunicator
from mray._channel.stream_group import ABORT_GRACE, StreamGroup
from mray._common import settings
from mray._common.kept import os
from mray._common.process_local import is_simulated

#: Slow is not dead: deaths are told by the runtime.
_FOREVER = timedelta(days=365)
#: Seconds between two looks at a stream that is waited for, at first and at most.
_FIRST_PAUSE, _LAST_PAUSE = 50e-6, 1e-3


class TorchDistributedCommunicator(RankCommunicator[StreamGroup]):
    """A group of actors that exchange torch tensors through a ProcessGroup of its own.

    Made once, and handed to every member; `initialize` makes the copy there a member. With ``backend="nccl"`` tensors are on GPUs, each
    member's on one of its own, and with ``"gloo"`` on the CPU. One thread of a process at a time; all members call in the same order.
    """

    LIBRARY = "torch.distributed"

    def __init__(self, actor_handles: Sequence[Any], backend: str = "nccl", communicator_id: str | None = None) -> None:
        """`actor_handles` are those of all members, by rank. Raises ValueError unless they are different, or for another backend."""
        if backend not in ("nccl", "gloo"):
            raise ValueError(f"The backend {backend!r} is neither 'nccl' nor 'gloo'.")
        super().__init__(actor_handles, communicator_id)
        self._backend = backend
        #: torch's ProcessGroup; None when the group has ended.
        self._processes: Any = None
        self._calling = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._actor_handles, self._backend, self._id)

    # ------------------------------------------------------------------------------------ becoming a member
    def initialize(self, rank: int) -> None:
        """Become the member of this rank; waits until all members do. Raises RayChannelError when one of them dies before.

        RuntimeError when torch has no such backend.
        """
        self._refuse_second_rank()
        if is_simulated():
            raise NotImplementedError(
                "torch.distributed has one rank in a process, and with init(local_mode=True) all ranks are in one. CPUCommunicator has the "
                "same collectives."
            )
        self._check_backend()
        name = f"torch {self._id}"
        group = join(name, len(self._actor_handles), rank, actors=ids_of(self._actor_handles), kind=StreamGroup)
        path = os.path.join(current_backend().facts()["session_dir"], "groups", f"torch-{self._id}")
        try:
            self._processes = self._make(group, path)
            group.tell_all(None)
        except BaseException:
            group.destroy()
            raise
        finally:
            if rank == 0 and self._backend == "gloo":  # NCCL meets at its first call
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        self._membership = group
        group.on_death = lambda: threading.Thread(target=self._abort, name="mray-torch-abort", daemon=True).start()

    def _check_backend(self) -> None:
        import torch.distributed  # noqa: PLC0415

        found = torch.distributed.is_available() and (
            torch.distributed.is_nccl_available() if self._backend == "nccl" else torch.distributed.is_gloo_available()
        )
        if not found:
            raise RuntimeError(f"This torch has no {self._backend}: torch.distributed.is_{self._backend}_available() is False.")

    def _make(self, group: StreamGroup, path: str) -> Any:
        """The ProcessGroup."""
        return group.make_beside(lambda: _process_group(self._backend, path, group.rank, group.world_size), "mray-torch-init")

    # ------------------------------------------------------------------------------------ calls
    def send(self, value: Any, peer_rank: int) -> None:
        """Send a tensor to a member. On the CPU it waits until it is on its way."""
        tensor = self._mine(value).contiguous()
        self._call(lambda processes: processes.send([tensor], peer_rank, 0))

    def recv(self, shape: Sequence[int], dtype: Any, peer_rank: int, allocator: TorchTensorAllocator | None = None) -> Any:
        """The next tensor of a member, in memory that `allocator` makes (or torch)."""
        import torch  # noqa: PLC0415

        device = "cpu" if self._backend == "gloo" else "cuda"
        tensor = torch.empty(tuple(shape), dtype=dtype, device=device) if allocator is None else allocator(tuple(shape), dtype)
        self._mine(tensor)
        self._call(lambda processes: processes.recv([tensor], peer_rank, 0))
        return tensor

    def allgather(self, send_buf: Any, recv_buf: Any) -> None:
        source, out = self._mine(send_buf).contiguous(), self._mine(recv_buf)
        self._call(lambda processes: processes._allgather_base(out, source))  # noqa: SLF001  (torch's)

    def allreduce(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        import torch.distributed  # noqa: PLC0415

        out = self._mine(recv_buf)
        if out is not send_buf:
            out.copy_(self._mine(send_buf))
        options = torch.distributed.AllreduceOptions()
        options.reduceOp = getattr(torch.distributed.ReduceOp, op.name)
        self._call(lambda processes: processes.allreduce([out], options))

    def reducescatter(self, send_buf: Any, recv_buf: Any, op: ReduceOp = ReduceOp.SUM) -> None:
        import torch.distributed  # noqa: PLC0415

        source, out = self._mine(send_buf).contiguous(), self._mine(recv_buf)
        options = torch.distributed.ReduceScatterOptions()
        options.reduceOp = getattr(torch.distributed.ReduceOp, op.name)
        self._call(lambda processes: processes._reduce_scatter_base(out, source, options))  # noqa: SLF001  (torch's)

    def _mine(self, tensor: Any) -> Any:
        kind = "cpu" if self._backend == "gloo" else "cuda"
        device = getattr(getattr(tensor, "device", None), "type", "the host")
        if device != kind:
            raise ValueError(f"The group is of {self._backend}, for tensors on {kind}, and this {type(tensor).__name__} is on {device}.")
        return tensor.detach()

    def _call(self, call: Callable[[Any], Any]) -> None:
        group = self.member
        with self._calling:
            group.check()
            problem = ""
            try:
                call(self._processes).wait()
            except (RuntimeError, AttributeError) as error:
                if isinstance(error, AttributeError) and self._processes is not None:
                    raise
                problem = str(error)
        # Out of the handler, so that nothing keeps the ProcessGroup, whose connections others wait for.
        if problem:
            group.host.wait_until(lambda: group.has_failed or group.has_lost_members, ABORT_GRACE)
            if not group.has_failed:
                group.fail(group.lost_members() or f"torch.distributed failed in rank {group.rank}: {problem}")
            self._abort()
            group.check()

    # ------------------------------------------------------------------------------------ ending
    @property
    def recv_stream(self) -> Any:
        """The stream that tensors are received on, as a context manager; None on the CPU."""
        return self._stream()

    @property
    def send_stream(self) -> Any:
        """The stream that tensors are sent on, as a context manager; None on the CPU."""
        return self._stream()

    def _stream(self) -> Any:
        if self._backend == "gloo":
            return None
        import torch  # noqa: PLC0415

        return torch.cuda.StreamContext(torch.cuda.current_stream())

    def _abort(self) -> None:
        """Let go of the ProcessGroup, whatever it does."""
        processes, self._processes = self._processes, None
        if processes is not None and self._backend == "nccl":
            processes.abort()
        if self._membership is not None:
            self._membership.give_up()

    def destroy(self) -> None:
        """Leave the group; who waits for this member gets RayChannelError. Idempotent."""
        group = self._membership
        if group is None:
            return
        processes = self._processes
        if processes is not None and self._backend == "nccl" and not group.has_failed:
            import torch  # noqa: PLC0415

            # Work that this member has queued is done before its communicators end; that of a peer who died never is.
            stream, pause = torch.cuda.current_stream(), _FIRST_PAUSE
            while not stream.query() and not group.has_failed:
                group.host.wait_until(lambda: group.has_failed, pause)
                pause = min(2 * pause, _LAST_PAUSE)
        del processes
        group.begin_to_leave()
        self._abort()
        group.destroy()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(current_backend().facts()["session_dir"], "groups", f"torch-{self._id}"))

    def get_transport_name(self) -> str:
        """``"cpu"`` with gloo, else ``"accelerator"``."""
        return "cpu" if self._backend == "gloo" else "accelerator"


def _process_group(backend: str, path: str, rank: int, world_size: int) -> Any:
    from torch import distributed  # noqa: PLC0415

    store = distributed.FileStore(path, world_size)
    if backend == "nccl":
        settings.propose_to_library("NCCL_SOCKET_IFNAME", "lo")
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = _FOREVER  # noqa: SLF001  (torch's)
        return distributed.ProcessGroupNCCL(store, rank, world_size, options)
    options = distributed.ProcessGroupGloo._Options()  # noqa: SLF001  (torch's)
    options._devices = [distributed.ProcessGroupGloo.create_device(interface="lo")]  # noqa: SLF001  (torch's)
    options._timeout = _FOREVER  # noqa: SLF001  (torch's)
    return distributed.ProcessGroupGloo(store, rank, world_size, options)
