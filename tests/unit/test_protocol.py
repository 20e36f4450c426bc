"""The table of messages is whole, and every process that gets a message has a handler that takes its fields."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mray._common import messages as m
from mray._common.invocations import ArgumentValue, MethodInvocation, TaskInvocation, read
from mray._common.messages import ANSWERING, CALLING, FROM_NODE, MESSAGES, NODE_TO_DRIVER, NODE_TO_WORKER, PEERS
from mray._common.protocol import misfit
from mray._ipc.connection import ProtocolViolationError
from mray._ipc.faults import message_name
from mray._runtime.connections.dispatch import Dispatch

ROOT = Path(__file__).resolve().parents[2]
#: Read by who joins, before anything is dispatched; by who looks on; on a channel of its own. And the message of sessions with several
#: drivers.
ELSEWHERE = {m.WELCOME, m.TOLD, m.INTRODUCED, m.NOT_INTRODUCED, m.LEFT}


def nothing(*_fields: object) -> None:
    """A handler."""


def test_a_message_that_no_process_may_send_here_gets_no_handler():
    with pytest.raises(ValueError, match="cannot be handled here"):
        Dispatch(FROM_NODE, {m.CALL: nothing})


def test_a_message_has_one_handler_until_it_is_replaced():
    dispatch = Dispatch(CALLING, {m.CALL: nothing})
    with pytest.raises(ValueError, match="is handled already"):
        dispatch.on({m.CALL: print})
    dispatch.replace(m.CALL, print)
    assert dispatch[m.CALL] is print
    with pytest.raises(ValueError, match="nothing to replace"):
        dispatch.replace(m.TASK, print)


def test_a_code_without_a_handler_is_a_protocol_error():
    with pytest.raises(ProtocolViolationError, match="is not for this process"):
        Dispatch(CALLING, {})[m.CALL]


def test_every_message_is_declared_once_behind_a_sentence_and_has_a_name():
    """Its fields stand in the declaration alone: no comment repeats them."""
    lines = Path(m.__file__).read_text().splitlines()
    declared = {}
    for before, line in itertools.pairwise(lines):
        if found := re.match(r"([A-Z_]+) = _message\(", line):
            assert re.match(r"#: .*\.$", before) and "#" not in line, line
            declared[found[1]] = getattr(m, found[1])
    assert {message_name(code): code for code in MESSAGES} == declared


def test_a_code_has_one_message():
    with pytest.raises(AssertionError, match=f"code {m.CALL} already has a message"):
        m._message(m.CALL, CALLING)


@pytest.mark.parametrize(
    "message",
    [
        (m.LEASE_REQUEST, 1, {"resources": {"CPU": 1.0}, "label": "task f"}),
        (m.ACTOR_CREATE, 1, b"a" * 16, {"resources": {}, "name": None}),
        (m.GROUP_CREATE, 1, b"g" * 18, {"bundles": [], "strategy": "PACK"}),
    ],
    ids=lambda message: message_name(message[0]),
)
def test_a_key_that_the_table_does_not_name_is_refused(message):
    assert misfit(message) == ""
    *fields, keys = message
    assert "cannot be" in misfit((*fields, {**keys, "unheard_of": 1}))


def test_who_calls_is_answered_the_other_way():
    assert {way[::-1] for way in CALLING} == ANSWERING
    assert all(declared.ways for declared in MESSAGES.values())


LISTING = """
import json, inspect
import mray
from mray._api.current import current_backend
from mray._common.messages import MESSAGES

def takes(handler, declared):
    try:
        inspect.signature(handler).bind("connection", *declared.fields)
    except TypeError as error:
        return str(error)
    return ""

def tables():
    client = current_backend().client
    client.tensors  # made late
    return {
        name: {code: takes(handler, MESSAGES[code]) for code, handler in table.items()}
        for name, table in (("node", client.from_node), ("peers", client.from_peers))
    }

mray.init(num_cpus=1, logging_level="ERROR")
print(json.dumps([tables(), mray.get(mray.remote(tables).remote())]))
mray.shutdown()
"""


@pytest.fixture(scope="module")
def tables():
    """Of a driver and of a worker: by code, what is wrong with the signature of its handler."""
    done = subprocess.run([sys.executable, "-c", LISTING], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    driver, worker = ast.literal_eval(done.stdout)
    return {"driver": driver, "worker": worker}


@pytest.mark.parametrize("role", ["driver", "worker"])
def test_whatever_a_process_may_be_told_it_handles_and_nothing_else(tables, role):
    others = NODE_TO_WORKER if role == "driver" else NODE_TO_DRIVER
    from_node = {code for code, declared in MESSAGES.items() if declared.ways & FROM_NODE and declared.ways != others}
    from_peers = {code for code, declared in MESSAGES.items() if any(way[1] == role for way in declared.ways & PEERS)}
    assert {int(code) for code in tables[role]["node"]} == from_node - ELSEWHERE
    assert {int(code) for code in tables[role]["peers"]} == from_peers - ELSEWHERE


@pytest.mark.parametrize("role", ["driver", "worker"])
def test_handlers_take_the_fields_that_are_declared(tables, role):
    assert {code: wrong for table in tables[role].values() for code, wrong in table.items() if wrong} == {}


@pytest.mark.parametrize(("code", "record"), [(m.CALL, MethodInvocation), (m.TASK, TaskInvocation)])
def test_records_have_the_fields_of_their_messages(code, record):
    assert record._fields == tuple(MESSAGES[code].fields)
    fields = tuple(None if name == "arguments" else number for number, name in enumerate(record._fields))
    assert read(record, fields) == record(*fields)
    values = [(0, 1, b"inline"), ("b", 2, b"elsewhere", b"object", "owner")]
    named = read(record, tuple(values if name == "arguments" else 0 for name in record._fields)).arguments
    assert named == [ArgumentValue(0, 1, b"inline", b"", ""), ArgumentValue("b", 2, b"elsewhere", b"object", "owner")]
    for wrong in (fields[1:], (*fields, 0)):
        with pytest.raises(TypeError, match=f"fields, not {len(wrong)}"):
            read(record, wrong)


def test_every_event_of_the_scheduler_takes_the_fields_of_its_message():
    from mray._decide.scheduler.message_events import EVENT_OF

    for code, make in EVENT_OF.items():
        fields = ("process", *MESSAGES[code].fields)
        assert inspect.signature(make).bind(*fields).args == fields
