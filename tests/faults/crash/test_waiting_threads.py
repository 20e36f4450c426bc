"""Threads that wait while their program ends, or ends its session: they end without a word, or are told."""

from __future__ import annotations

import pytest

PROGRAM = """
import asyncio, sys, threading, time
import mray
from mray.dag import InputNode
from mray.util.queue import Queue

how, end = sys.argv[1:3]
mray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)

@mray.remote
class Actor:
    def __init__(self):
        self.gate = threading.Event()
    def never(self, _value=None):
        if not self.gate.wait(0.2 if end == "thread" else None):
            return "done"

actor = Actor.remote()
queue = Queue() if how == "queue" else None
if how == "graph":
    with InputNode() as value:
        graph = actor.never.bind(value).experimental_compile()
begun = threading.Event()

def wait():
    begun.set()
    if how == "get":
        return mray.get(actor.never.remote())
    if how == "wait":
        return mray.get(mray.wait([actor.never.remote()])[0][0])
    if how == "graph":
        return mray.get(graph.execute(1))
    if how == "queue":
        return queue.get()
    if how == "future":
        return actor.never.remote().future().result()
    if how == "often":
        while True:
            mray.get(mray.put(1))
    async def main():
        return await actor.never.remote()
    return asyncio.run(main())

def run():
    try:
        print("VALUE", wait(), flush=True)
    except Exception as error:
        print("ERROR", str(error).replace("\\n", " "), flush=True)
        raise SystemExit

thread = threading.Thread(target=run, daemon=end != "thread")
thread.start()
begun.wait()
time.sleep(0.1)
if end == "shutdown":
    mray.shutdown()
    thread.join()
print("MAIN over", flush=True)
"""

WAYS = ["get", "wait", "graph", "queue", "future", "asyncio", "often"]


@pytest.mark.parametrize("how", WAYS)
def test_threads_that_wait_end_without_a_word_when_the_program_ends(run_text, how):
    run = run_text(PROGRAM, how, "end")
    assert run.wait() == 0, run.output()
    assert run.said() == {"MAIN": "over"}, run.output()
    assert (run.folder / "stderr").read_text() == ""
    run.assert_nothing_left()


@pytest.mark.parametrize("how", [way for way in WAYS if way not in ("queue", "often")])
def test_threads_that_are_no_daemons_get_what_they_wait_for_before_the_program_ends(run_text, how):
    run = run_text(PROGRAM, how, "thread")
    assert run.wait() == 0, run.output()
    assert run.said() == {"MAIN": "over", "VALUE": "done"}, run.output()
    assert (run.folder / "stderr").read_text() == ""
    run.assert_nothing_left()


@pytest.mark.parametrize("how", [way for way in WAYS if way != "often"])  # the next call begins a session
def test_threads_that_wait_are_told_that_the_session_was_shut_down(run_text, how):
    run = run_text(PROGRAM, how, "shutdown")
    assert run.wait() == 0, run.output()
    assert "shut down" in run.said()["ERROR"], run.output()
    assert "node process has ended" not in run.said()["ERROR"]
    run.assert_nothing_left()
