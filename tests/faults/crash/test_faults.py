"""A process dies, in any way, at any point of its work: waiting threads get an error with its name and end, other work goes on, nothing
is left.

The table: victims x manners x phases. A row starts the driver program `program.py`, waits until the victim is in its phase,
does the harm, and looks at what the driver reports and at what remains of the session.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.full import some

#: Both ways of a node's start have their tests, and here it is by exec.
ANEW = True

SIGNALS = ("SIGKILL", "SIGSEGV", "SIGTERM")
MANNERS = (*SIGNALS, "os._exit")
PHASES = ("rest", "task", "put", "get", "stream", "graph")

#: Victims, manners and phases.
TABLE = [
    *((("worker", manner, phase)) for manner in MANNERS for phase in PHASES if phase != "graph"),
    *((("actor", manner, phase)) for manner in MANNERS for phase in PHASES),
    *((("driver", manner, phase)) for manner in MANNERS for phase in PHASES),
    *((("node", manner, phase)) for manner in SIGNALS for phase in PHASES),
    *((("zygote", manner, phase)) for manner in SIGNALS for phase in PHASES),
]

#: Each victim, each manner and each phase once: their combinations are in the crash matrix, whose driver is forked; here it is a program of
#: its own. With MRAY_TEST_FULL=1 all.
PLAYED = some(TABLE, lambda row: row[0], lambda row: row[1], lambda row: row[2])

#: The text of an error for each manner.
WORDS = {"SIGKILL": "SIGKILL", "SIGSEGV": "SIGSEGV", "SIGTERM": "SIGTERM", "os._exit": "exit"}
#: How a driver's process ends.
STATUS = {"SIGKILL": -signal.SIGKILL, "SIGSEGV": -signal.SIGSEGV, "SIGTERM": signal.SIGTERM, "os._exit": 3}


@pytest.mark.parametrize(("victim", "manner", "phase"), PLAYED, ids=["-".join(row) for row in PLAYED])
def test_a_death_is_told_to_who_waits_and_leaves_nothing(run, victim, manner, phase):
    run.start(victim, phase, manner)
    reached = int(run.wait_for("reached"))
    pid = run.pid_of(victim) if victim in ("node", "zygote") else run.pid if victim == "driver" else reached
    if manner == "os._exit":
        run.tell("exit")
    else:
        os.kill(pid, getattr(signal, manner))
    run.tell("harmed")
    if victim == "zygote":
        run.tell("release")
    status = run.wait()
    if victim == "driver":
        assert status == STATUS[manner]
    else:
        check_report(run, victim, manner, phase, pid)
        assert status == 0, run.output()
        assert "DONE" in run.said(), run.output()
    run.assert_nothing_left()


def check_report(run, victim, manner, phase, pid):
    """The driver's report: an error of the right class that names who and how, or no error at all."""
    said = run.said()
    assert "UNEXPECTED" not in said, run.output()
    if victim == "zygote":
        assert said.get("RESULT") == "released", run.output()
    elif victim == "worker" and phase == "rest":
        assert "ERROR" not in said, run.output()
    else:
        expected = {"worker": "WorkerCrashedError", "actor": "ActorDiedError", "node": "RayError"}[victim]
        assert expected in said.get("ERROR", "").split(","), run.output()
        if victim != "node":
            assert WORDS[manner] in said["TEXT"], run.output()
            assert str(pid) in said["TEXT"], run.output()
    assert said.get("REST") == "ok", run.output()


INTERRUPTED = """
import os
import sys
import threading
import time
import mray

mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote
class A:
    def hang(self):
        time.sleep(10_000)

a = A.remote()
main = threading.main_thread().ident

def reached():
    while "/mray/_" not in sys._current_frames()[main].f_code.co_filename:
        time.sleep(0.001)
    open(os.path.join(sys.argv[-1], "reached"), "w").close()

threading.Thread(target=reached).start()
mray.get([mray.remote(lambda: time.sleep(10_000)).remote(), a.hang.remote()])
"""


def test_a_driver_that_is_interrupted_impatiently_leaves_nothing(run_text):
    run = run_text(INTERRUPTED)
    run.wait_for("reached")
    for _ in range(3):
        try:
            os.kill(run.pid, signal.SIGINT)
        except ProcessLookupError:
            break
    assert run.wait() in (1, 130, -signal.SIGINT)
    run.assert_nothing_left()


STORM = """
import os, random, signal, sys, time

os.environ["MRAY_CANCEL_ON_INTERRUPT"] = "CANCELS"
import mray

def outcome(ref):
    try:
        return mray.get(ref, timeout=30)
    except mray.exceptions.TaskCancelledError:
        return "cancelled"

mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote
def f(i):
    return i

@mray.remote(num_cpus=0)
class A:
    def f(self, i):
        return i

actor = A.remote()
mray.get(actor.f.remote(0))
random.seed(7)
class Alarm(Exception):
    pass

def alarm(*_):
    raise Alarm

signal.signal(signal.SIGALRM, alarm if ALARM else lambda *_: signal.raise_signal(signal.SIGINT))

def call(round, refs):
    # A function of its own: to Python 3.14 the way back of a loop does not belong to the try around it.
    while True:
        refs.append((f if round % 2 else actor.f).remote(round))
        if len(refs) > 200:
            mray.get(refs)
            refs.clear()

for round in range(400):
    refs = []
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.004))
        call(round, refs)
    except (KeyboardInterrupt, Alarm):
        pass
    # A task may have been cancelled by the interrupt of a get that waited for it; a call of an actor never is.
    may_be = {round, "cancelled"} if CANCELS and round % 2 else {round}
    assert {outcome(ref) for ref in refs} <= may_be
open(sys.argv[-1] + "/done", "w").close()
mray.shutdown()
"""


@pytest.mark.parametrize(("cancels", "alarm"), [("0", False), ("1", False), ("0", True)], ids=["0", "1", "an-error-of-the-program's"])
def test_an_interrupt_at_any_moment_loses_no_call(run_text, cancels, alarm):
    run = run_text(STORM.replace("CANCELS", cancels).replace("ALARM", str(alarm)))
    assert run.wait() == 0, run.output()
    assert (run.folder / "done").exists()
    run.assert_nothing_left()


NO_ZYGOTE = """
import os, signal, threading, time
import mray
from mray._api.current import current_backend

mray.init(num_cpus=2, logging_level="ERROR")
node = current_backend()._session.node_pid

def kill_zygotes():
    while True:
        try:
            for pid in map(int, open(f"/proc/{node}/task/{node}/children").read().split()):
                if "zygote" in open(f"/proc/{pid}/comm").read():
                    os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            if not os.path.exists(f"/proc/{node}"):
                return
        time.sleep(0.01)

threading.Thread(target=kill_zygotes, daemon=True).start()

@mray.remote(runtime_env={"env_vars": {"A": "1"}})
def f():
    return 1

try:
    while True:
        mray.get(f.remote(), timeout=60)
except mray.exceptions.NodeDiedError:
    print("told")
"""


def test_a_node_that_can_start_no_worker_ends_the_session(run_text):
    run = run_text(NO_ZYGOTE)
    assert run.wait() == 0, run.output()
    assert "told" in run.output()
    run.assert_nothing_left()
