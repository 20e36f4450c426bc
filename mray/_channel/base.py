"""The contract of channels: one writer, N readers, messages in order.

One thread of one process at a time uses an end. Every shared word has one writing side, so a process may die between any two
instructions and leave a consistent channel.

Guarantees of every mechanism:

* Each reader gets every message once, in the order of writing.
* Nothing blocks. An end waits at its process's reactor (`ready`, `has_room`), and the other end's doorbell makes it poll again.
* A received value is the reader's: nothing overwrites it, and holding it blocks no process.
* A failure (`Failed`) is a message like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mray._api.dag_output import Outputs

_FATAL: Final = b"fatal"


class Failed:
    """A message with an error instead of a value."""

    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        #: The pickled exception, as `mray.get` raises it.
        self.payload = payload

    @classmethod
    def fatally(cls, payload: bytes) -> Failed:
        return cls(payload + _FATAL)  # the unpickler ignores what follows the end of a pickle

    @property
    def fatal(self) -> bool:
        return self.payload.endswith(_FATAL)


class _Nothing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()


class ChannelWriter(ABC):
    """The writing end."""

    __slots__ = ()

    @abstractmethod
    def try_write(self, value: Any) -> bool:
        """Send a value (or a `Failed`). Returns False without room. Raises, and sends nothing, if the value cannot be serialized."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether `try_write` would find room. If not, the readers ring when there is."""

    def position(self) -> int:
        """The number of the next message; both ends count from 0."""
        raise NotImplementedError

    def last_size(self) -> int:
        """Bytes of the last message, and of device tensors sent since the last call."""
        return 0

    def outputs(self) -> Outputs | None:
        """Memory in which values can be created that are sent without a copy; None without."""
        return None

    @abstractmethod
    def statistics(self) -> dict[str, int]:
        """Counters of the mechanism."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent. Small sent messages stay readable; a large value that a reader has not taken yet may be freed, and reads as
        `Failed`.
        """


class WrappedWriter(ChannelWriter):
    """A writer around another, `inner`; subclasses define `try_write`."""

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
        """Whether a message waits. Also notifies a writer that waits for room, so call it before sleeping."""

    @abstractmethod
    def failed(self) -> bool:
        """Whether the waiting message, which must exist, is a `Failed`."""

    def position(self) -> int:
        raise NotImplementedError

    def ahead(self) -> tuple[ChannelReader, Callable[[], None]] | None:
        """For overlapping communication with computing: afterwards `try_read` returns values before their tensors have arrived, and the
        returned reader makes the current stream wait for these. None: tensors have arrived when they are read.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Received values stay valid. Idempotent."""


class WrappedReader(ChannelReader):
    """A reader around another, `inner`; subclasses define `try_read`."""

    __slots__ = ("_inner",)

    def __init__(self, inner: ChannelReader) -> None:
        self._inner = inner

    def wraps(self, reader: ChannelReader | None) -> bool:
        """Whether it wraps this one, directly or through others."""
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
    """A reader that passes the messages of `inner` through a function."""

    __slots__ = ("try_read",)

    try_read: Callable[[], Any]

    def __init__(self, inner: ChannelReader, read: Callable[[], Any]) -> None:
        super().__init__(inner)
        self.try_read = read
