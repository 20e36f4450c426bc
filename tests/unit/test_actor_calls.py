"""Calls of this process to one actor: their order, their answers, and the ends of the actor's processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mray._common import messages as m
from mray._runtime.client.actor_calls import ActorCaller
from mray._runtime.client.calls import Call
from mray.exceptions import ActorDiedError, ActorUnavailableError, TaskCancelledError
from tests.unit.stage import Peer, Stage, call_of, ref_of, reply, result, staged

ACTOR = b"a" * 16
CRASH = (m.CAUSE_CRASH, "it crashed", 7, -9)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def caller(stage: Stage) -> ActorCaller:
    return stage.client.actors.of(ACTOR)


def submit(stage: Stage, caller: ActorCaller, method: str, retries: int = 0, waiting: int = 0) -> Call:
    call = call_of(stage, method, retries)
    call.waiting = waiting
    with stage.client.lock:
        caller.submit(call)
    stage.deliver()
    return call


def report(stage: Stage, state: str, process: str = "", incarnation: int = 0, cause: Any = None) -> None:
    stage.tell(m.ACTOR_STATE, ACTOR, state, process, incarnation, cause)


def alive(stage: Stage, process: str = "first", incarnation: int = 0) -> Peer:
    peer = stage.peer(process)
    report(stage, m.ALIVE, process, incarnation)
    return peer


def methods(peer: Peer) -> list[str]:
    return [message[2] for message in peer.take(m.CALL)]


def test_calls_before_the_first_process_are_sent_to_it_in_order(stage: Stage, caller: ActorCaller) -> None:
    for method in "abc":
        submit(stage, caller, method)
    assert stage.node.take(m.ACTOR_SUBSCRIBE) == [(m.ACTOR_SUBSCRIBE, ACTOR)]
    report(stage, m.PENDING)
    peer = alive(stage)
    submit(stage, caller, "d")
    assert methods(peer) == ["a", "b", "c", "d"]


def test_each_reply_completes_its_own_call(stage: Stage, caller: ActorCaller) -> None:
    first, second = submit(stage, caller, "a"), submit(stage, caller, "b")
    peer = alive(stage)
    reply(peer, second.task_id, 2)
    stage.deliver()
    assert (result(first), result(second)) == (..., 2)
    reply(peer, first.task_id, 1)
    assert stage.client.objects.get([ref_of(first), ref_of(second)], None) == [1, 2]


@pytest.mark.parametrize(("unordered", "sent"), [(False, ([], ["a", "b"])), (True, (["b"], ["a"]))])
def test_a_call_with_a_pending_argument_holds_later_calls_of_an_ordered_actor(
    stage: Stage, caller: ActorCaller, unordered: bool, sent: tuple[list[str], list[str]]
) -> None:
    caller.learn({"allow_out_of_order_execution": unordered}, False)
    peer = alive(stage)
    held = submit(stage, caller, "a", waiting=1)
    submit(stage, caller, "b")
    assert methods(peer) == sent[0]
    held.waiting = 0
    with stage.client.lock:
        caller.ready(held)
    stage.deliver()
    assert methods(peer) == sent[1]


def test_calls_of_an_actor_that_dies_fail_with_its_cause_sent_or_not(stage: Stage, caller: ActorCaller) -> None:
    sent = submit(stage, caller, "sent")
    peer = alive(stage)
    queued = submit(stage, caller, "queued", waiting=1)
    report(stage, m.DEAD, "first", 0, CRASH)
    late = submit(stage, caller, "late")
    for call in (sent, queued, late):
        error = result(call)
        assert isinstance(error, ActorDiedError) and "it crashed" in str(error)
    assert methods(peer) == ["sent"]


def test_a_restart_repeats_calls_with_retries_in_order_and_fails_the_others(stage: Stage, caller: ActorCaller) -> None:
    first, once, second = submit(stage, caller, "a", 1), submit(stage, caller, "once"), submit(stage, caller, "b", -1)
    peer = alive(stage)
    assert methods(peer) == ["a", "once", "b"]
    report(stage, m.RESTARTING, "", 0, CRASH)
    assert isinstance(result(once), ActorUnavailableError)
    assert (result(first), result(second)) == (..., ...)
    another = alive(stage, "second", 1)
    assert methods(another) == ["a", "b"]
    assert (first.retries, second.retries) == (0, -1)


def test_an_attempt_that_failed_is_repeated_and_uses_a_retry(stage: Stage, caller: ActorCaller) -> None:
    call = submit(stage, caller, "a", 2)
    peer = alive(stage)
    peer.link.send((m.ATTEMPT, call.task_id))
    stage.deliver()
    assert methods(peer) == ["a", "a"] and call.retries == 1
    reply(peer, call.task_id, "done")
    stage.deliver()
    assert result(call) == "done"


def test_a_queued_call_that_is_cancelled_fails_here_and_a_sent_one_at_the_actor(stage: Stage, caller: ActorCaller) -> None:
    sent = submit(stage, caller, "sent")
    peer = alive(stage)
    queued = submit(stage, caller, "queued", waiting=1)
    for call in (sent, queued):
        stage.client.cancelling.cancel(ref_of(call), False, False)
    stage.deliver()
    assert isinstance(result(queued), TaskCancelledError) and result(sent) is ...
    assert peer.take(m.CANCEL) == [(m.CANCEL, sent.task_id, False, False)]


def test_a_lost_connection_to_a_live_actor_fails_its_calls_and_the_next_call_connects_again(stage: Stage, caller: ActorCaller) -> None:
    sent = submit(stage, caller, "sent")
    peer = alive(stage)
    peer.link.send((m.REFUSED, 24, "no descriptor is left"))
    stage.deliver()
    error = result(sent)
    assert isinstance(error, OSError) and "no descriptor is left" in str(error)
    methods(peer)
    again = submit(stage, caller, "again")
    assert methods(peer) == ["again"]
    reply(peer, again.task_id, 5)
    stage.deliver()
    assert result(again) == 5


def test_an_actor_is_full_at_its_most_pending_calls(stage: Stage, caller: ActorCaller) -> None:
    caller.learn({"max_pending_calls": 2}, False)
    submit(stage, caller, "a")
    assert caller.needs_check and not caller.actor.is_full()
    submit(stage, caller, "b")
    assert caller.actor.is_full()


def test_a_call_to_a_restarting_actor_and_an_attempt_that_failed_rest_first() -> None:
    with staged(retry_delay=2.0) as stage:
        caller = stage.client.actors.of(ACTOR)
        peer = alive(stage)
        repeated = submit(stage, caller, "repeated", 1)
        peer.link.send((m.ATTEMPT, repeated.task_id))
        stage.pass_time(1.0)
        assert methods(peer) == ["repeated"]
        stage.pass_time(1.5)
        assert methods(peer) == ["repeated"]
        report(stage, m.RESTARTING, "", 0, CRASH)
        refused = submit(stage, caller, "refused")
        began = stage.run_token.clock
        assert result(refused) is ...
        with pytest.raises(ActorUnavailableError):
            stage.client.objects.get_one(ref_of(refused), 100.0)
        assert 2.0 <= stage.run_token.clock - began < 3.0
