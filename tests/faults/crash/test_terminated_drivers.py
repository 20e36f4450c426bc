"""SIGTERM of a driver, as a batch system or a container sends it: the program ends in order, and its session with it."""

from __future__ import annotations

import os
import signal

import pytest

PROGRAM = """
import atexit, os, signal, sys, threading, time
import mray
from mray.dag import InputNode

how, folder = sys.argv[1:3]
began = os.path.join(folder, "began")
if how == "handled":
    handled = []
    signal.signal(signal.SIGTERM, lambda *_: handled.append(print("HANDLED yes", flush=True)))
mray.init(num_cpus=1, logging_level="ERROR")
atexit.register(print, "ATEXIT ran", flush=True)

class Block:
    def __enter__(self):
        pass
    def __exit__(self, kind, error, _trace):
        print("BLOCK", repr(error), flush=True)

@mray.remote
class Actor:
    def never(self, _value=None):
        time.sleep(1000)

actor = Actor.remote()
if how == "graph":
    with InputNode() as value:
        graph = actor.never.bind(value).experimental_compile()
try:
    with Block():
        open(began, "w").close()
        if how == "get":
            mray.get(actor.never.remote())
        elif how == "wait":
            mray.wait([actor.never.remote()])
        elif how == "graph":
            mray.get(graph.execute(1))
        elif how == "compute":
            while True:
                pass
        elif how == "handled":
            while not handled:
                time.sleep(0.01)
        else:
            time.sleep(1000)
finally:
    print("FINALLY", mray.get(mray.put(5)), flush=True)
"""


@pytest.mark.parametrize("how", ["get", "wait", "graph", "compute", "sleep"])
def test_sigterm_of_a_driver_ends_its_program_in_order_and_its_session(run_text, how):
    run = run_text(PROGRAM, how)
    run.wait_for("began")
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait() == signal.SIGTERM, run.output()  # what Ray ends with
    said = run.said()
    assert said["BLOCK"] == f"SystemExit({signal.SIGTERM.value})", run.output()
    assert (said["FINALLY"], said["ATEXIT"]) == ("5", "ran"), run.output()
    assert (run.folder / "stderr").read_text() == ""
    run.assert_nothing_left()


def test_a_programs_own_handler_of_sigterm_stays(run_text):
    run = run_text(PROGRAM, "handled")
    run.wait_for("began")
    os.kill(run.pid, signal.SIGTERM)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert (said["HANDLED"], said["BLOCK"], said["ATEXIT"]) == ("yes", "None", "ran"), run.output()
    run.assert_nothing_left()
