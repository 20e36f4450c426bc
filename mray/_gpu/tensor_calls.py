"""Calls whose tensors stay with the actor, and calls with such tensors as arguments: the caller's checks and records.

In the calling process.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from mray._api.actor_handle import ActorHandle, ids_of
from mray._api.object_ref import ObjectRef
from mray._common.tensor_transports import tensor_transport
from mray._gpu.registered_transports import encode_transport, manager_of
from mray._runtime.client.calls import Call


def check_enabled(handle: ActorHandle, name: str, num_returns: int | str) -> None:
    """Raise ValueError unless methods of the actor may leave their tensors with it by this transport, and this one returns values."""
    transport = tensor_transport(name)
    if transport is not None and isinstance(num_returns, str):
        raise ValueError(
            f"Currently, methods with tensor_transport={transport.name} only support 1 return value. "
            "Please make sure the actor method is decorated with `@ray.method(num_returns=1)` (the default)."
        )
    if transport is not None and not handle.__actor_options__.get("enable_tensor_transport"):
        raise ValueError(
            f'Currently, methods with .options(tensor_transport="{transport.name}") are not supported when enable_tensor_transport=False. '
            "Please set @ray.remote(enable_tensor_transport=True) on the actor class definition."
        )
    if transport is not None and transport.custom is not None and not manager_of(transport).actor_has_tensor_transport(handle):
        raise ValueError(f"{handle} does not have tensor transport {transport.name} available.")


def keep_tensors(call: Call, name: str) -> None:
    transport = tensor_transport(name)
    if transport is None:
        return
    call.options = {**(call.options or {}), "tensor_transport": encode_transport(transport)}
    for entry in call.entries if call.entry is None else (call.entry,):
        entry.transport = transport.name


def warn_if_sent_back(arguments: Sequence[ObjectRef], handle: ActorHandle) -> None:
    """Warn (UserWarning), once per ref, when its tensors go to other actors and, by reference, to the one that has them."""
    for ref in arguments:
        entry = ref._entry
        if entry.transport is None or entry.sent is True:
            continue
        holder = ref.task_id().actor_id().binary()
        sent: set[bytes] = entry.sent or set()
        sent.update(ids_of([handle]))
        entry.sent = sent
        if holder in sent and len(sent) > 1:
            entry.sent = True
            warnings.warn(
                f"RDT {ref} is being passed back to the actor that created it (actor {holder.hex()}). Note that RDT objects are mutable. "
                "If the tensor is modified, Ray's internal copy will also be updated, and subsequent passes to other actors will receive "
                "the updated version instead of the original.",
                UserWarning,
                stacklevel=5,
            )
