"""The objects of other processes that one process holds: the borrower's side.

::

    unknown ──met──▶ asked ──acknowledged──▶ borrowed ──wanted──▶ fetching ──▶ ready ──lost──▶ fetching again
       ▲             (not where the reply goes the same way)                   or failed
       └────────────────────────────── released ◀────────────────────────────────┘

A borrow must be counted before the process that passed the ref on drops it. So a message that would drop it (a reply, an UNPIN) waits
for the owner's acknowledgement: that of the first borrow, if it is in flight when the ref arrives from another process too.

The node counts handles of actors by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mray._common.event_log import EventLog
from mray._decide.caller import caller_instructions as do

if TYPE_CHECKING:
    from mray._decide.caller.call_records import BorrowedObject, Link

#: The process that counts handles of actors.
NODE = ""

Continuation = Callable[[], None]


class Ask:
    """A BORROW or ACTOR_HOLD that is to be acknowledged."""

    __slots__ = ("key", "process", "thens")

    def __init__(self, key: bytes, process: str, then: Continuation | None) -> None:
        self.key = key
        self.process = process
        #: None stands for the replies of this process.
        self.thens: list[Continuation | None] = [then]


class Borrower:
    """Invariant: `unacknowledged` is the count of None among `thens`; the asks named in `asked` are in `asks`."""

    def __init__(self, process: str) -> None:
        #: Entries by object id, while this process uses the object.
        self.objects: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
        #: Tokens of actor handles, by actor id.
        self.tokens: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
        #: Actors of which the node counts this process as a holder.
        self.held: set[bytes] = set()
        self.asks: dict[int, Ask] = {}
        self.asked: dict[bytes, int] = {}
        self.unacknowledged = 0
        self._numbers = 0
        self.event_log = EventLog("what process", process, "has borrowed")

    # ------------------------------------------------------------------------------------ refs come
    def is_counted(self, key: bytes) -> bool:
        """Whether a known ref or handle that arrives is already counted."""
        return key not in self.asked

    def met(self, entry: BorrowedObject, process: str, follows: bool, then: Continuation | None) -> int:
        """An unknown ref has arrived. `then` continues once the borrow is counted.

        Returns the number of the BORROW to send; 0 if no message waits for it, because it travels before the reply, on the same
        connection (`follows`).
        """
        object_id = entry.object_id
        self.objects[object_id] = entry
        return 0 if follows and then is None else self._ask(object_id, process, then)

    def met_again(self, key: bytes, then: Continuation | None) -> do.Instructions:
        number = self.asked.get(key)
        if number is None:
            return _go_on(then)
        self.asks[number].thens.append(then)
        self.unacknowledged += then is None
        return []

    def lent(self, entry: BorrowedObject) -> None:
        """The owner has counted this process and sent an unknown object unasked."""
        self.objects[entry.object_id] = entry

    def acknowledged(self, number: int) -> do.Instructions:
        """The owner has counted this process; may follow `died`."""
        ask = self.asks.pop(number, None)
        if ask is None:
            return []
        if self.asked.get(ask.key) == number:
            del self.asked[ask.key]
        self.unacknowledged -= ask.thens.count(None)
        return [do.GoOn(then) for then in ask.thens if then is not None]

    # ------------------------------------------------------------------------------------ values
    def wants(self, entry: BorrowedObject) -> bool:
        return entry.form is None and not entry.fetching and entry.owner is not None

    def fetched(self, entry: BorrowedObject, link: Link | None, asks: bool) -> do.Instructions:
        """`link` leads to the owner; None: the owner has exited. `asks`: report also whether the value is ready."""
        entry.fetching = True
        return [do.FailObjects([entry], None)] if link is None else [do.Fetch(link, entry.object_id, asks)]

    def lost(self, entry: BorrowedObject, place: str) -> bool:
        """The value is no longer at its location. Returns whether it is pending again: the owner knows another location or recreates it."""
        if entry.missed == place:
            return False
        self.event_log.note("lost", entry.object_id, place)
        entry.missed = place
        entry.form, entry.fetching = None, False
        return True

    # ------------------------------------------------------------------------------------ handles
    def handle_came(self, token: Any, is_counted: bool, then: Continuation | None) -> do.Instructions:
        """The first handle of an actor has arrived. `is_counted`: the node knows of it, or never will."""
        actor_id = token.actor_id
        self.tokens[actor_id] = token
        if actor_id in self.held:
            return self.met_again(actor_id, then)
        self.held.add(actor_id)
        return _go_on(then) if is_counted else [do.Hold(self._ask(actor_id, NODE, then), actor_id)]

    def handles_gone(self, actor_id: bytes) -> do.Instructions:
        """The last handle was dropped; a new one may have arrived meanwhile."""
        if actor_id in self.tokens or actor_id not in self.held:
            return []
        self.held.discard(actor_id)
        return [do.Drop(actor_id)]

    # ------------------------------------------------------------------------------------ ends
    def died(self, process: str) -> do.Instructions:
        """The unsent acknowledgements and values of an exited process do not arrive."""
        return self._over(process, None)

    def broke(self, process: str, error: BaseException) -> do.Instructions:
        """The process lives: a ref that arrives later borrows again."""
        return self._over(process, error)

    def all_lost(self, error: BaseException) -> do.Instructions:
        self.event_log.note("all lost", type(error))
        lost = [entry for entry in self.objects.values() if entry.form is None]
        return [do.FailObjects(lost, error), *self._acknowledge(list(self.asks))]

    # ------------------------------------------------------------------------------------ transitions
    def _ask(self, key: bytes, process: str, then: Continuation | None) -> int:
        self._numbers += 1
        self.asks[self._numbers] = Ask(key, process, then)
        self.asked[key] = self._numbers
        self.unacknowledged += then is None
        return self._numbers

    def _over(self, process: str, error: BaseException | None) -> do.Instructions:
        lost = [entry for entry in self.objects.values() if entry.owner == process and entry.form is None]
        asks = [number for number, ask in self.asks.items() if ask.process == process]
        if lost or asks:
            self.event_log.note("over", process, type(error))
        if error is not None:
            for entry in lost:
                self.objects.pop(entry.object_id, None)
        out: do.Instructions = [do.FailObjects(lost, error)] if lost else []
        return out + self._acknowledge(asks)

    def _acknowledge(self, numbers: Iterable[int]) -> do.Instructions:
        return [instruction for number in numbers for instruction in self.acknowledged(number)]

    # ------------------------------------------------------------------------------------ for tests and errors
    def validate(self) -> None:
        assert self.unacknowledged == sum(ask.thens.count(None) for ask in self.asks.values()), self.event_log
        assert all(number in self.asks and self.asks[number].key == key for key, number in self.asked.items()), self.event_log
        assert all(ask.thens for ask in self.asks.values()), self.event_log
        assert set(self.tokens) <= self.held, self.event_log


def _go_on(then: Continuation | None) -> do.Instructions:
    return [] if then is None else [do.GoOn(then)]
