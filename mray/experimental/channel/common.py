"""The contract of public channels, and what reads and writes several of them as one.

In the driver and in actors, outside of graphs. A channel has one writer and so many readers as were declared; `write` waits until there is
room, `read` until there is a value, and closing a channel wakes them all.

Timeouts are in seconds: None and -1 wait for ever, 0 does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mray._api.current import current_backend
from mray._api.type_hint import ChannelOutputType
from mray._common.bridge import in_thread
from mray._common.clock import now
from mray._common.process_local import ProcessLocal
from mray.exceptions import RayChannelError, RayChannelTimeoutError, RayTaskError
from mray.experimental.channel.accelerator_context import AcceleratorContext
from mray.experimental.channel.serialization_context import _SerializationContext

__all__ = [
    "AwaitableBackgroundReader",
    "AwaitableBackgroundWriter",
    "ChannelContext",
    "ChannelInterface",
    "ChannelOutputType",
    "CompiledDAGArgs",
    "ReaderInterface",
    "SynchronousReader",
    "SynchronousWriter",
    "WriterInterface",
]


class CompiledDAGArgs(NamedTuple):
    """The input of a graph as one value."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ChannelContext:
    """State that channels of this process share."""

    def __init__(self) -> None:
        #: Values on their way inside of this process.
        self.serialization_context = _SerializationContext()
        #: Communicators that this process is a member of, by id.
        self.communicators: dict[str, Any] = {}
        #: The members of communicators that this process has made for others, by id.
        self.communicator_handles: dict[str, Any] = {}
        self._torch_device: Any = None

    @staticmethod
    def get_current() -> ChannelContext:
        """The context of this process."""
        return _contexts.get()

    @property
    def torch_available(self) -> bool:
        """Whether torch can be imported."""
        try:
            import torch  # noqa: F401, PLC0415
        except ImportError:
            return False
        return True

    @property
    def torch_device(self) -> Any:
        """The device that tensors arrive on: the first of this process, unless `set_torch_device` said otherwise."""
        if self._torch_device is None:
            self._torch_device = AcceleratorContext.get().get_accelerator_devices()[0]
        return self._torch_device

    def set_torch_device(self, device: Any) -> None:
        """Have tensors arrive on this device."""
        self._torch_device = device


_contexts: ProcessLocal[ChannelContext] = ProcessLocal(ChannelContext)


# -------------------------------------------------------------------------------------------- one channel
class ChannelInterface:
    """One writer, and so many readers as were declared. Handles can be pickled; a copy in another process is an end of the same channel."""

    def __init__(self, writer: Any, readers: Sequence[Any], typ: ChannelOutputType | None) -> None:
        """`writer`, `readers`: actors; None is the driver."""

    def ensure_registered_as_writer(self) -> None:
        """Raises unless this process may write. Idempotent."""
        raise NotImplementedError

    def ensure_registered_as_reader(self) -> None:
        """Become one of the readers; raises when there are as many as declared. Idempotent."""
        raise NotImplementedError

    def write(self, value: Any, timeout: float | None = None) -> None:
        """Send a value to all readers; waits until there is room.

        Raises RayChannelTimeoutError when there is none in time, RayChannelError when the channel is closed or a reader that it waits for
        has died, and TypeError when the value cannot be pickled.
        """
        raise NotImplementedError

    def read(self, timeout: float | None = None) -> Any:
        """The next value; waits until there is one. An exception that was written is returned, not raised.

        Raises RayChannelTimeoutError when nothing comes in time, and RayChannelError when the channel is closed or its writer has died.
        """
        raise NotImplementedError

    def readable(self) -> bool:
        """Whether `read` would not wait, or it is unknown whether it would."""
        return True

    def close(self) -> None:
        """End the channel for everybody: who waits gets RayChannelError. Values that were not read are lost. Idempotent, does not wait."""
        raise NotImplementedError


