"""Calls that wait for each other are reported, or raise; others are left alone, however long they wait."""

from __future__ import annotations

from pathlib import Path

from tests.faults.crash.conftest import Run

PROGRAM = Path(__file__).with_name("deadlocks_program.py")
#: The waiting calls of each case.
STUCK = {
    "itself": {"Alone.go"},
    "two": {"Alone.ring"},
    "five": {"Alone.ring"},
    "task": {"Alone.through_task", "back"},
    "argument": {"Alone.through_argument"},
    "wait": {"Alone.through_wait"},
    "borrowed": {"Alone.late", "Alone.go"},
    "generator": {"Alone.items", "Alone.read"},
    "threads": {"Two.go_together"},
    "loop": {"Awaiting.block"},
    "coroutine": {"Alone.go_deep", "Awaiting.deep"},
    "step": {"step()"},
    "constructor": {"Eager.__init__"},
    "resources": {"Greedy.through_task"},
}
FREE = {
    "thread_left": "1",
    "group_left": "2",
    "coroutines": "[1, [3, None], 'slow']",
    "either": "slow",
    "both": "raised",
    "merely_slow": "slow",
    "queued_behind_slow": "1",
    "resources_returned": "1",
}
TEXT = "These calls wait for each other, and none of them can end:"


def test_calls_that_wait_for_each_other_raise_with_the_chain_where_the_setting_says_so(run: Run) -> None:
    run.start(*STUCK, program=PROGRAM, env={"MRAY_RAISE_DEADLOCKS": "1", "MRAY_WARN_WAITING": "0.2"})
    assert run.wait() == 0, run.output()
    said = run.said()
    for case, waiters in STUCK.items():
        assert said[case].startswith("waits: "), run.output()
        assert set(said[case].split()[1:]) == waiters, run.output()
    assert len(said["five"].split()) == 6
    assert TEXT not in run.output()  # the errors have said it
    run.assert_nothing_left()


def test_waits_that_may_end_do_so_without_a_word(run: Run) -> None:
    run.start(*FREE, program=PROGRAM, env={"MRAY_RAISE_DEADLOCKS": "1", "MRAY_WARN_WAITING": "0.1"})
    assert run.wait() == 0, run.output()
    assert {case: run.said()[case] for case in FREE} == FREE
    assert "wait for each other" not in run.output()


def test_a_cycle_is_reported_once_with_the_lines_and_the_error_of_a_timeout_has_it(run: Run) -> None:
    run.start("two", "driver", program=PROGRAM, env={"MRAY_WARN_WAITING": "0.2"})
    assert run.wait() == 0, run.output()
    text = run.said()["two"]
    assert "not ready after 1.0 s. It cannot end, because calls wait for each other:|Alone.ring (pid " in text, run.output()
    assert "|    return mray.get(method)|" in text
    printed = (run.folder / "stderr").read_text()
    assert printed.count(TEXT) == 1
    assert printed.count("return mray.get(method)") == 2
    assert "), which is queued behind Alone.ring (pid " in printed.replace("Alone.other", ")")
    assert "MRAY_RAISE_DEADLOCKS=1 raises an error instead" in printed


def test_without_the_warning_nothing_is_reported_and_a_timeout_names_a_call_behind_the_waiting_one(run: Run) -> None:
    run.start("itself", "limited", "driver", program=PROGRAM, env={"MRAY_WARN_WAITING": "0", "MRAY_RAISE_DEADLOCKS": "1"})
    assert run.wait() == 0, run.output()
    assert run.said()["itself"] == "Get timed out: some object(s) not ready after 1.0 s. Alone.go runs, or is about to."
    text = "Get timed out: some object(s) not ready after 0.2 s. Alone.other is queued behind the call that waits for it."
    assert run.said()["limited"] == text
    assert "wait for each other" not in (run.folder / "stderr").read_text()


LOG = """
import sys
import mray
from mray.util.state import get_log, list_workers

mray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)

@mray.remote
class Alone:
    def know(self, me):
        self.me = me
    def other(self):
        return 1
    def go(self):
        print("begun", file=sys.stderr, flush=True)
        return mray.get(self.me.other.remote())

actor = Alone.remote()
mray.get(actor.know.remote(actor))
try:
    mray.get(actor.go.remote(), timeout=2)
except mray.exceptions.GetTimeoutError:
    (worker,) = [worker for worker in list_workers(detail=True) if worker.worker_type == "WORKER"]
    for line in get_log(pid=worker.pid, suffix="err"):
        print("LOG", line.replace("\\n", "|"), flush=True)
mray.shutdown()
"""


def test_the_log_of_a_waiting_process_has_the_chain(run_text, run: Run) -> None:
    run_text(LOG, env={"MRAY_WARN_WAITING": "0.2"})
    assert run.wait() == 0, run.output()
    printed = (run.folder / "stdout").read_text()
    assert "begun" in printed, run.output()
    assert TEXT in printed
    assert "return mray.get(self.me.other.remote())" in printed
    assert TEXT not in (run.folder / "stderr").read_text()


TREE = """
import mray

mray.init(num_cpus=4, logging_level="ERROR")

@mray.remote(num_cpus=0.01)
def deeper(left):
    return mray.get(deeper.remote(left - 1)) if left else "the end"

print("VALUE", mray.get(deeper.remote(70)), flush=True)
print("AGAIN", mray.get(deeper.remote(70)), flush=True)
mray.shutdown()
"""


def test_a_tree_of_tasks_that_only_start_deeper_ones_is_reported_once(run_text, run: Run) -> None:
    run_text(TREE)
    assert run.wait() == 0, run.output()
    assert run.said() == {"VALUE": "the end", "AGAIN": "the end"}
    printed = (run.folder / "stderr").read_text()
    assert printed.count("Tasks start tasks and wait for them, ") == 1, printed
    assert "task deeper (pid " in printed
    assert ", which started ... (" in printed
