"""The rows of unanswered calls, which the parts of a process give to observers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mray._common.clock import Clock
from mray._runtime.client.actor_calls import ActorCallers
from mray._runtime.client.calls import Call
from mray._runtime.client.leases import LeasePools
from mray._runtime.client.replies import Replies

ACTOR = b"a" * 8


class Client:
    """As much of one as the parts need."""

    fatal = None

    def __init__(self) -> None:
        self.info = {"retry_delay": 0.0}
        self.peers: dict[str, Any] = {}
        self.client = self
        self.node = SimpleNamespace(send=lambda _message: None)
        self.from_node = self.from_peers = SimpleNamespace(on=lambda *_handlers: None)
        self.fail_answer = None
        self.waiting: dict[Call, None] = {}


def task(number: int) -> Call:
    return Call(number.to_bytes(4, "big"), (b"", b"", "module.f", None), 1, None)


def rows_of(each: Any) -> list[tuple[bytes, str, str, str]]:
    rows = [call.row(state, process) for call, state, process in each.calls()]
    assert each.count_calls() == len(rows)
    return [(row["task_id"], row["func_or_class_name"], row["state"], row["process"]) for row in rows]


def test_tasks_wait_for_a_worker_or_for_their_arguments() -> None:
    client: Any = Client()
    pools = LeasePools(client, client, client, str, Clock())
    queued, waits = task(1), task(2)
    pools.pool("key", {"resources": {"CPU": 2.0}}, False).submit(queued)
    client.waiting[waits] = None
    assert rows_of(pools) == [(queued.task_id, "f", "PENDING_NODE_ASSIGNMENT", ""), (waits.task_id, "f", "PENDING_ARGS_AVAIL", "")]
    assert queued.row("PENDING_NODE_ASSIGNMENT", "")["required_resources"] == {"CPU": 2.0}


def test_calls_of_an_actor_wait_in_its_queue() -> None:
    client: Any = Client()
    callers = ActorCallers(client, client, str)
    caller = callers.of(ACTOR)
    caller.class_name = "module.Actor"
    first, second = (Call(bytes([number]), "method", 1, None) for number in (1, 2))
    second.waiting = 1
    for call in (first, second):
        caller.submit(call)
    states = [(first.task_id, "PENDING_NODE_ASSIGNMENT"), (second.task_id, "PENDING_ARGS_AVAIL")]
    assert rows_of(callers) == [(task_id, "Actor.method", state, "") for task_id, state in states]
    assert caller.origin(first)["task"] == "Actor.method"


def test_a_call_that_was_sent_names_its_process() -> None:
    client: Any = Client()
    sent = task(1)
    client.peers["worker"] = SimpleNamespace(process="worker", calls={sent.task_id: sent})
    replies = Replies(client, client, client, client)
    assert rows_of(replies) == [(sent.task_id, "f", "SUBMITTED_TO_WORKER", "worker")]
