"""Errors from outside, and finalizers that the collector runs, at the byte codes of mray's: a slice of them; all with MRAY_TEST_FULL=1.

The sweep (`sweep.py`) runs a round of work again and again and cuts it one byte code further each time. After each the next calls must give
right values, in order, and the error must have come once, in code of the user's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mray
from tests.forked import Interpreter
from tests.full import FULL

if FULL:
    pytestmark = pytest.mark.timeout(40_000)  # a session begins and ends at every byte code of both

SWEEP = Path(__file__).with_name("sweep.py")
#: Kind of work -> byte codes from one place to the next in a slice: some dozens of places of each.
KINDS = {
    "Graph": 5, "GraphOfArrays": 37, "GraphThatGrows": 43, "GraphInSeveral": 31, "GraphInLoop": 41, "Task": 37, "ActorCall": 37, "Put": 41,
    "Wait": 83, "Stream": 43, "OfQueue": 61, "OfActorPool": 61, "OfUnorderedPool": 61, "OfIdleActors": 3,
    "OfIterator": 3, "Proxy": 61, "Kill": 211, "Cancel": 61, "Compile": 701, "Finalize": 211, "Session": 9001,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> Iterator[Interpreter]:
    """The one that programs are forked from, but for those that sweep the start of a session, which is to be by exec."""
    interpreter = Interpreter("asyncio", "mray.proxy", "mray.util.queue")
    yield interpreter
    interpreter.close()


def check_sweep(interpreter: Interpreter, kind: str, manner: str) -> None:
    strides = RAISED_IN if manner.startswith("raise") else KINDS
    words = (str(SWEEP), kind, str(1 if FULL or manner == "async" else strides[kind]), manner)
    timeout = 36_000 if FULL else 300
    if kind == "Session":
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=timeout, check=False)
    else:
        done = interpreter.run(*words, timeout=timeout)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == {}, f"{len(found['wrong'])} of {found['tried']} places"
    assert found["late"] == []
    assert found["tried"] >= (2 if manner == "raise-in-thread" else 3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_handler_raises_cuts_nothing_of_mrays(interpreter: Interpreter, kind: str) -> None:
    check_sweep(interpreter, kind, "alarm")


@pytest.mark.parametrize("kind", ["Graph", "Task", "Stream", "Session"])
def test_an_interrupt_cuts_nothing_of_mrays(interpreter: Interpreter, kind: str) -> None:
    check_sweep(interpreter, kind, "interrupt")


@pytest.mark.parametrize("kind", ["Graph", "Task", "ActorCall", "Put", "Wait", "Stream", "OfQueue", "Finalize"])
def test_finalizers_that_the_collector_runs_may_call_anything(interpreter: Interpreter, kind: str) -> None:
    check_sweep(interpreter, kind, "collect")


@mray.remote(num_cpus=0, runtime_env={"env_vars": {"PYTHONPATH": str(SWEEP.parent)}})
class Sweeper:
    """An actor that is cut on its main thread."""

    def sweep(self, kind: str, stride: int) -> dict[str, Any]:
        import sweep

        found: dict[str, Any] = sweep.sweep(kind, stride, "alarm")
        return found

    def ping(self) -> str:
        return "pong"


@pytest.mark.parametrize("kind", ["ActorCall", "Graph", "Put", "Stream"])
def test_what_a_handler_raises_cuts_nothing_of_mrays_in_an_actor(kind: str) -> None:
    with mray.init(num_cpus=2, logging_level="ERROR"):
        sweeper = Sweeper.remote()
        found = mray.get(sweeper.sweep.remote(kind, 1 if FULL else KINDS[kind]), timeout=36_000 if FULL else 300)
        assert (found["wrong"], found["late"]) == ({}, [])
        assert found["tried"] >= 3
        assert mray.get(sweeper.ping.remote(), timeout=30) == "pong"


#: Kind -> places where Python looks for signals from one to the next in a slice.
RAISED_IN = {
    "Graph": 1, "GraphOfArrays": 3, "GraphThatGrows": 5, "GraphInSeveral": 2, "GraphInOwnLoop": 3, "Task": 3, "ActorCall": 3, "Put": 5,
    "Wait": 9, "Stream": 5, "OfQueue": 5, "Proxy": 5, "Kill": 61, "Cancel": 7, "Compile": 151, "Finalize": 23, "Session": 1001,
}  # fmt: skip


@pytest.mark.parametrize("kind", RAISED_IN)
@pytest.mark.parametrize("manner", ["raise", "raise-in-thread"])
def test_what_another_thread_raises_cuts_nothing_of_mrays(interpreter: Interpreter, kind: str, manner: str) -> None:
    check_sweep(interpreter, kind, manner)


@pytest.mark.parametrize("kind", ["Graph", "GraphInSeveral"])
def test_results_of_a_graph_are_not_shifted_by_what_another_thread_raises(interpreter: Interpreter, kind: str) -> None:
    check_sweep(interpreter, kind, "async")
