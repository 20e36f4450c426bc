"""The decisions about one process's calls to an actor, without a process."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mray._common import messages as m
from mray._common.causes import Cause
from mray._common.event_log import InvalidTransitionError
from mray._common.messages import ALIVE, DEAD, PENDING, RESTARTING
from mray._decide.caller.actor_queue import ASKED, UNKNOWN, ActorQueue
from mray._decide.caller.call_records import CANCELLED
from mray._decide.caller.caller_instructions import (
    Announce,
    AwaitRest,
    Cancel,
    Connect,
    Fail,
    FailDead,
    FailUnavailable,
    Send,
    Subscribe,
)
from tests.unit.pending import Link, Pending

CRASH = Cause(m.CAUSE_CRASH, "", 7, -9, None)


class Call(Pending):
    """A call of a method."""

    def __init__(self, number: int, waiting: int = 0, retries: int = 0) -> None:
        super().__init__(number, waiting, retries)
        self.was_sent = False
        self.sent = 0


class Stage:
    """An actor's queue, whose instructions are carried out at once; connections are made while `reachable`."""

    def __init__(self, **fields: Any) -> None:
        self.queue: ActorQueue[Call] = ActorQueue(b"\1" * 4)
        for name, value in fields.items():
            setattr(self.queue, name, value)
        self.calls: list[Call] = []
        self.sent: list[int] = []
        self.subscribed = 0
        self.announced: list[str] = []
        self.resting: list[list[Call]] = []
        self.reachable: OSError | bool = True

    def follow(self, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                call = instruction.call
                call.sent += 1
                self.sent.append(call.number)
                self.queue.link.calls[call.task_id] = call
            elif isinstance(instruction, Cancel):
                instruction.call.finish("cancelled")
            elif isinstance(instruction, Fail):
                instruction.call.finish(str(instruction.error))
            elif isinstance(instruction, FailDead):
                instruction.call.finish(f"dead {instruction.process}")
            elif isinstance(instruction, FailUnavailable):
                instruction.call.finish(f"unavailable {instruction.process}")
            elif isinstance(instruction, Connect):
                if isinstance(self.reachable, OSError):
                    self.follow(self.queue.unreachable(self.reachable))
                else:
                    self.follow(self.queue.connected(Link() if self.reachable else None))
            elif isinstance(instruction, Subscribe):
                self.subscribed += 1
            elif isinstance(instruction, AwaitRest):
                assert instruction.seconds == self.queue.rest
                self.resting.append(instruction.calls)
            else:
                assert isinstance(instruction, Announce)
                self.announced.append(self.queue.state)
        self.queue.validate()

    def call(self, waiting: int = 0, retries: int = 0) -> Call:
        call = Call(len(self.calls), waiting, retries)
        self.calls.append(call)
        self.follow(self.queue.submitted(call))
        return call

    def report(self, state: str, process: str = "", incarnation: int = 0) -> None:
        self.follow(self.queue.reported(state, process, incarnation, CRASH))

    def rest(self) -> None:
        """The first that rest have rested."""
        self.follow(self.queue.rested(self.resting.pop(0)))

    def fail_attempt(self, call: Call) -> None:
        del self.queue.link.calls[call.task_id]
        self.follow(self.queue.attempt_failed(call))

    def reply(self, call: Call) -> None:
        del self.queue.link.calls[call.task_id]
        call.finish("answered")

    def argument(self, call: Call) -> None:
        call.waiting -= 1
        if not call.waiting:
            self.follow(self.queue.arguments_came(call))


def alive(**fields: Any) -> Stage:
    stage = Stage(**fields)
    stage.follow(stage.queue.watched())
    stage.report(ALIVE, "w1")
    return stage


def test_the_first_call_asks_the_node_and_later_ones_do_not() -> None:
    stage = Stage()
    assert stage.queue.state == UNKNOWN
    stage.call()
    stage.call()
    assert (stage.queue.state, stage.subscribed, stage.sent) == (ASKED, 1, [])
    stage.report(PENDING)
    stage.report(ALIVE, "w1")
    assert stage.sent == [0, 1]
    assert stage.announced == [PENDING, ALIVE]
    assert stage.queue.watched() == []


def test_a_call_behind_one_that_waits_for_its_arguments_keeps_its_place() -> None:
    stage = alive()
    first = stage.call(waiting=2)
    stage.call()
    stage.argument(first)
    assert stage.sent == []
    stage.argument(first)
    assert stage.sent == [0, 1]


def test_where_order_does_not_matter_it_overtakes() -> None:
    stage = alive(unordered=True)
    first = stage.call(waiting=1)
    stage.call()
    assert stage.sent == [1]
    stage.argument(first)
    assert stage.sent == [1, 0]


def test_a_restart_sends_again_what_may_be_and_fails_the_rest() -> None:
    stage = alive()
    lost, retried, cancelled = stage.call(), stage.call(retries=2), stage.call(retries=1)
    waiting = stage.call(waiting=1)
    cancelled.retries = CANCELLED
    stage.report(RESTARTING)
    assert [lost.end, retried.end, cancelled.end, waiting.end] == ["unavailable w1", None, "cancelled", None]
    assert stage.call().end == "unavailable "
    stage.argument(waiting)
    assert waiting.end == "unavailable "
    stage.report(ALIVE, "w2", 1)
    assert retried.sent == 2
    stage.reply(retried)


def test_an_actor_that_dies_in_every_restart_uses_up_the_retries() -> None:
    stage = alive()
    call = stage.call(retries=2)
    for _ in range(2):
        assert call.end is None
        stage.report(RESTARTING)
    stage.report(RESTARTING)
    assert call.end == "unavailable "


def test_calls_that_were_made_before_the_first_process_outlive_its_failed_starts() -> None:
    stage = Stage()
    call = stage.call()
    stage.report(PENDING)
    stage.report(RESTARTING)
    stage.report(RESTARTING)
    stage.report(ALIVE, "w3", 2)
    assert call.sent == 1


def test_another_process_without_word_of_a_restart_is_a_restart() -> None:
    stage = alive()
    lost, retried = stage.call(), stage.call(retries=1)
    stage.report(ALIVE, "w2", 1)
    assert [lost.end, retried.end, retried.sent] == ["unavailable w1", None, 2]
    stage.report(ALIVE, "w2", 1)
    assert retried.sent == 2


def test_death_fails_everything_and_everything_later() -> None:
    stage = alive()
    sent, waiting = stage.call(retries=3), stage.call(waiting=1)
    stage.report(DEAD)
    assert [sent.end, waiting.end, stage.call().end] == ["dead w1", "dead ", "dead None"]
    stage.report(ALIVE, "w2", 1)  # said before the node was lost
    assert (stage.queue.state, stage.announced) == (DEAD, [ALIVE, DEAD])


def test_a_process_that_has_died_since_leaves_the_calls_to_the_nodes_next_report() -> None:
    stage = Stage(reachable=False)
    stage.reachable = False
    call = stage.call(retries=1)
    stage.report(ALIVE, "w1")
    assert call.end is None
    stage.reachable = True
    stage.report(RESTARTING)
    stage.report(ALIVE, "w2", 1)
    assert call.sent == 1


def test_without_descriptors_calls_fail_and_the_next_one_tries_again() -> None:
    stage = Stage()
    stage.reachable = OSError("no descriptor is left")
    call = stage.call()
    stage.report(ALIVE, "w1")
    assert call.end == "no descriptor is left"
    stage.reachable = True
    assert stage.call().sent == 1


def test_a_broken_connection_fails_what_waits_and_the_next_call_connects_again() -> None:
    stage = alive()
    waiting = stage.call(waiting=1)
    stage.queue.link.closed = True
    stage.follow(stage.queue.broke(OSError("broken")))
    assert waiting.end == "broken"
    assert stage.call().sent == 1


def test_a_full_queue_counts_what_is_sent_and_what_waits() -> None:
    stage = alive(most_pending=2)
    sent = stage.call()
    stage.call(waiting=1)
    assert stage.queue.is_full()
    stage.reply(sent)
    assert not stage.queue.is_full()


def test_a_cancelled_call_lets_those_behind_it_go() -> None:
    stage = alive()
    first = stage.call(waiting=1)
    stage.call()
    instructions = stage.queue.cancelled(first)
    assert instructions is not None
    stage.follow(instructions)
    assert stage.sent == [1]
    assert stage.queue.cancelled(first) is None


def test_calls_that_were_lost_rest_and_those_behind_keep_their_places() -> None:
    stage = alive(rest=2.0)
    lost = [stage.call(retries=2), stage.call(retries=1)]
    stage.report(RESTARTING, incarnation=1)
    stage.call(retries=1)
    stage.report(ALIVE, "w2", 1)
    stage.call()
    assert stage.sent == [0, 1]
    assert [stage.queue.rests(call) for call in stage.calls] == [True, True, False, False]
    stage.rest()
    assert stage.sent == [0, 1, 0, 1, 2, 3]
    assert [call.retries for call in lost] == [1, 0]


def test_lost_calls_of_an_actor_without_order_rest_and_others_overtake_them() -> None:
    stage = alive(rest=2.0, unordered=True)
    stage.call(retries=1)
    stage.report(RESTARTING, incarnation=1)
    stage.report(ALIVE, "w2", 1)
    stage.call()
    assert stage.sent == [0, 1]
    stage.rest()
    assert stage.sent == [0, 1, 0]


def test_a_lost_call_whose_next_process_dies_while_it_rests_is_not_charged_for_that() -> None:
    stage = alive(rest=2.0)
    call = stage.call(retries=1)
    stage.report(RESTARTING, incarnation=1)
    stage.report(ALIVE, "w2", 1)
    stage.report(RESTARTING, incarnation=2)
    stage.rest()
    stage.report(ALIVE, "w3", 2)
    assert (stage.sent, call.retries, call.end) == ([0, 0], 0, None)


def test_a_call_whose_method_has_raised_rests_and_others_overtake_it() -> None:
    stage = alive(rest=2.0, most_pending=2)
    first = stage.call(retries=2)
    stage.fail_attempt(first)
    stage.call()
    assert stage.sent == [0, 1]
    assert stage.queue.is_full()
    stage.rest()
    assert stage.sent == [0, 1, 0]
    assert (first.retries, stage.queue.rests(first)) == (1, False)


@pytest.mark.parametrize("there_again", [False, True])
def test_a_call_whose_method_has_raised_goes_to_the_process_that_there_is_when_it_has_rested(there_again: bool) -> None:
    stage = alive(rest=2.0)
    first = stage.call(retries=1)
    stage.fail_attempt(first)
    stage.report(RESTARTING, incarnation=1)
    if there_again:
        stage.report(ALIVE, "w2", 1)
        stage.rest()
    else:
        stage.rest()
        stage.report(ALIVE, "w2", 1)
    assert (stage.sent, first.retries, first.end) == ([0, 0], 0, None)


@pytest.mark.parametrize("aside", [False, True])
def test_a_call_that_rests_can_be_cancelled(aside: bool) -> None:
    stage = alive(rest=2.0)
    first = stage.call(retries=1)
    stage.call(retries=1)
    if aside:
        stage.fail_attempt(first)
    stage.report(RESTARTING, incarnation=1)
    instructions = stage.queue.cancelled(first)
    assert instructions == []
    stage.report(ALIVE, "w2", 1)
    while stage.resting:
        stage.rest()
    assert stage.sent == [0, 1, 1]


def test_the_death_of_the_actor_ends_what_rests() -> None:
    stage = alive(rest=2.0)
    calls = [stage.call(retries=1), stage.call(retries=1)]
    stage.fail_attempt(calls[0])
    stage.report(RESTARTING, incarnation=1)
    calls.append(stage.call())
    stage.report(DEAD)
    assert [call.end for call in calls] == ["dead w1", "dead ", "dead "]
    while stage.resting:
        stage.rest()


def test_a_call_to_an_actor_that_restarts_fails_when_it_has_waited() -> None:
    stage = alive(rest=2.0)
    stage.report(RESTARTING, incarnation=1)
    call = stage.call()
    argument = stage.call(waiting=1)
    stage.argument(argument)
    assert (call.end, argument.end, stage.queue.rests(call)) == (None, None, False)
    stage.rest()
    assert (call.end, argument.end) == ("unavailable ", None)
    stage.report(ALIVE, "w2", 1)
    assert (argument.end, stage.sent) == ("unavailable ", [])
    stage.rest()
    stage.call()
    assert stage.sent == [2]


def test_an_invalid_report_raises_with_the_event_log() -> None:
    stage = alive()
    with pytest.raises(InvalidTransitionError) as caught:
        stage.report(PENDING)
    assert "The report 'pending' came while the calls to actor 01010101 was alive." in str(caught.value)
    assert "asked -> alive w1 0" in str(caught.value)


@pytest.mark.parametrize("rest", [0.0, 1.0])
@pytest.mark.parametrize("unordered", [False, True])
def test_whatever_comes_every_call_ends_once_and_is_sent_as_often_as_it_may_be(unordered: bool, rest: float) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        stage = Stage(unordered=unordered, rest=rest)
        lives = 0
        for _ in range(60):
            link, state = stage.queue.link, stage.queue.state
            under_way = list(link.calls.values()) if link is not None else []
            event = chance.random()
            if event < 0.4:
                stage.call(waiting=chance.choice([0, 0, 1, 2]), retries=chance.choice([0, 0, 1, 3]))
            elif event < 0.55 and under_way:
                stage.reply(chance.choice(under_way))
            elif event < 0.7:
                waiting = [call for call in stage.calls if call.waiting and call.end is None]
                if waiting:
                    stage.argument(chance.choice(waiting))
            elif event < 0.75 and stage.queue.queue:
                call = chance.choice(list(stage.queue.queue))
                stage.follow(stage.queue.cancelled(call) or [])
                call.finish("cancelled")
            elif event < 0.8 and under_way:
                call = chance.choice(under_way)
                if call.retries > 0:
                    stage.fail_attempt(call)
            elif event < 0.82 and stage.resting:
                stage.rest()
            elif event < 0.83 and stage.queue.aside:
                call = chance.choice(list(stage.queue.aside))
                stage.follow(stage.queue.cancelled(call) or [])
                call.finish("cancelled")
            elif event < 0.85 and link is not None:
                link.closed = True
                for call in under_way:
                    call.finish("broken")
                link.calls.clear()
                stage.follow(stage.queue.broke(OSError("broken")))
            elif event < 0.97 and state != UNKNOWN:
                lives += state == ALIVE
                stage.report(RESTARTING if state == ALIVE else ALIVE, f"w{lives}", lives)
        if stage.queue.state == UNKNOWN:
            continue
        stage.report(DEAD)
        while stage.resting:
            stage.rest()
        for call in stage.calls:
            assert call.end is not None, (seed, call, str(stage.queue.event_log))
            assert call.sent <= 1 + call.most, (seed, call, str(stage.queue.event_log))
