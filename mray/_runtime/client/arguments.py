"""Arguments of outgoing calls: pickled, stored in a segment when they are large, and awaited when they are refs.

Refs among the arguments travel as None, and their values beside the others with their positions.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mray._api.dag_node import GraphRef
from mray._api.object_ref import ObjectRef
from mray._common import messages as m
from mray._common.ids import new_object_id
from mray._decide.scheduler.records import Ordered
from mray._objects.ownership import Entry
from mray._objects.remote_error import UNPICKLABLE, argument_error
from mray._objects.serializer import PLAIN_TYPES, is_plain, serialize
from mray._runtime.client.calls import Call
from mray._runtime.objects.owner import INLINE_BYTES

if TYPE_CHECKING:
    from mray._api.blueprint import ActorMethodSpec
    from mray._runtime.objects.borrowing import Borrowing
    from mray._runtime.objects.owner import Owner


class Arguments:
    def __init__(self, owner: Owner, borrowing: Borrowing) -> None:
        self._owner = owner
        self._borrowing = borrowing
        self.waiting: Ordered[Call] = Ordered()

    def pack(self, call: Call, args: Sequence[Any], kwargs: dict[str, Any] | None, of: Any, method: ActorMethodSpec | None = None) -> None:
        """Pickle the arguments into the call, and list the refs among them whose values it needs.

        `of` is the called function, or the blueprint of the class of `method`, for error texts.
        """
        plain = True
        replace = False
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind is ObjectRef or (kind is bytes and len(value) > INLINE_BYTES):
                replace = True
            elif plain and kind not in PLAIN_TYPES:
                plain = is_plain(value)
        if replace:
            args, kwargs = self._replace(call, args, kwargs)
        if plain:
            call.payload = pickle.dumps((args, kwargs), 5)
            if len(call.payload) <= INLINE_BYTES:
                return
        else:
            for value in (*args, *(kwargs or {}).values()):
                if isinstance(value, GraphRef):
                    raise TypeError(f"{type(value).__name__} cannot be used as Ray task/actor argument.")
        self._store(call, (tuple(args), kwargs), of, method)

    def _replace(self, call: Call, args: Sequence[Any], kwargs: dict[str, Any] | None) -> tuple[Sequence[Any], dict[str, Any] | None]:
        call.arguments, call.places = refs, places = [], []
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs or {})
        for place, value in given.items():
            if type(value) is bytes and len(value) > INLINE_BYTES:
                value = self._owner.put(value)
            elif type(value) is not ObjectRef:
                continue
            self._borrowing.check(value)
            given[place] = None
            refs.append(value)
            places.append(place)
        count = len(args)
        return tuple(given[number] for number in range(count)), {name: given[name] for name in kwargs or ()}

    def _store(self, call: Call, arguments: Any, of: Any, method: ActorMethodSpec | None) -> None:
        owner = self._owner
        try:
            packed = serialize(arguments)
        except UNPICKLABLE as error:
            raise argument_error(error, arguments[0], arguments[1], of, method) from error
        refs = packed.refs
        if refs:
            call.refs = self._borrowing.names_of(refs)
            call.pins = [*(call.pins or ()), *refs]
        if packed.size <= INLINE_BYTES:
            call.form, call.payload = packed.form, packed.to_bytes()
            return
        # The worker borrows the object, because views of large arguments may outlive the call.
        entry = call.keep = owner.client.entry()
        object_id = new_object_id()
        segment = owner.store_value(packed, owner.client.process)
        entry.guard = owner.segments.guard(segment)
        entry.complete(m.SEGMENT, segment)
        owner.exported[object_id] = entry
        call.form, call.payload = m.SEGMENT, (*segment, object_id)

    def wait(self, call: Call, source: Any) -> bool:
        """Arrange for ``source.ready(call)`` once every argument exists; False if they all do now. Client's lock held."""
        call.source = source
        waiting = 0

        def ready(_entry: Entry) -> None:
            call.waiting -= 1
            if not call.waiting:
                self.waiting.discard(call)
                if call.arguments is not None:  # else it was cancelled
                    call.source.ready(call)

        for ref in call.arguments or ():
            entry = ref._entry
            if entry.form is None:
                self._borrowing.fetch(entry)
            if entry.form is None:
                waiting += 1
                entry.then(ready)
        call.waiting = waiting
        if waiting:
            self.waiting.add(call)
        return waiting > 0