def seconds(timeout: float | None) -> float | None:
    """A timeout of this interface as the rest of mray has it: None waits for ever. Raises ValueError for other negative numbers."""
    if timeout is None or timeout == -1:
        return None
    if timeout < 0:
        raise ValueError("Timeout must be non-negative or -1.")
    return timeout


# -------------------------------------------------------------------------------------- reading several
class ReaderInterface:
    """Reads several channels as one: a list with a value of each."""

    def __init__(self, input_channels: list[ChannelInterface]) -> None:
        for channel in input_channels:
            if not isinstance(channel, ChannelInterface):
                raise TypeError(f"A reader reads channels, not {type(channel).__name__}.")
        self._input_channels = input_channels
        self._closed = False
        self._registered = False
        self._num_reads = 0
        #: Channels whose value of the execution that failed was not waited for; it is thrown away before the next is read.
        self._leftover_channels: list[ChannelInterface] = []

    def get_num_reads(self) -> int:
        """How many lists were read."""
        return self._num_reads

    def start(self) -> None:
        """Prepare for reading."""
        raise NotImplementedError

    def _register(self) -> None:
        # A channel of which this process is no reader yet cannot say whether a value waits.
        if not self._registered:
            for channel in self._input_channels:
                channel.ensure_registered_as_reader()
            self._registered = True

    def read(self, timeout: float | None = None) -> list[Any]:
        """A value of each channel. When one of them is a RayTaskError, a list of that error at once, without waiting for the others."""
        self._register()
        values = self._read_list(timeout)
        self._num_reads += 1
        return values

    def close(self) -> None:
        """Close the channels."""
        self._closed = True
        for channel in self._input_channels:
            channel.close()

    def _read_list(self, timeout: float | None = None) -> list[Any]:
        limit = seconds(timeout)
        deadline = None if limit is None else now() + limit
        self._read_each(self._leftover_channels, deadline, lambda _channel, _value: True)
        values: dict[int, Any] = {}
        failure: list[RayTaskError] = []

        def take(channel: ChannelInterface, value: Any) -> bool:
            values[id(channel)] = value
            if isinstance(value, RayTaskError):
                failure.append(value)
            return not failure

        pending = list(self._input_channels)
        self._read_each(pending, deadline, take)
        if failure:
            self._leftover_channels = pending
            return [failure[0]] * len(self._input_channels)
        return [values[id(channel)] for channel in self._input_channels]

    @staticmethod
    def _read_each(pending: list[ChannelInterface], deadline: float | None, take: Callable[[ChannelInterface, Any], bool]) -> None:
        """Read each channel once, in the order in which values come, and take it off the list; ends early when `take` says so."""
        while pending:
            remaining = None if deadline is None else max(deadline - now(), 0)
            if not any(channel.readable() for channel in pending):
                current_backend().host().wait_until(lambda: any(channel.readable() for channel in pending), remaining)
            ready = [channel for channel in pending if channel.readable()]
            if not ready:
                raise RayChannelTimeoutError(f"Cannot read all channels in time: {len(pending)} of them have no value.")
            for channel in ready:
                value = channel.read(remaining)
                pending.remove(channel)
                if not take(channel, value):
                    return


class SynchronousReader(ReaderInterface):
    """Reads in the thread that calls."""

    def start(self) -> None:
        self._register()

    def release_channel_buffers(self, timeout: float | None = None) -> None:
        """Throw away a value of each channel."""
        self._register()
        limit = seconds(timeout)
        self._read_each(list(self._input_channels), None if limit is None else now() + limit, lambda _channel, _value: True)


class AwaitableBackgroundReader(ReaderInterface):
    """Reads in a thread and hands each list to the next future of a queue, in the event loop that called `start`.

    The future gets what `read` returns, or the exception that it raised as its result.
    """

    def __init__(self, input_channels: list[ChannelInterface], fut_queue: asyncio.Queue[asyncio.Future[Any]]) -> None:
        super().__init__(input_channels)
        self._fut_queue = fut_queue
        self._background_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._register()
        self._background_task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        """Serve the queue until closed."""
        while not self._closed:
            future = await self._fut_queue.get()
            result = await in_thread(self._read_or_error, "channel.AwaitableBackgroundReader")
            if not future.done():
                future.set_result(result)
            del result, future  # what was read may lie in shared memory: it is the caller's alone

    def _read_or_error(self) -> Any:
        try:
            return self.read()
        except RayChannelError as error:
            return error

    def close(self) -> None:
        super().close()
        if self._background_task is not None:
            self._background_task.cancel()


