"""Recomputing values whose memory another program has removed.

In the owner's process: the task runs once more, if it may be retried (`max_retries`; this counts as an attempt) and its arguments still
exist. A value that was put, or returned by an actor, cannot be recomputed.

    get, await, FETCH ── the segment does not exist ──▶ the task, once more ──▶ the entry is pending again

The process that is about to use the value detects the loss; a borrower asks the owner once more.

A *recipe* is the record of a finished call whose value lies in a segment. It holds no object: its arguments exist as long as other refs
hold them, or have recipes in turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from mray._api.object_ref import ObjectRef
from mray._common.ids import return_id
from mray._common.messages import SEGMENT
from mray._decide.caller.call_records import CANCELLED
from mray._objects.ownership import Entry
from mray._runtime.client.calls import SENT, WAITS_FOR_ARGUMENTS, WAITS_FOR_WORKER, Call
from mray._runtime.objects.borrowing import is_lost

#: The longest chain of recipes that depend on one another.
MOST_IN_A_ROW = 16

_FIELDS = ("form", "payload", "places", "refs", "options", "parent", "name", "method", "task_id", "num_returns", "source")

#: Calls that recompute values, of all sessions of this process. Client's lock held.
_calls: weakref.WeakSet[Call] = weakref.WeakSet()


class _Held:
    """A weak reference to a ref, or an actor's handle, that a call needs."""

    __slots__ = ("_key", "_thing", "recipe")

    def __init__(self, thing: Any) -> None:
        is_ref = type(thing) is ObjectRef
        self._key = thing._id if is_ref else None
        self._thing = weakref.ref(thing._entry if is_ref else thing)
        #: Recomputes the object if no ref holds it.
        self.recipe: Recipe | None = thing._entry.recipe if is_ref else None

    def thing(self) -> Any:
        """None if it no longer exists."""
        thing = self._thing()
        if self._key is None:
            return thing
        if thing is None and self.recipe is not None:
            return self.recipe.made_again(self._key)
        return None if thing is None else ObjectRef(self._key, thing)


class Recipe:
    __slots__ = ("_arguments", "_depth", "_entries", "_info", "_pins", "_pool", "_retries")

    def __init__(self, call: Call) -> None:
        self._info = {name: getattr(call, name) for name in _FIELDS}
        self._pool = call.source
        self._retries = call.retries
        self._arguments = None if call.arguments is None else [_Held(ref) for ref in call.arguments]
        self._pins = [_Held(pin) for pin in call.pins or ()]
        self._entries: list[weakref.ref[Entry]] = [weakref.ref(entry) for entry in _entries_of(call)]
        held = [*(self._arguments or ()), *self._pins]

        def depth(recipe: Recipe) -> int:
            return recipe._depth

        self._depth = 1 + max((depth(each.recipe) for each in held if each.recipe is not None), default=0)
        if self._depth > MOST_IN_A_ROW:
            self._depth = 1
            for each in held:
                each.recipe = None

    def made_again(self, object_id: bytes) -> ObjectRef | None:
        """A new ref of an unreferenced value, which is being recomputed; None if that is impossible."""
        task_id, number = self._info["task_id"], len(self._entries)
        for index in range(number):
            if return_id(task_id, index + 1) == object_id:
                entry = self._pool.client.entry()
                self._entries[index] = weakref.ref(entry)
                return ObjectRef(object_id, entry) if self.make() else None
        return None

    def make(self) -> bool:
        """Run the task once more; False if that is impossible. Client's lock held."""
        if not self._retries:
            return False
        arguments = None if self._arguments is None else [held.thing() for held in self._arguments]
        pins = [held.thing() for held in self._pins]
        if None in pins or (arguments is not None and None in arguments):
            return False
        if self._retries > 0:
            self._retries -= 1
        entries = []
        for reference in self._entries:
            entry = reference()
            if entry is not None and is_lost(entry):
                entry.guard = entry.mapping = entry.kept = entry.refs = entry.form = None
            elif entry is None or entry.form is not None or entry.task is not None:
                entry = self._pool.client.entry()  # no ref needs the value, or it is being computed
            entries.append(entry)
        call = Call(b"", None, 0, entries[0] if len(entries) == 1 else None, () if len(entries) == 1 else entries)
        for name, value in self._info.items():
            setattr(call, name, value)
        call.retries, call.arguments, call.pins = self._retries, arguments, pins
        for entry in entries:
            entry.task = call
        _calls.add(call)
        self._pool.submit_when_ready(call)
        return True


def _entries_of(call: Call) -> Iterable[Entry]:
    return call.entries if call.entry is None else (call.entry,)


def remember(call: Call) -> None:
    """Store the recipe of a task that has returned large values. Client's lock held."""
    if call.retries and call.retries != CANCELLED and call.keep is None:
        recipe = None
        for entry in _entries_of(call):
            if entry.form == SEGMENT:
                recipe = entry.recipe = recipe or Recipe(call)


def rows(client: object) -> list[tuple[str, str, dict[str, str]]]:
    """The name, state and labels of each unanswered task of this client that recomputes values. Client's lock held."""
    calls = [call for call in _calls if call.source.client is client and any(entry.task is call for entry in _entries_of(call))]
    return [(call.names()[0], _state(call), (call.options or {}).get("labels", {})) for call in calls]


def _state(call: Call) -> str:
    return WAITS_FOR_ARGUMENTS if call.waiting else SENT if call.lease is not None else WAITS_FOR_WORKER
