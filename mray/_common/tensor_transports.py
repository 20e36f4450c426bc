"""The tensor transports that ``@mray.method(tensor_transport=...)`` may name, and the devices that each admits.

The names are Ray's, upper case inside. `mray._gpu.tensor_transport` decides how the tensors travel.
"""

from __future__ import annotations

from typing import Any

from mray._common.record import Record

#: The default: shared memory, when the method returns.
OBJECT_STORE = "OBJECT_STORE"


class TensorTransport(Record):
    name: str
    #: Torch device types that it carries.
    devices: tuple[str, ...]
    #: Whether a receiver needs no common group with the holder. `get` is refused otherwise, as on Ray.
    one_sided: bool
    on_device: bool = False
    #: A program's own `TensorTransportManager`, and the type of what it carries.
    custom: type[Any] | None = None
    data_type: type[Any] | None = None


_transports: dict[str, TensorTransport] = {
    transport.name: transport
    for transport in (
        TensorTransport("GLOO", ("cpu",), one_sided=False),
        TensorTransport("SHM", ("cpu", "cuda", "null"), one_sided=True),
        TensorTransport("CUDA_IPC", ("cuda", "null"), one_sided=True, on_device=True),
        TensorTransport("NCCL", ("cuda", "null"), one_sided=False, on_device=True),
    )
}

NO_NIXL = "NIXL moves tensors between hosts, and mray runs on one. Write 'cuda_ipc' for tensors of GPUs and 'shm' for those of the CPU."


def tensor_transport(name: str) -> TensorTransport | None:
    """The transport of this name, in any case; None for the default. Raises ValueError for an unknown name."""
    upper = name.upper()
    if upper == OBJECT_STORE:
        return None
    found = _transports.get(upper)
    if found is None:
        why = NO_NIXL if upper == "NIXL" else f"There are {', '.join(map(repr, map(str.lower, (OBJECT_STORE, *_transports))))}."
        raise ValueError(f"Invalid tensor transport: {upper}. {why}")
    return found


def check_tensor_transport(_option: str, name: Any) -> str | None:
    """The error in a value of the option, or None."""
    if name is None:
        return None
    try:
        tensor_transport(name)
    except ValueError as error:
        return str(error)
    return None


def add_tensor_transport(transport: TensorTransport) -> None:
    """Raises ValueError if the name is taken."""
    if transport.name in _transports or transport.name == OBJECT_STORE:
        raise ValueError(f"Transport {transport.name} already registered.")
    _transports[transport.name] = transport
