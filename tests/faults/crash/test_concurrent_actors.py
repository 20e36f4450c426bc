"""Actors that run hundreds of calls at once die too: each call is told, in `get` and in coroutines, and nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("concurrent_program.py")
KINDS = ("async", "threads", "group")


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_in_flight_is_told_of_the_actors_death(run, kind):
    run.start(kind, program=PROGRAM)
    os.kill(int(run.wait_for("reached")), signal.SIGKILL)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert said["ASYNCIO"] == "300 ActorDiedError", run.output()
    assert said["GET"] == "ActorDiedError", run.output()
    assert "SIGKILL" in said["TEXT"], run.output()
    assert "DONE" in said, run.output()
    run.assert_nothing_left()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_the_actor_when_its_driver_dies(run, kind):
    run.start(kind, program=PROGRAM)
    run.wait_for("reached")
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    run.assert_nothing_left()


def test_coroutines_of_the_driver_are_told_that_the_node_has_died(run):
    run.start("async", program=PROGRAM)
    run.wait_for("reached")
    os.kill(run.pid_of("node"), signal.SIGKILL)
    run.wait()
    assert run.said()["ASYNCIO"].startswith("300 "), run.output()
    assert "a value" not in run.said()["GET"], run.output()
    run.assert_nothing_left()