# -------------------------------------------------------------------------------------- writing several
class WriterInterface:
    """Writes a value, or its parts, to several channels."""

    def __init__(self, output_channels: list[ChannelInterface], output_idxs: list[int | str | None], is_input: bool = False) -> None:
        """Channel i gets part ``output_idxs[i]`` of each value, or all of it where that is None.

        With `is_input` the values are inputs of a graph: an index picks an argument of a `CompiledDAGArgs`, and what is no such thing goes
        to every channel as it is.
        """
        if len(output_channels) != len(output_idxs):
            raise ValueError(f"{len(output_channels)} channels, but {len(output_idxs)} indices.")
        self._output_channels = output_channels
        self._output_idxs = output_idxs
        self._is_input = is_input
        self._closed = False
        self._num_writes = 0

    def get_num_writes(self) -> int:
        """How many values were written."""
        return self._num_writes

    def start(self) -> None:
        """Prepare for writing."""
        raise NotImplementedError

    def write(self, val: Any, timeout: float | None = None) -> Any:
        """Write a value; an exception goes to every channel."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the channels."""
        self._closed = True
        for channel in self._output_channels:
            channel.close()

    def _parts(self, value: Any) -> list[Any]:
        channels = len(self._output_channels)
        if isinstance(value, Exception):
            return [value] * channels
        if self._is_input:
            if not isinstance(value, CompiledDAGArgs):
                return [value] * channels
            return [value.args[key] if isinstance(key, int) else value.kwargs[str(key)] for key in self._output_idxs]
        if channels > 1:
            if not isinstance(value, tuple):
                raise ValueError(f"Expected a tuple of {channels} outputs, but got {type(value)}")
            if len(value) != channels:
                raise ValueError(f"Expected {channels} outputs, but got {len(value)} outputs")
        return [value if key is None else value[key] for key in self._output_idxs]

    def _write_parts(self, value: Any, timeout: float | None) -> None:
        limit = seconds(timeout)
        deadline = None if limit is None else now() + limit
        for channel, part in zip(self._output_channels, self._parts(value), strict=True):
            channel.write(part, None if deadline is None else max(deadline - now(), 0))
        self._num_writes += 1


class SynchronousWriter(WriterInterface):
    """Writes in the thread that calls."""

    def start(self) -> None:
        for channel in self._output_channels:
            channel.ensure_registered_as_writer()

    def write(self, val: Any, timeout: float | None = None) -> None:
        self._write_parts(val, timeout)


class AwaitableBackgroundWriter(WriterInterface):
    """Writes in a thread, in the order of `write`, which does not wait for room. Made and used in one event loop."""

    def __init__(self, output_channels: list[ChannelInterface], output_idxs: list[int | str | None], is_input: bool = False) -> None:
        super().__init__(output_channels, output_idxs, is_input)
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._background_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        for channel in self._output_channels:
            channel.ensure_registered_as_writer()
        self._background_task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        """Write what is queued, until a channel is closed."""
        while True:
            value = await self._queue.get()
            with contextlib.suppress(RayChannelError):
                await in_thread(partial(self._write_parts, value, None), "channel.AwaitableBackgroundWriter")
                continue
            self._closed = True
            return

    async def write(self, val: Any, timeout: float | None = None) -> None:
        """Queue a value; whether its parts fit the channels is known now. Raises RuntimeError after the channels were closed."""
        if self._closed:
            raise RuntimeError("DAG execution cancelled")
        self._parts(val)
        await self._queue.put(val)

    def close(self) -> None:
        if self._background_task is not None:
            self._background_task.cancel()
        super().close()
