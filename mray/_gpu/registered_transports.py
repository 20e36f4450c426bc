"""Tensor transports that a program has registered itself (`mray._api.tensor_transport_manager`).

In every client. The process that registers a transport sends its class with each call and each value that needs it, so that actors
started before know it too.
"""

from __future__ import annotations

import pickle
from typing import Any

from mray._common.tensor_transports import TensorTransport, add_tensor_transport, tensor_transport

#: A transport's name; for a program's own, also its pickled class.
Encoded = Any

_pickles: dict[str, bytes] = {}
_managers: dict[str, Any] = {}


def forget_pickles() -> None:
    """Forget pickled classes, whose code may change before a new session."""
    _pickles.clear()


def encode_transport(transport: TensorTransport) -> Encoded:
    if transport.custom is None:
        return transport.name
    pickled = _pickles.get(transport.name)
    if pickled is None:
        import cloudpickle  # noqa: PLC0415  (10 ms that others need not wait)

        pickled = _pickles[transport.name] = cloudpickle.dumps(transport)
    return transport.name, pickled


def decode_transport(encoded: Encoded) -> TensorTransport:
    """The transport that a message names; registers a program's own."""
    if isinstance(encoded, str):
        transport = tensor_transport(encoded)
        assert transport is not None, "object transfer is not encoded"
        return transport
    name, pickled = encoded
    try:
        found = tensor_transport(name)
    except ValueError:
        found = pickle.loads(pickled)
        assert found is not None
        _pickles[name] = pickled
        add_tensor_transport(found)
    assert found is not None
    return found


def encoded_name(encoded: Encoded) -> str:
    return str(encoded if isinstance(encoded, str) else encoded[0])


def manager_of(transport: TensorTransport) -> Any:
    manager = _managers.get(transport.name)
    if manager is None:
        assert transport.custom is not None
        manager = _managers[transport.name] = transport.custom()
    return manager


class Prepared:
    """Tensors prepared in the holder by a program's own transport."""

    def __init__(self, transport: TensorTransport, object_id: bytes, tensors: list[Any]) -> None:
        self._manager = manager_of(transport)
        self._object_id = object_id.hex()
        self._tensors = tensors
        self._metadata = self._manager.extract_tensor_transport_metadata(self._object_id, tensors)
        device = getattr(self._metadata, "tensor_device", None)
        if self._metadata.tensor_meta and device not in transport.devices:
            self.end()
            raise ValueError(f"Tensor transport backend {transport.name} does not support tensor transfer on device {device}.")

    def pickled(self) -> bytes:
        import cloudpickle  # noqa: PLC0415  (its class may be of ``__main__``)

        return cloudpickle.dumps(self._metadata)  # type: ignore[no-any-return]

    def end(self) -> None:
        """Let the transport free the tensors: the last ref is dead."""
        self._manager.garbage_collect(self._object_id, self._metadata, self._tensors)


def receive(encoded: Encoded, object_id: bytes, pickled: bytes, *, for_get: bool, timeout: float | None = None) -> list[Any]:
    """Get tensors by a program's own transport. Raises TimeoutError, and the transport's own errors."""
    transport = decode_transport(encoded)
    manager = manager_of(transport)
    metadata = pickle.loads(pickled)
    ends = manager.get_communicator_metadata(None, None, transport.name)
    if not for_get:
        return list(manager.recv_multiple_tensors(object_id.hex(), metadata, ends))
    request = manager.fetch_multiple_tensors(object_id.hex(), metadata, ends, None)
    return list(manager.wait_fetch_complete(request, -1 if timeout is None else timeout))
