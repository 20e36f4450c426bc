"""`Tensors`: what calls need of tensors that stay with the process that created them.

A process loads `mray._gpu.tensor_transport` for the first such value that it holds, owns or receives. Methods take the client's lock
unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mray._api.actor_handle import ActorHandle
    from mray._api.object_ref import ObjectRef
    from mray._common.invocations import ArgumentValue
    from mray._common.tensor_transports import TensorTransport
    from mray._ipc.connection import Connection
    from mray._objects.ownership import Entry


class Tensors(Protocol):
    """The tensors of one process: as holder, as owner and as receiver."""

    def freeze(
        self, value: Any, encoded: Any, object_id: bytes, owner: str, caller: Connection | None, actor: tuple[bytes, str]
    ) -> tuple[int, Any, list[Any] | None]:
        """As `Owner.freeze`, but the tensors stay here. The end of the caller's process frees them; `actor`: id and class, b"" if none.

        Raises ValueError when the transport does not carry tensors of their device.
        """

    def drop(self, object_id: bytes) -> None:
        """Drop the tensors of an object whose last ref was released. Client's lock held."""

    def put(self, value: Any, transport: TensorTransport, actor: tuple[bytes, str]) -> ObjectRef:
        """Own a value whose tensors stay in this process."""

    # ------------------------------------------------------------------------------------ verbs of the engine, see `Backend`
    def wait_tensor_freed(self, tensor: Any, timeout: float | None) -> None: ...

    def transport_of(self, ref: ObjectRef) -> str | None: ...

    def set_target(self, ref: ObjectRef, place: Callable[[list[Any]], list[Any]], device: str | None) -> None: ...

    # ------------------------------------------------------------------------------------ of the caller
    def check_enabled(self, handle: ActorHandle, name: str, num_returns: int | str) -> None:
        """ValueError unless methods of the actor may leave their tensors with it by this transport, and this one returns values."""

    def keep(self, call: Any, name: str) -> None:
        """Make the tensors that the call returns stay with the actor."""

    def warn_if_sent_back(self, arguments: Sequence[ObjectRef], handle: ActorHandle) -> None:
        """UserWarning, once for each ref, when its tensors go to other actors and, by reference, to the one that has them."""

    def own(self, entry: Entry, object_id: bytes, payload: Any, keep: Any) -> None:
        """Make the holder free the tensors when this entry of the owner ends. `keep` (the holder's handle) lives as long."""

    # ------------------------------------------------------------------------------------ of the receiver
    def look_ahead(self, arguments: Sequence[ArgumentValue]) -> None:
        """Start fetching the tensors of these arguments."""

    def look_back(self, arguments: Sequence[ArgumentValue] | None) -> None:
        """Drop the fetches: the call is not going to run."""

    def begin_arguments(self, arguments: Sequence[ArgumentValue]) -> list[ArgumentValue]:
        """The arguments of a call, with a fetch as payload where the tensors are elsewhere; each object is fetched once."""

    def tensors_of(self, fetch: Any, timeout: float | None = None) -> list[Any]:
        """Wait for the tensors. Raises GetTimeoutError after `timeout` seconds, the holder's error, or the error of its death."""

    def argument(self, fetch: Any, owner: str) -> Any:
        """The value of an argument."""

    def awaited(self, arguments: Sequence[ArgumentValue]) -> list[Any]:
        """The fetches among a call's arguments for `why_lost`; they do not keep the tensors."""

    def why_lost(self, fetches: Iterable[Any]) -> BaseException | None:
        """The error of a holder that has died before its tensors, for which streams here waited, arrived.

        Call it when a result computed with them is ready: by then the streams have not gone on, or the reason is known.
        """

    def values(self, refs: Sequence[ObjectRef], value_of: Callable[[Entry], Any], timeout: float | None, through_host: bool) -> list[Any]:
        """The values of ready refs, some with tensors elsewhere. ValueError for tensors that `get` may not fetch.

        With a `timeout` of 0 it still waits for tensors: a ready ref has its value.
        """
