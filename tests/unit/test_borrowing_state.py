"""The decisions about objects that other processes hold, without a process."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import pytest

from mray._decide.caller.borrower import NODE, Borrower
from mray._decide.caller.caller_instructions import Drop, FailObjects, Fetch, GoOn, Hold
from mray._decide.caller.ledger import Ledger

X, Y = b"x", b"y"


class Link:
    def __init__(self, process: str = "borrower") -> None:
        self.calls: dict[bytes, Any] = {}
        self.process = process
        self.closed = False


class Entry:
    form: int | None = None
    fetching = False
    missed = ""

    def __init__(self, object_id: bytes = X, owner: str | None = "owner") -> None:
        self.object_id = object_id
        self.owner = owner


class Token:
    actor_id = b"actor"


# ------------------------------------------------------------------------------------ the owner's side
def test_an_object_is_returned_with_the_last_release() -> None:
    ledger, link, entry = Ledger[Entry](), Link(), Entry()
    assert ledger.lend(entry, link, X) and ledger.lend(entry, link, X)
    assert (ledger.returned(link, X), ledger.out) == (None, 1)
    assert (ledger.returned(link, X), ledger.out) == (entry, 0)
    assert ledger.returned(link, X) is None
    ledger.validate()


def test_what_was_never_lent_is_returned_without_a_change() -> None:
    ledger, link = Ledger[Entry](), Link()
    assert ledger.returned(link, X) is None
    ledger.lend(Entry(Y), link, Y)
    assert ledger.returned(link, X) is None
    assert ledger.out == 1
    ledger.validate()


def test_a_death_returns_everything_at_once() -> None:
    ledger, link, second_link, other = Ledger[Entry](), Link(), Link(), Link("another")
    first, second = Entry(), Entry(Y)
    for entry in (first, second, first):
        ledger.lend(entry, link, entry.object_id)
    ledger.lend(first, second_link, X)
    ledger.lend(first, other, X)
    assert ledger.accounts["borrower"] == {X: (first, 3), Y: (second, 1)}
    assert ledger.ended("borrower") == [first, second]
    assert (ledger.out, list(ledger.accounts)) == (1, ["another"])
    assert ledger.ended("borrower") == []
    ledger.validate()


def test_behind_the_end_of_a_connection_nothing_is_lent() -> None:
    ledger, link = Ledger[Entry](), Link()
    link.closed = True
    assert not ledger.lend(Entry(), link, X)
    assert (ledger.accounts, ledger.out) == ({}, 0)


def test_a_process_whose_connection_breaks_keeps_what_it_has() -> None:
    ledger, link, again, entry = Ledger[Entry](), Link(), Link(), Entry()
    ledger.lend(entry, link, X)
    link.closed = True
    assert ledger.out == 1
    assert ledger.returned(again, X) is entry
    assert ledger.out == 0


# ------------------------------------------------------------------------------------ the borrower's side
def test_the_first_ref_is_acknowledged_unless_the_reply_follows_it() -> None:
    borrower = Borrower("me")
    entry, other = Entry(), Entry(Y)
    assert borrower.met(entry, "owner", True, None) == 0
    assert borrower.unacknowledged == 0
    assert borrower.met(other, "owner", False, None) == 1
    assert borrower.unacknowledged == 1
    assert borrower.acknowledged(1) == []
    assert borrower.unacknowledged == 0
    assert borrower.acknowledged(1) == []


def test_what_waits_goes_on_with_the_acknowledgement() -> None:
    borrower, then = Borrower("me"), print
    entry = Entry()
    assert borrower.met(entry, "owner", True, then) == 1
    assert borrower.acknowledged(1) == [GoOn(then)]
    assert borrower.met_again(X, then) == [GoOn(then)]
    assert borrower.met_again(X, None) == []


def test_a_ref_that_comes_again_waits_for_the_acknowledgement_that_is_on_its_way() -> None:
    borrower, first, second = Borrower("me"), print, repr
    entry = Entry()
    borrower.met(entry, "owner", False, first)
    assert borrower.met_again(X, second) == []
    assert borrower.met_again(X, None) == []
    assert borrower.unacknowledged == 1
    borrower.validate()
    assert borrower.acknowledged(1) == [GoOn(first), GoOn(second)]
    assert borrower.unacknowledged == 0


def test_an_object_that_was_let_go_is_borrowed_anew() -> None:
    borrower = Borrower("me")
    borrower.met(Entry(), "owner", False, print)  # its entry ends here
    assert X not in borrower.objects
    entry = Entry()
    assert borrower.met(entry, "owner", False, repr) == 2
    assert borrower.acknowledged(1) == [GoOn(print)]
    assert borrower.met_again(X, str) == []
    assert borrower.acknowledged(2) == [GoOn(repr), GoOn(str)]


def test_an_object_that_is_lent_is_known_and_counted() -> None:
    borrower = Borrower("me")
    entry = Entry()
    borrower.lent(entry)
    assert borrower.objects[X] is entry
    assert borrower.met_again(X, print) == [GoOn(print)]


def test_an_owner_that_is_gone_fails_the_object() -> None:
    entry = Entry()
    assert Borrower("me").fetched(entry, None, False) == [FailObjects([entry], None)]


def test_a_value_is_asked_for_once() -> None:
    borrower, link = Borrower("me"), Link()
    entry = Entry()
    assert borrower.wants(entry)
    assert borrower.fetched(entry, link, True) == [Fetch(link, X, True)]
    assert not borrower.wants(entry)
    entry.form = 1
    assert not borrower.wants(entry)
    assert not borrower.wants(Entry(owner=None))


def test_a_lost_value_is_asked_for_once_more() -> None:
    borrower = Borrower("me")
    entry = Entry()
    entry.form, entry.fetching = 1, True
    assert borrower.lost(entry, "place")
    assert borrower.wants(entry)
    entry.form = 1
    assert not borrower.lost(entry, "place")  # the owner has no other
    assert entry.form == 1
    assert borrower.lost(entry, "another place")


@pytest.mark.parametrize("error", [None, OSError("broken")])
def test_the_end_of_an_owner_fails_what_has_no_value_and_nobody_waits_for_it(error: OSError | None) -> None:
    borrower = Borrower("me")
    pending, there, foreign = Entry(), Entry(Y), Entry(b"z", "other")
    there.form = 1
    borrower.met(pending, "owner", False, None)
    borrower.met(there, "owner", False, print)
    borrower.met(foreign, "other", False, None)
    out = borrower.died("owner") if error is None else borrower.broke("owner", error)
    assert out == [FailObjects([pending], error), GoOn(print)]
    assert (X in borrower.objects) == (error is None)
    assert borrower.unacknowledged == 1
    assert borrower.acknowledged(1) == []
    borrower.validate()


def test_the_end_of_the_session_fails_everything_and_nobody_waits() -> None:
    borrower, error = Borrower("me"), OSError("over")
    pending, there, token = Entry(), Entry(Y), Token()
    there.form = 1
    borrower.met(pending, "owner", False, None)
    borrower.met(there, "owner", False, None)
    borrower.handle_came(token, False, print)
    assert borrower.all_lost(error) == [FailObjects([pending], error), GoOn(print)]
    assert (borrower.unacknowledged, borrower.asks, borrower.asked) == (0, {}, {})


def test_handles_are_held_once_and_dropped_with_the_last() -> None:
    borrower, token, then = Borrower("me"), Token(), print
    assert borrower.handle_came(token, False, then) == [Hold(1, token.actor_id)]
    assert borrower.asks[1].process == NODE
    assert borrower.met_again(token.actor_id, then) == []
    assert borrower.handles_gone(token.actor_id) == []
    assert borrower.acknowledged(1) == [GoOn(then), GoOn(then)]
    del token
    assert borrower.handles_gone(b"actor") == [Drop(b"actor")]
    assert borrower.handles_gone(b"actor") == []


def test_a_handle_that_comes_before_the_drop_is_held_already() -> None:
    borrower = Borrower("me")
    borrower.handle_came(Token(), True, None)
    token = Token()
    assert borrower.handle_came(token, False, print) == [GoOn(print)]
    assert borrower.handles_gone(token.actor_id) == []


# ------------------------------------------------------------------------------------ several processes
class Wire(Link):
    """One end of a connection: `out` is on its way to the `other` end, in order."""

    def __init__(self, here: Process, there: Process) -> None:
        super().__init__(there.name)
        self.here, self.there = here, there
        self.out: deque[Any] = deque()
        self.other: Wire = self


class Guarded(Entry):
    """Tells its process when it ends, a little later."""

    link: Any = None
    process: Any = None

    def __del__(self) -> None:
        if self.link is not None:
            self.process.due.append((self.object_id, self.link))


class Process:
    """Owns objects, holds refs (entries, its own or borrowed ones), calls others with refs and answers with refs."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.lent: Ledger[Entry] = Ledger()
        self.pins: Ledger[list[Entry]] = Ledger()
        self.borrower = Borrower(name)
        self.exported: WeakValueDictionary[bytes, Any] = WeakValueDictionary()
        self.wires: dict[str, Wire] = {}
        self.refs: list[Entry] = []
        #: The arguments of calls that are not answered, and the calls that it is to answer.
        self.calls: dict[bytes, list[Entry]] = {}
        self.inbox: list[tuple[Wire, bytes, list[Entry]]] = []
        #: Entries that have ended and of which no owner was told.
        self.due: deque[tuple[bytes, Wire]] = deque()
        #: The processes that keep an object alive for this one until it is counted, by the object.
        self.passers: dict[bytes, set[str]] = {}

    def follow(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, FailObjects):
                for entry in instruction.entries:
                    entry.form = 0
            else:
                assert isinstance(instruction, GoOn)
                instruction.then()
        self.validate()

    def validate(self) -> None:
        self.lent.validate()
        self.pins.validate()
        self.borrower.validate()

    def link_to(self, name: str) -> Wire | None:
        wire = self.wires.get(name)
        if wire is None and self.world[name].alive:
            wire = self.world.connect(self, self.world[name])
        return wire

    def names(self, entries: list[Entry]) -> list[tuple[bytes, str]]:
        for entry in entries:
            if entry.owner is None:
                self.exported[entry.object_id] = entry
        return [(entry.object_id, entry.owner or self.name) for entry in entries]

    def adopt(self, wire: Wire, names: list[tuple[bytes, str]], task: bytes | None) -> list[Entry]:
        """Refs that have come: inside a reply, whose sender is told when they are counted, or among the arguments of a call."""
        left = len(names)
        if not wire.there.alive:
            self.world.excused.update(object_id for object_id, _owner in names)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                wire.out.append(("unpin", task))

        entries: list[Entry] = []
        for object_id, owner in names:
            then = None if task is None else one
            entry: Entry | None = self.exported.get(object_id) if owner == self.name else self.borrower.objects.get(object_id)
            if owner == self.name:
                assert entry is not None or self.world.is_excused(object_id), self.lent.accounts
                entry = entry or Entry(object_id, None)
                if then is not None:
                    then()
            elif entry is not None:
                if object_id in self.borrower.asked:
                    self.passers.setdefault(object_id, set()).add(wire.there.name)
                self.follow(self.borrower.met_again(object_id, then))
            else:
                entry = Guarded(object_id, owner)
                link = self.link_to(owner)
                entry.link, entry.process = link, self
                self.passers[object_id] = {wire.there.name}
                if link is not None:
                    number = self.borrower.met(entry, owner, link is wire, then)
                    link.out.append(("borrow", number, [object_id]))
                else:
                    entry.form = 0
                    if then is not None:
                        then()
            entries.append(entry)
        return entries

    def hear(self, wire: Wire, kind: str, *fields: Any) -> None:
        if kind == "borrow":
            number, object_ids = fields
            for object_id in object_ids:
                entry = self.exported.get(object_id)
                if entry is not None:
                    self.lent.lend(entry, wire, object_id)
                else:
                    assert self.world.is_excused(object_id), f"{object_id!r} was let go before {wire.there.name} had borrowed it"
                wire.there.passers.pop(object_id, None)
            if number and not wire.closed:
                wire.out.append(("borrowed", number))
        elif kind == "borrowed":
            self.follow(self.borrower.acknowledged(*fields))
        elif kind == "release":
            for object_id in fields[0]:
                self.lent.returned(wire, object_id)
        elif kind == "unpin":
            self.pins.returned(wire, fields[0])
        elif kind == "call":
            task, names = fields
            self.inbox.append((wire, task, self.adopt(wire, names, None)))
        else:
            task, names = fields
            self.calls.pop(task)
            if names:
                self.refs += self.adopt(wire, names, task)
        self.validate()

    # ------------------------------------------------------------------------------------ what it may do
    def put(self) -> None:
        self.refs.append(Entry(self.world.new_id(), None))

    def send_call(self, other: Process, arguments: list[Entry]) -> None:
        link = self.link_to(other.name)
        assert link is not None
        task = self.world.new_id()
        self.calls[task] = arguments
        link.out.append(("call", task, self.names(arguments)))

    def send_reply(self, keeps: bool, choose: Callable[[list[Entry]], list[Entry]]) -> None:
        """Answer the first call, keep its arguments or not, and return some of the refs that there are."""
        wire, task, arguments = self.inbox.pop(0)
        if keeps:
            self.refs += arguments
        results = choose([*self.refs, *arguments])
        if results:
            self.pins.lend(results, wire, task)
        if not wire.closed:
            wire.out.append(("reply", task, self.names(results)))

    def call(self, chance: random.Random) -> None:
        others = [other for other in self.world.values() if other is not self and other.alive]
        if others and self.refs:
            self.send_call(chance.choice(others), chance.sample(self.refs, min(len(self.refs), chance.randrange(1, 3))))

    def answer(self, chance: random.Random, most: int = 2) -> None:
        """Answer a call, unless an acknowledgement is missing."""
        if self.inbox and not self.borrower.unacknowledged:
            self.send_reply(chance.random() < 0.5, lambda known: chance.sample(known, min(len(known), chance.randrange(most + 1))))

    def forget(self, chance: random.Random) -> None:
        if self.refs:
            self.refs.pop(chance.randrange(len(self.refs)))

    def run_due(self) -> None:
        while self.due:
            object_id, link = self.due.popleft()
            if not link.closed:
                link.out.append(("release", [object_id]))


