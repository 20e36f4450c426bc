"""The communicator that carries tensors through device memory: the user's registration for ``transport="accelerator"``.

One for each process that compiles graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mray._api.communicator import Communicator


@dataclass(frozen=True)
class Accelerator:
    """A kind of device, as torch names its module (``"cuda"``, ``"npu"``, ``"cpu"``), and its communicators.

    Created in each actor as ``cls(world_size, communicator_id, rank, actor_handles, current_stream, use_communication_streams)``, with
    an id of its `generate_communicator_id`.
    """

    torch_module_name: str
    communicator_cls: type[Communicator]


_registered: Accelerator | None = None


def register_accelerator(torch_module_name: str, communicator_cls: Any) -> Accelerator:
    """Use this class for graphs compiled here; the last registration counts. Raises TypeError if it is no class of communicators."""
    global _registered
    if not (isinstance(communicator_cls, type) and issubclass(communicator_cls, Communicator)):
        raise TypeError(f"communicator_cls must be a class derived from Communicator, not {communicator_cls!r}.")
    _registered = Accelerator(torch_module_name, communicator_cls)
    return _registered


def registered_accelerator() -> Accelerator | None:
    """The registered class; None: the compiler chooses."""
    return _registered
