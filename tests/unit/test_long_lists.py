"""The refs that `wait` has left of a long list are known when they come again; values are awaited once, and nothing is kept for long."""

from __future__ import annotations

import gc
import random
import threading
import weakref

import pytest

from mray._api.backend import LONG_LIST
from mray._api.object_ref import ObjectRef
from mray._common.ids import new_object_id
from mray._objects.ownership import Entry, split_ready
from mray._runtime.client.long_lists import LongList, LongLists

LOCK = threading.RLock()


class Own(Entry):
    """An entry of this session."""


class Counted(Own):
    """An entry that counts how often somebody asks to be told of its value."""

    asked = 0

    def then(self, waiter):
        self.asked += 1
        return super().then(waiter)


class Stage:
    """The long lists of a process whose timers are called by hand."""

    def __init__(self) -> None:
        self.timers = []
        self.lists = LongLists(LOCK, lambda _seconds, callback: self.timers.append(callback))

    def pass_time(self) -> None:
        due, self.timers = self.timers, []
        for callback in due:
            callback()


def refs_of(entries):
    return [ObjectRef(new_object_id(), entry) for entry in entries]


def wait(stage, refs, number, own=Own):
    """As the client's `wait`, which does not wait."""
    found = stage.lists.find(refs, own)
    if found is None:
        ready, rest = split_ready(refs, number)
        stage.lists.keep(LongList(rest.copy()))
        return ready, rest
    with LOCK:
        places = found.take(number)
    ready, rest = found.split(places)
    stage.lists.keep(found)
    return ready, rest


@pytest.mark.parametrize("seed", range(8))
def test_a_list_that_is_known_gives_what_one_that_is_not_gives(seed):
    dice = random.Random(seed)
    stage = Stage()
    entries = [Own() for _ in range(LONG_LIST)]
    mine = theirs = refs_of(entries)
    while mine:
        number = dice.randrange(1, 4)
        for entry in dice.sample(entries, min(len(entries), dice.randrange(6))):
            entry.complete(0, b"")
        if dice.random() < 0.1:
            entry = dice.choice(entries)
            entry.form = None  # its value is lost, and made again
        if len(mine) > 40 and dice.random() < 0.3:
            more = refs_of([Own() for _ in range(dice.randrange(3))])
            entries += [ref._entry for ref in more]
            mine, theirs = mine + more, theirs + more
        if dice.random() < 0.1:
            mine = theirs = dice.sample(mine, len(mine))
        got, mine = wait(stage, mine, number)
        expected, theirs = split_ready(theirs, number)
        assert (got, mine) == (expected, theirs)
        entries = [ref._entry for ref in mine]


def test_each_value_of_a_list_is_awaited_once_however_often_the_list_is_waited_for():
    stage = Stage()
    entries = [Counted() for _ in range(2 * LONG_LIST)]
    refs = rest = refs_of(entries)
    for entry in reversed(entries):
        entry.complete(0, b"")
        ready, rest = wait(stage, rest, 1, Counted)
        assert [ref._entry for ref in ready] == [entry]
    assert not rest
    assert {ref._entry.asked for ref in refs[:-1]} == {1}


def test_lists_with_anything_else_in_them_are_not_known():
    stage = Stage()
    refs = refs_of([Own() for _ in range(LONG_LIST)])
    _ready, rest = wait(stage, refs, 1)
    assert stage.lists.has(rest)
    assert stage.lists.find([*rest, rest[0]], Own) is None
    for last in (3, ObjectRef(new_object_id()), refs_of([Entry()])[0]):
        _ready, rest = wait(stage, refs, 1)
        assert not stage.lists.has([*rest[:-1], last])
        assert not stage.lists.has([*rest, last])
        assert stage.lists.find([*rest[:-1], last], Own) is None
        assert stage.lists.find([*rest, last], Own) is None
    assert all(ref._entry.waiters is None for ref in refs)


def test_what_is_kept_is_dropped_when_nobody_waits_any_more():
    stage = Stage()
    entries = [Own() for _ in range(LONG_LIST)]
    refs = refs_of(entries)
    watched = weakref.ref(refs[-1])
    for _ in range(3):
        _ready, refs = wait(stage, refs, 1)
    assert entries[-1].waiters is not None
    del _ready, refs
    stage.pass_time()
    assert watched() is not None, "it was used since somebody looked"
    stage.pass_time()
    gc.collect()
    assert watched() is None
    assert all(entry.waiters is None for entry in entries)
    assert not stage.timers


def test_a_few_lists_are_kept():
    stage = Stage()
    lists = [refs_of([Own() for _ in range(LONG_LIST)]) for _ in range(10)]
    for refs in lists:
        wait(stage, refs, 1)
        wait(stage, refs, 1)
    assert [stage.lists.has(refs) for refs in lists] == [False] * 6 + [True] * 4
    assert all(ref._entry.waiters is None for refs in lists[:6] for ref in refs)
    stage.lists.clear()
    assert all(ref._entry.waiters is None for refs in lists for ref in refs)