class World(dict[str, Process]):
    """Some processes, and the order in which messages arrive."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.numbers = 0
        self.excused: set[bytes] = set()
        for number in range(count):
            self[f"p{number}"] = Process(self, f"p{number}")

    def new_id(self) -> bytes:
        self.numbers += 1
        return self.numbers.to_bytes(4, "big")

    def is_excused(self, object_id: bytes) -> bool:
        return object_id in self.excused

    def connect(self, one: Process, two: Process) -> Wire:
        here, there = Wire(one, two), Wire(two, one)
        here.other, there.other = there, here
        one.wires[two.name], two.wires[one.name] = here, there
        return here

    def wires_with_mail(self) -> list[Wire]:
        return [wire for process in self.values() for wire in process.wires.values() if wire.out]

    def deliver(self, wire: Wire) -> None:
        """The first message arrives at the other end, if its process lives."""
        kind, *fields = wire.out.popleft()
        if wire.there.alive:
            wire.there.hear(wire.other, kind, *fields)

    def kill(self, name: str) -> None:
        """Its memory is gone; what it had sent before is read first."""
        dead = self[name]
        dead.alive = False
        for other in self.values():
            for object_id, passers in list(other.passers.items()):
                passers.discard(name)
                if not passers:  # nobody holds it for this process any more: that is nobody's fault
                    self.excused.add(object_id)
        for other in [process for process in self.values() if process.alive]:
            wire = other.wires.pop(name, None)
            if wire is not None:
                while wire.other.out:
                    self.deliver(wire.other)
                wire.closed = wire.other.closed = True
            other.lent.ended(name)
            other.pins.ended(name)
            other.follow(other.borrower.died(name))
        for wire in dead.wires.values():
            wire.there.inbox = [call for call in wire.there.inbox if call[0] is not wire.other]
        dead.wires.clear()

    def cut(self, wire: Wire) -> None:
        """A connection breaks, with all that is on its way, between two processes that live."""
        error = OSError("broken")
        self.excused |= {object_id for end in (wire, wire.other) for object_id in end.here.passers}
        for end in (wire, wire.other):
            end.closed = True
            end.out.clear()
            del end.here.wires[end.there.name]
        for end in (wire, wire.other):
            end.here.follow(end.here.borrower.broke(end.there.name, error))

    def check(self, told: str) -> None:
        """No object is gone that a living process holds, unless all that passed it on to that process have died meanwhile."""
        for process in self.values():
            if not process.alive:
                continue
            held = [*process.refs, *(entry for arguments in process.calls.values() for entry in arguments)]
            for entry in held:
                if entry.owner is not None and self[entry.owner].alive and not self.is_excused(entry.object_id):
                    assert entry.object_id in self[entry.owner].exported, f"{told}: {process.name} holds {entry.object_id!r}"

    def settle(self, chance: random.Random) -> None:
        """Everything arrives, and every call is answered, with nothing."""
        for _ in range(10_000):
            wires = self.wires_with_mail()
            if wires:
                self.deliver(chance.choice(wires))
            for process in self.values():
                if process.alive:
                    process.answer(chance, 0)
                    process.run_due()
            if not self.wires_with_mail() and not any(process.inbox or process.due for process in self.values() if process.alive):
                return
        raise AssertionError("somebody waits for ever")


def test_a_ref_from_two_processes_is_held_by_both_until_it_is_counted() -> None:
    world = World(4)
    owner, first, second, receiver = world.values()
    owner.put()
    for other in (first, second):
        owner.send_call(other, owner.refs)
        receiver.send_call(other, [])
        for wire in (owner.wires[other.name], receiver.wires[other.name]):
            world.deliver(wire)
        other.send_reply(True, lambda _known: [])
        other.send_reply(False, lambda known: known[:1])
        while other.wires[owner.name].out:
            world.deliver(other.wires[owner.name])
    owner.refs.clear()
    owner.calls.clear()
    for other in (first, second):
        world.deliver(other.wires[receiver.name])
    (wire,) = (wire for wire in world.wires_with_mail() if wire.out[0][0] == "borrow")
    assert world.wires_with_mail() == [wire]  # neither may let it go before that has arrived
    world.kill(first.name)
    second.refs.clear()
    second.run_due()
    world.deliver(wire)
    world.settle(random.Random(0))
    world.check("")
    assert list(owner.exported) == [receiver.refs[0].object_id]


@pytest.mark.parametrize("trouble", ["none", "deaths", "cuts"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_whatever_comes_no_object_is_gone_that_is_held_and_all_are_returned(count: int, trouble: str) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        world = World(count)
        told = f"seed {seed}"
        is_skewed = seed % 2
        for _ in range(150):
            living = [process for process in world.values() if process.alive]
            process = chance.choice(living)
            event = chance.random()
            if event < 0.12:
                process.put()
            elif event < 0.3:
                process.call(chance)
            elif event < 0.45:
                process.answer(chance)
            elif event < 0.6:
                process.forget(chance)
            elif event < 0.65:
                process.run_due()
            elif event < 0.98:
                # The first wires are fast ones: what passes by a slow one arrives by far too early.
                wires = world.wires_with_mail()
                if wires:
                    world.deliver(wires[int(len(wires) * chance.random() ** 4)] if is_skewed else chance.choice(wires))
            elif trouble == "deaths" and len(living) > 1 and event > 0.99:
                world.kill(process.name)
            elif trouble == "cuts" and process.wires:
                wire = chance.choice(list(process.wires.values()))
                for end in (wire, wire.other):  # the calls over it fail
                    end.here.inbox = [call for call in end.here.inbox if call[0] is not end]
                world.cut(wire)
            world.check(told)
        world.settle(chance)
        world.check(told)
        for process in world.values():
            process.refs.clear()
            process.calls.clear()
        world.settle(chance)
        living = [process for process in world.values() if process.alive]
        for process in living:
            assert process.borrower.unacknowledged == 0, told
            assert not process.borrower.asks, told
        if trouble == "cuts":  # the end of a process returns what its broken connections have left
            for process in living[1:]:
                world.kill(process.name)
            living = living[:1]
        for process in living:
            assert (process.lent.out, process.pins.out) == (0, 0), f"{told}: {process.name}; {process.lent.accounts}"
            assert not process.exported, told
