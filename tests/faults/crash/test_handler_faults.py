"""An exception in a handler ends something, and whoever waits is told what it was: every handler of every kind of process, once.

A row is a kind of process, where it hears (see the points of these names), a word, and the scene of `faults_program` in which that comes.
The handler raises at its first call. The scene must end within a bound, in what it ends in without that or in an error whose text has the
exception, and nothing is left of the session. A row whose handler was not called fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mray._common import messages as m
from mray._common.messages import MESSAGES
from tests.faults.crash.conftest import Run
from tests.full import some

PROGRAM = Path(__file__).with_name("faults_program.py")

#: By kind of process and place: scene -> the words that are raised at in it.
HEARD: dict[tuple[str, str], dict[str, str]] = {
    ("driver", "node received"): {
        "actors": "ANSWER WORKER_GONE",
        "tasks": "LEASE_GRANT",
        "queues": "LEASE_RECALL",
        "generators": "ACTOR_STATE",
        "objects": "HELD",
        "groups": "LEASE_REFUSED",
        "looks": "OUTPUT",
        "joined": "ENDING LEFT",
    },
    ("driver", "peer received"): {
        "actors": "ATTEMPT",
        "tasks": "LEAVING REPLIES REPLY",
        "generators": "STREAM_ITEMS",
        "graphs": "DESCRIPTOR GRAPH GRAPHED",
        "objects": "BORROW BORROWED FETCH OBJECT RELEASE",
        "looks": "ASK",
        "cancels": "CANCEL_OBJECT",
        "queues": "GIVEN_BACK",
    },
    ("node", "member received"): {
        "actors": "ACTOR_FAILED ACTOR_HOLD ACTOR_KILL EXITING NAME_LOOKUP",
        "tasks": "BLOCKED HELLO LEASE_REQUEST SHUTDOWN UNBLOCKED",
        "queues": "LEASE_CANCEL LEASE_RETURN",
        "generators": "ACTOR_CREATE ACTOR_DROP ACTOR_READY ACTOR_SUBSCRIBE",
        "groups": "GROUP_AWAIT GROUP_CREATE GROUP_REMOVE",
        "looks": "PASS_ON QUERY",
        "store": "SPILLED",
        "after_reset": "RESET",
        "hooked": "SETTING_UP",
    },
    ("node", "node received of zygote"): {"actors": "REAPED", "tasks": "SPAWNED NOT_SPAWNED"},
    ("zygote", "zygote received"): {"tasks": "SPAWN"},
    ("worker", "node received"): {
        "tasks": "EXIT",
        "generators": "ACTOR_START",
        "store": "TRIM_NOW",
        "actors@worker": "ANSWER WORKER_GONE",
        "tasks@worker": "LEASE_GRANT",
        "queues@worker": "LEASE_RECALL",
        "generators@worker": "ACTOR_STATE",
        "objects@worker": "HELD",
        "groups@worker": "LEASE_REFUSED",
    },
    ("worker", "peer received"): {
        "tasks": "FUNCTION FUNCTION_OVER HELLO LEASED TASK",
        "objects": "ABSENT FREE_SEGMENT UNPIN",
        "looks": "ASK",
        "cancels": "CANCEL",
        "queues": "RECLAIM",
        "actors@worker": "ATTEMPT",
        "tasks@worker": "LEAVING REPLY REPLIES",
        "queues@worker": "GIVEN_BACK",
        "generators@worker": "STREAM_ITEMS",
        "graphs@worker": "DESCRIPTOR GRAPH GRAPHED",
        "objects@worker": "BORROW BORROWED FETCH OBJECT RELEASE",
        "cancels@worker": "CANCEL_OBJECT",
    },
    ("worker", "main thread received"): {"tasks": "EXIT FUNCTION FUNCTION_OVER LEASED TASK", "generators": "ACTOR_START"},
    ("actor", "node received"): {
        "actors": "ACTOR_STATE EXIT HELD",
        "actors@actor": "ANSWER WORKER_GONE",
        "tasks@actor": "LEASE_GRANT",
        "queues@actor": "LEASE_RECALL",
        "groups@actor": "LEASE_REFUSED",
    },
    ("actor", "peer received"): {
        "actors": "REPLY",
        "generators": "CALL HELLO STREAM_STOP STREAM_TAKEN",
        "graphs": "DESCRIPTOR GRAPH GRAPHED",
        "objects": "BORROW BORROWED FETCH FREE_SEGMENT OBJECT RELEASE UNPIN",
        "tensors": "TENSORS_BROUGHT TENSORS_FETCH TENSORS_FREE",
        "looks": "ASK",
        "devices": "TENSORS_DONE",
        "actors@actor": "ATTEMPT",
        "tasks@actor": "LEAVING REPLIES",
        "generators@actor": "STREAM_ITEMS",
        "cancels@actor": "CANCEL_OBJECT",
        "queues@actor": "GIVEN_BACK",
    },
    ("actor", "main thread received"): {"actors": "EXIT", "generators": "CALL", "graphs": "GRAPH"},
}
#: Points in the middle of handlers, when what they are about has been taken out of one table and is in no other, and callbacks.
MIDWAY: dict[str, dict[str, str]] = {
    "driver": {
        "tasks": "reply come,lease granted,task noted,callback due",
        "queues": "tasks given back,lease given up",
        "actors": "actor state received,lease lost,peer gone",
        "objects": "object fetched,borrow counted,borrow noted",
        "generators": "items come",
    },
    "node": {
        "tasks": "instruction due,member known,member welcomed,worker born,worker ordered,callback due",
        "actors": "worker reaped,death received",
    },
    "worker": {
        "tasks": "peer gone,callback due,task unpacked,exit told",
        "objects": "reply pinned,borrow counted,result frozen",
    },
    "actor": {"generators": "items due", "objects": "borrow noted,object fetched"},
}
#: Words without a row, and why.
NOT_HEARD = {
    "REFUSED": "hangs up, whatever happens; comes where no descriptor is left (test_descriptors)",
    "PROTOCOL_ERROR": "hangs up, whatever happens; comes where a peer is damaged (tests/fuzz)",
    "FAULT": "hangs up, whatever happens; comes in every row in which a conversation ends",
    "WELCOME": "is read by who joins, where it raises",
    "PASSED": "comes to observers, as TOLD",
    "INTRODUCE": "has a channel of its own, which the reactor watches: the session ends",
    "INTRODUCED": "is read by who has asked, where it raises",
    "NOT_INTRODUCED": "as INTRODUCED",
    "TOLD": "comes to observers, which read it themselves and raise what they meet",
    "SAVE": "comes to workers whose lines are counted, and at the end of a session that is kept: they die at once",
    "OFFER_RING": "comes after 64 calls that were waited for one by one; a ring pair that is not had is done without (test_ring_pairs)",
    "TAKE_RING": "as OFFER_RING",
    "RETIRE_RING": "comes when a process has more than 16 pairs that talk (test_ring_pairs)",
    "NUDGE": "has no handler that does anything",
    "LOAD": "comes to a template, which forks nodes: a driver without one starts its node by exec (tests/plugin/test_template)",
    "FORK": "as LOAD",
    "REAP": "as LOAD",
    "DONE": "is read by who has asked, where it raises",
    "FENCE": "has no handler that does anything but answer",
    "MAKE_ROOM": "comes where memory is full (test_full_memory)",
    "KILL_ME": "comes from a worker with a GPU whose task is cancelled with force (test_mps)",
    "PRELOAD_FAILED": "comes where a preloaded module cannot be had (test_supervisor)",
    "LONG_WAIT": "comes from waits that last for long (test_deadlocks), whose end does not depend on it",
    "WAITS_ASKED": "as LONG_WAIT",
    "WAITS_TOLD": "as LONG_WAIT",
    "STUCK": "as LONG_WAIT",
    "LEASE_BREAK": "comes after a fault: each row asks whether what was leased is free again",
}
#: Seconds in which a scene must have ended.
BOUND = 60.0
#: A word may come too late to be waited for in one run; then it has to come in another.
RUNS = 4


class Row(NamedTuple):
    process: str
    point: str
    scene: str

    @property
    def place(self) -> str:
        """Where it hears; "" midway."""
        place, received, _word = self.point.partition(" received")
        return place if received else ""

    def __str__(self) -> str:
        *place, code = self.point.split(" ")
        return f"{self.process}-{' '.join(place)}-{NAMES[int(code)]}" if code.isdigit() else f"{self.process}-{self.point}"


NAMES = {getattr(m, name): name for words in HEARD.values() for said in words.values() for name in said.split()}
NAMES |= {getattr(m, name): name for name in NOT_HEARD}


def rows() -> Iterator[Row]:
    for (process, place), scenes in HEARD.items():
        for scene, words in scenes.items():
            for word in words.split():
                yield Row(process, f"{place} {getattr(m, word)}", scene)
    for process, several in MIDWAY.items():
        for scene, names in several.items():
            for name in names.split(","):
                yield Row(process, name, scene)


#: Each place of each kind of process, a point of each kind, each scene by somebody. With MRAY_TEST_FULL=1 all.
PLAYED = some(list(rows()), lambda row: (row.process, row.place), lambda row: row.scene.partition("@")[0])


def test_every_word_has_a_row_or_a_reason() -> None:
    received = {word for scenes in HEARD.values() for words in scenes.values() for word in words.split()}
    assert received.isdisjoint(NOT_HEARD)
    assert received | NOT_HEARD.keys() == {NAMES[code] for code in MESSAGES}


@pytest.mark.parametrize("row", PLAYED, ids=str)
def test_a_handler_that_raises_ends_something_and_whoever_waits_is_told(row: Row, tmp_path: Path) -> None:
    for attempt in range(RUNS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        if play(row, folder):
            return
    pytest.fail(f"in {RUNS} runs of {row.scene} nothing came to {row}")


def play(row: Row, folder: Path) -> bool:
    """Play the scene once; whether the handler was called."""
    once = folder / "once"
    rules: list[dict[str, Any]] = [{"at": row.point, "in": row.process, "do": "raise", "once": str(once)}]
    if row.point.endswith(f" {m.NOT_SPAWNED}"):
        rules.append({"at": "about to fork", "do": "EAGAIN", "once": str(folder / "failed")})
    run = Run(folder)
    try:
        run.start(row.scene, program=PROGRAM, env={"MRAY_POINTS": json.dumps({"rules": rules})})
        run.wait_for("begun")
        assert run.wait() == 0, run.output()
        said = (folder / "stdout").read_text().splitlines()
        assert said[-1] == "END", run.output()
        assert not any(line.startswith("leaked ") for line in said), run.output()
        if not once.exists():
            assert "value" in said, run.output()
        elif "value" not in said:
            assert any("raised at the point" in line for line in said if line.startswith(("error ", "init "))), run.output()
        run.assert_nothing_left()
        return once.exists()
    finally:
        run.close()
