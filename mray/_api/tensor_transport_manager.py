"""`TensorTransportManager`: a program's own transport of tensors from actor to actor.

    holder                                          receiver
    extract_tensor_transport_metadata(tensors) ---> fetch_multiple_tensors / recv_multiple_tensors(metadata)
    garbage_collect, when the last ref is dropped

Each process that needs one creates one instance. mray runs transports in which only the receiver takes part (`is_one_sided`):
`send_multiple_tensors` and `abort_transport` are never called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

__all__ = ["CommunicatorMetadata", "FetchRequest", "TensorTransportManager", "TensorTransportMetadata"]


@dataclass
class CommunicatorMetadata:
    """Data that both ends must have of each other. Derive from it."""


@dataclass
class TensorTransportMetadata:
    """Data that a receiver needs in order to get tensors. Derive from it; must be picklable."""

    #: Shape and dtype of each.
    tensor_meta: list[Any]
    #: The type of their device: ``"cpu"``, ``"cuda"``.
    tensor_device: str | None = None


@dataclass
class FetchRequest:
    """Tensors in flight. Its finalizer releases its resources, since it may never be waited for."""

    obj_id: str
    tensors: list[Any]


class TensorTransportManager(ABC):
    """A transport of tensors from actor to actor (`mray.experimental.register_tensor_transport`). Objects are named by their ids in hex
    digits.
    """

    @abstractmethod
    def tensor_transport_backend(self) -> str:
        """The name of the transport."""

    @staticmethod
    @abstractmethod
    def is_one_sided() -> bool:
        """Whether a receiver gets the tensors without the holder taking part."""

    @staticmethod
    @abstractmethod
    def can_abort_transport() -> bool:
        """Whether a transfer can be aborted."""

    @abstractmethod
    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Whether this actor can use it. Called in the process that calls its methods, which raises ValueError if not."""

    @abstractmethod
    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """In the holder, when a method has returned these tensors: prepare them for receivers."""

    @abstractmethod
    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> CommunicatorMetadata:
        """The metadata of the two ends for `recv_multiple_tensors`; both are None here."""

    @abstractmethod
    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """In the receiver, before a method with the ref as argument runs: get the tensors."""

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> FetchRequest:
        """In the receiver, for `get`: begin to get the tensors. By default gets them."""
        tensors = self.recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        return FetchRequest(obj_id=obj_id, tensors=tensors)

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        """The tensors of a fetch. Wait `timeout` seconds at most (-1: without limit). Raises TimeoutError."""
        return fetch_request.tensors

    @abstractmethod
    def send_multiple_tensors(
        self, tensors: list[Any], tensor_transport_metadata: TensorTransportMetadata, communicator_metadata: CommunicatorMetadata
    ) -> None:
        """Send tensors; two-sided transports only."""

    @abstractmethod
    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """In the holder, when the last ref is dropped: undo `extract_tensor_transport_metadata`."""

    @abstractmethod
    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Abort a transfer; two-sided transports only."""
