"""The constructor's arguments of a detached actor: the actor owns them, because its creator may have exited when it restarts.

In the creator. Refs among the arguments are replaced by their values. Arguments that are too large for a message lie in an object whose
name carries the actor's id; the node removes it when the actor is dead for good. (No process has it, so it does not count in
`object_store_memory`.) Refs *inside* arguments stay with their owners, and raise OwnerDiedError after those have exited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._objects.remote_error import UNPICKLABLE, argument_error
from mray._objects.serializer import serialize
from mray._objects.store import discard
from mray._runtime.client.calls import Call
from mray._runtime.objects.owner import INLINE_BYTES

if TYPE_CHECKING:
    from mray._api.blueprint import ActorBlueprint
    from mray._runtime.client.client import Client


def pack_own(client: Client, call: Call, actor_id: bytes, args: Sequence[Any], kwargs: dict[str, Any], of: ActorBlueprint) -> None:
    """Pickle the constructor's arguments into the call. Waits for arguments that are refs; raises their errors."""
    refs = [value for value in (*args, *kwargs.values()) if type(value) is ObjectRef]
    values = dict(zip(map(id, refs), client.objects.get(refs, None), strict=True))
    arguments = (
        tuple(values.get(id(value), value) for value in args),
        {name: values.get(id(value), value) for name, value in kwargs.items()},
    )
    try:
        packed = serialize(arguments)
    except UNPICKLABLE as error:
        raise argument_error(error, *arguments, of, of.init) from error
    if packed.refs:
        call.refs = client.borrowing.names_of(packed.refs)
        call.pins = list(packed.refs)
    if packed.size <= INLINE_BYTES:
        call.form, call.payload = packed.form, packed.to_bytes()
        return
    payload = client.owner.store_value(packed, actor_id.hex())
    client.owner.store.give_away(payload[0])
    call.form, call.payload = m.SEGMENT, payload


def discard_own(call: Call) -> None:
    """Free the arguments of an actor that was not created."""
    if call.form == m.SEGMENT:
        discard(call.payload[0])
