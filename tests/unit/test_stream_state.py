"""The decisions about the items of one generator, without a process."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from mray._common.event_log import InvalidTransitionError
from mray._decide.caller.call_records import CANCELLED
from mray._decide.caller.caller_instructions import Discard, FailPromised, Fill, Gather, Promise, Stop, Store, TellTaken
from mray._decide.caller.stream import ARRIVED, DROPPED, TAKEN, Stream


class Call:
    waiting = 0
    was_sent = False

    def __init__(self, retries: int = 0) -> None:
        self.retries = retries

    def use_retry(self) -> None:
        self.retries -= 1


class Link:
    def __init__(self) -> None:
        self.calls: dict[bytes, Any] = {}
        self.closed = False
        self.said: list[Any] = []


class Promised:
    """The ref of an item that had not come when it was given out."""

    value: Any = None

    def come(self, value: Any) -> None:
        assert self.value is None, f"{self.value}, and then {value}"
        self.value = value


class Stage:
    """A stream, whose instructions are carried out at once, and its reader."""

    def __init__(self, window: int = 0, together: int = 0, retries: int = 0) -> None:
        self.call = Call(retries)
        self.stream = Stream(self.call, b"\1" * 4, window, 1, together)
        self.discarded: list[Any] = []
        self.read: list[Any] = []
        self.gathered: list[Any] | None = None

    def follow(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Discard):
                assert instruction.item == instruction.number
                self.discarded.append(instruction.number)
            elif isinstance(instruction, Fill):
                assert instruction.item == instruction.number
                instruction.promise.come(instruction.item)
            elif isinstance(instruction, Store):
                assert instruction.items[0] == instruction.number
                self.follow(self.stream.stored(instruction.items))
            elif isinstance(instruction, Promise):
                self.stream.promised([Promised() for _ in range(instruction.missing)])
            elif isinstance(instruction, FailPromised):
                for promise in instruction.promises:
                    promise.come("end")
            elif isinstance(instruction, TellTaken):
                self.stream.link.said.append(instruction.taken)
            elif isinstance(instruction, Stop):
                self.stream.link.said.append("stop")
            else:
                assert isinstance(instruction, Gather)
                self.gathered = list(self.stream.items)
        self.stream.validate()

    def arrive(self, link: Link, first: int, count: int) -> None:
        """The value of each item is its number."""
        items = list(range(first, first + count))
        if self.stream.stores_directly(link, first):
            self.follow(self.stream.stored(items))
        else:
            self.follow(self.stream.arrived(link, first, items))

    def take(self) -> bool:
        if not self.stream.items:
            return False
        self.read.append(self.stream.items.popleft())
        self.stream.state[TAKEN] += 1
        self.follow(self.stream.taken())
        return True

    def look_ahead(self, count: int) -> list[Any]:
        self.follow(self.stream.looked_ahead(count))
        return [*self.stream.items, *self.stream.promises][:count]

    def end(self) -> None:
        self.follow(self.stream.ended())

    def drop(self) -> None:
        self.follow(self.stream.dropped())

    def promise(self) -> None:
        self.stream.promised([Promised(), Promised()])

    def values(self) -> list[Any]:
        return [item.value if isinstance(item, Promised) else item for item in self.read]


def test_items_flow_once_the_first_have_come() -> None:
    stage, link = Stage(), Link()
    assert not stage.stream.stores_directly(link, 0)
    stage.arrive(link, 0, 2)
    assert stage.stream.stores_directly(link, 2)
    assert not stage.stream.stores_directly(link, 1)
    assert not stage.stream.stores_directly(Link(), 2)
    stage.arrive(link, 2, 1)
    assert list(stage.stream.items) == [0, 1, 2]


@pytest.mark.parametrize(("again", "discarded"), [((0, 2), [0, 1]), ((1, 3), [1, 2]), ((2, 3), [2]), ((3, 1), [])])
def test_items_that_come_again_are_known_by_their_number(again: tuple[int, int], discarded: list[int]) -> None:
    stage = Stage()
    stage.arrive(Link(), 0, 3)
    stage.take()
    stage.arrive(Link(), *again)
    assert stage.discarded == discarded
    while stage.take():
        pass
    assert stage.read == list(range(max(3, sum(again))))


def test_promises_are_those_of_the_items_that_come_next() -> None:
    stage, link = Stage(), Link()
    stage.arrive(link, 0, 1)
    there, first, second = stage.look_ahead(3)
    assert there == 0
    assert stage.look_ahead(2) == [0, first]
    assert not stage.stream.stores_directly(link, 1)
    stage.arrive(link, 0, 2)
    assert (first.value, second.value) == (1, None)
    stage.arrive(link, 2, 2)
    while stage.take():
        pass
    assert stage.values() == [0, 1, 2, 3]


def test_the_end_fails_promises_and_makes_no_more() -> None:
    stage, link = Stage(), Link()
    stage.arrive(link, 0, 1)
    _there, promise = stage.look_ahead(2)
    stage.end()
    assert promise.value == "end"
    assert stage.look_ahead(3) == [0]
    stage.drop()
    assert link.said == []


def test_the_end_gathers() -> None:
    stage = Stage()
    stage.stream.gathers = True
    stage.arrive(Link(), 0, 2)
    stage.end()
    assert stage.gathered == [0, 1]


@pytest.mark.parametrize(
    ("window", "together", "told"), [(0, 0, []), (1, 0, [1, 2, 3, 4]), (2, 0, [1, 2, 3]), (4, 0, [1]), (0, 7, [1, 2, 3, 4])]
)
def test_a_producer_is_told_where_it_may_wait(window: int, together: int, told: list[int]) -> None:
    stage, link = Stage(window, together), Link()
    for number in range(0, 4, 2):
        stage.arrive(link, number, 2)
    while stage.take():
        pass
    assert link.said == told


def test_the_producer_of_the_next_attempt_is_told_once_it_has_begun() -> None:
    stage, first, second = Stage(window=1), Link(), Link()
    stage.stream.sent()
    stage.arrive(first, 0, 1)
    stage.stream.sent()
    stage.take()
    assert first.said == []
    stage.arrive(second, 1, 0)
    assert second.said == [1]


def test_the_producer_of_the_next_attempt_is_stopped_once_it_has_begun() -> None:
    stage, first, second = Stage(window=1), Link(), Link()
    stage.arrive(first, 0, 1)
    stage.stream.sent()
    stage.drop()
    assert first.said == []
    stage.arrive(second, 1, 0)
    assert second.said == ["stop"]


def test_after_the_end_nobody_is_told() -> None:
    stage, link = Stage(window=1), Link()
    stage.arrive(link, 0, 1)
    stage.end()
    stage.take()
    assert link.said == []


@pytest.mark.parametrize(("retries", "left"), [(0, 0), (3, 0), (-1, 0), (CANCELLED, CANCELLED)])
def test_the_call_of_a_dropped_stream_is_not_sent_again(retries: int, left: int) -> None:
    stage, link = Stage(retries=retries), Link()
    stage.arrive(link, 0, 2)
    stage.drop()
    assert (stage.call.retries, link.said) == (left, ["stop"])


def test_a_producer_that_begins_after_the_drop_is_stopped() -> None:
    stage, link = Stage(), Link()
    (promise,) = stage.look_ahead(1)
    stage.drop()
    stage.arrive(link, 0, 3)
    assert promise.value == 0
    assert stage.discarded == [1, 2]
    assert link.said == ["stop"]
    assert stage.stream.state[ARRIVED] == 3
    stage.end()


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (["arrive 1"], "Item 1 came while the stream of task 01010101 was at item 0."),
        (["end", "arrive 0"], "Item 0 came while the stream of task 01010101 was over after 0."),
        (["end", "end"], "The end came while the stream of task 01010101 was over after 0."),
        (["end", "promise"], "A promise of 2 items came while the stream of task 01010101 was over after 0."),
        (["drop", "drop"], "The end of the reader came while the stream of task 01010101 was dropped."),
    ],
)
def test_an_invalid_event_raises_with_the_event_log(events: list[str], told: str) -> None:
    stage = Stage()

    def play() -> None:
        for event in events:
            name, *first = event.split()
            stage.arrive(Link(), int(first[0]), 1) if first else getattr(stage, name)()

    with pytest.raises(InvalidTransitionError) as caught:
        play()
    assert told in str(caught.value)


def test_the_event_log_has_rare_events() -> None:
    stage = Stage(retries=1)
    stage.arrive(Link(), 0, 3)
    stage.take()
    stage.stream.sent()
    stage.arrive(Link(), 2, 2)
    stage.drop()
    assert str(stage.stream.event_log).splitlines()[1:] == ["  sent again at 3 0 1", "  items 2 to 4 came at 3", "  dropped at 1 of 4"]


class Producer:
    """An attempt of the call. Its items are on their way over its link; it is told nothing before it has begun."""

    def __init__(self, stage: Stage, link: Link, length: int) -> None:
        stage.stream.sent()
        self.stage = stage
        self.link = link
        link.said.clear()
        self.skipped, self.window, self.taken, self.stopped = stage.stream.state[:4]
        self.length = length
        self.began = False
        self.announced = False
        self.yielded = 0
        self.ended = False
        self.on_the_way: deque[tuple[int, int]] = deque()

    def deliver(self) -> bool:
        """Have the items arrive that were sent first."""
        if self.on_the_way:
            self.stage.arrive(self.link, *self.on_the_way.popleft())
            return True
        return False

    def listen(self) -> None:
        """Read what the caller has said."""
        for said in self.link.said:
            if self.began and said == "stop":
                self.stopped = True
            elif self.began:
                self.taken = said
        self.link.said.clear()

    def run(self, most: int) -> None:
        """Yield so many items, unless it has to wait, and end behind the last."""
        self.began = True
        first, count = max(self.yielded, self.skipped), 0
        for _ in range(most):
            if self.yielded and not self.stopped and self.window and self.yielded - self.taken >= self.window:
                if self.yielded <= self.skipped and not self.announced:
                    self.announced = True
                    self.on_the_way.append((self.skipped, 0))
                break
            if self.yielded == self.length or (self.stopped and self.yielded):
                self.ended = True
                break
            self.yielded += 1
            count += self.yielded > self.skipped
        if count:
            self.on_the_way.append((first, count))


@pytest.mark.parametrize("window", [0, 1, 3])
def test_whatever_comes_each_item_is_read_once_and_in_order(window: int) -> None:
    for seed in range(200):
        chance = random.Random(seed)
        length = chance.randrange(20)
        stage = Stage(window, retries=chance.choice([0, 5]))
        stream = stage.stream
        given: list[Any] = []
        producer = Producer(stage, Link(), length)

        for _ in range(chance.choice([20, 400])):
            event = chance.random()
            if event < 0.2:
                producer.run(chance.randrange(1, 4))
            elif event < 0.4:
                producer.deliver()
            elif event < 0.6:
                producer.listen()
            elif event < 0.8 and not stream.state[DROPPED]:
                stage.take()
            elif event < 0.9 and not stream.state[DROPPED]:
                given += (item for item in stage.look_ahead(chance.randrange(1, 4)) if isinstance(item, Promised))
            elif event < 0.94 and stage.call.retries > 0:
                stage.call.use_retry()
                link = Link()
                if chance.random() < 0.5:  # the attempt has failed, and its process runs the next one
                    while producer.deliver():
                        pass
                    link = producer.link
                producer = Producer(stage, link, length)
            elif event > 0.995 and not stream.state[DROPPED]:
                stage.drop()
        told: Any = "; ".join((f"seed {seed}", str(stream.event_log)))
        turns = 0
        while not (producer.ended and not producer.on_the_way):  # nobody waits for ever
            producer.run(1)
            producer.deliver()
            producer.listen()
            stage.take()
            turns += 1
            assert turns < 100, told
        dropped = stream.state[DROPPED]
        assert dropped or stream.state[ARRIVED] == length, told
        stage.end()
        while stage.take():
            pass
        values = stage.values()
        assert values == list(range(len(values))), told
        assert dropped or len(values) == length, told
        assert all(promise.value is not None for promise in given), told
