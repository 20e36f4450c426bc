"""The contract of channels: one writer, N readers, messages in order.

    writer's process                                         a reader's process
    ChannelWriter.try_write(value) --- mechanism ---> ChannelReader.try_read() -> value

*The one-writer law.* A channel has one writing end, and each of its readers has a reading end of its own; each end is used by
one thread of one process at a time. Every word that a mechanism shares has one writing side, so that a process may die between
any two instructions and leave the others with a consistent channel.

Guarantees of every mechanism:

* Each reader gets every message once, in the order of writing.
* Nothing here blocks: `try_write` is False when there is no room, `try_read` is `NOTHING` when there is no message. An end waits at its
  process's reactor (`ready`, `has_room`), and the other end's doorbell wakes it to look again.
* A value that was read is the reader's: nothing overwrites it, and holding it blocks nobody.
* A failure (`Failed`) is a message like any other.

A mechanism is one file here; `select` alone names them all; ``tests/conformance/test_channel.py`` has a row for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mray._api.dag_output import Outputs

_FATAL: Final = b"fatal"


class Failed:
    """A message that says what went wrong instead of bringing a value."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        #: The pickled exception, as `mray.get` raises it.
        self.payload = payload

    @classmethod
    def fatally(cls, payload: bytes) -> Failed:
        """A failure after which the graph cannot go on."""
        return cls(payload + _FATAL)  # what follows the end of a pickle is not looked at

    @property
    def fatal(self) -> bool:
        """Whether the graph ends with it."""
        return self.payload.endswith(_FATAL)


class _Nothing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"


#: The result of `try_read` when no message waits.
NOTHING: Final = _Nothing()


class ChannelWriter(ABC):
    """The writing end."""

    __slots__ = ()

    @abstractmethod
    def try_write(self, value: Any) -> bool:
        """Send a value (or a `Failed`); False when there is no room. Raises, and sends nothing, if the value cannot be serialized."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether `try_write` would find room. Asking once and finding none has the readers ring when there is."""

    def position(self) -> int:
        """The number of the next message; both ends count from 0. For who looks on (`mray._graph.watch.probes`), as the next."""
        raise NotImplementedError

    def last_size(self) -> int:
        """Bytes of the message that was written last, and of tensors of devices that were sent since this was asked before."""
        return 0

    def outputs(self) -> Outputs | None:
        """Memory that values can be made in, so that they are sent without a copy; None: there is none."""
        return None

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters of the mechanism: messages written, memory held."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the end. Idempotent.

        Messages that were sent stay readable as long as they are small; a large value that a reader has not taken yet may have gone, and
        reads as `Failed`.
        """


class WrappedWriter(ChannelWriter):
    """A writer that looks at, or changes, what another one, `inner`, writes: of its own it has `try_write`."""

    __slots__ = ("_inner",)

    def __init__(self, inner: ChannelWriter) -> None:
        self._inner = inner

    def has_room(self) -> bool:
        return self._inner.has_room()

    def position(self) -> int:
        return self._inner.position()

    def last_size(self) -> int:
        return self._inner.last_size()

    def outputs(self) -> Outputs | None:
        return self._inner.outputs()

    def statistics(self) -> dict[str, int]:
        return self._inner.statistics()

    def close(self) -> None:
        self._inner.close()


class ChannelReader(ABC):
    """One reader's end."""

    __slots__ = ()

    @abstractmethod
    def try_read(self) -> Any:
        """The next message: a value, a `Failed`, or `NOTHING`. A value that cannot be deserialized is a `Failed`."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether a message waits. Also tells a writer that waits for room, so call it before sleeping."""

    @abstractmethod
    def failed(self) -> bool:
        """Whether the message that waits (there is one) is a `Failed`, without taking it."""

    def position(self) -> int:
        """The number of the next message; both ends count from 0."""
        raise NotImplementedError

    def ahead(self) -> tuple[ChannelReader, Callable[[], None]] | None:
        """For graphs that communicate beside computing: from now on this reads values whose tensors are there for the current stream
        when the function was called, by the reader that is returned. None: they are there when they are read.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of the end; values that were read stay valid. Idempotent."""


class WrappedReader(ChannelReader):
    """A reader that changes what another one, `inner`, reads: of its own it has `try_read`."""

    __slots__ = ("_inner",)

    def __init__(self, inner: ChannelReader) -> None:
        self._inner = inner

    def wraps(self, reader: ChannelReader | None) -> bool:
        """Whether it reads what this one does, perhaps with others between them."""
        inner = self._inner
        return inner is reader or (isinstance(inner, WrappedReader) and inner.wraps(reader))

    def ready(self) -> bool:
        return self._inner.ready()

    def failed(self) -> bool:
        return self._inner.failed()

    def position(self) -> int:
        return self._inner.position()

    def close(self) -> None:
        self._inner.close()


class ReaderBy(WrappedReader):
    """A reader whose messages come by a function, which reads `inner`."""

    __slots__ = ("try_read",)

    try_read: Callable[[], Any]

    def __init__(self, inner: ChannelReader, read: Callable[[], Any]) -> None:
        super().__init__(inner)
        self.try_read = read
