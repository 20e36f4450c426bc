"""There is no process or thread to be had, or what the zygote preloads misbehaves: nobody hangs, and who waits is told why."""

from __future__ import annotations

import json

import pytest

LIMITED = """
import os, sys
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote
def pid():
    return os.getpid()

@mray.remote(num_cpus=0)
class A:
    def pid(self):
        return os.getppid()

def one_more():
    # Not one of those that have been started for later.
    return A.options(runtime_env={"env_vars": {"NUMBER": os.urandom(4).hex()}}).remote()

full = sys.argv[1]
first = mray.get(pid.remote())
zygote = mray.get(one_more().pid.remote())
open(full, "w").close()
for _ in range(2):
    try:
        mray.get(one_more().pid.remote())
    except mray.exceptions.RayError as error:
        print("REFUSED", str(error).replace("\\n", " | "), flush=True)
print("SAME", mray.get(pid.remote()) == first, flush=True)
late = one_more().pid.remote()
os.unlink(full)
print("ZYGOTE", mray.get(late) == zygote, flush=True)
mray.shutdown()
"""

TRIED_AGAIN = """
import os, mray
mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote
def value():
    return 7

print("VALUE", mray.get(value.remote()), flush=True)
mray.shutdown()
"""

NO_THREAD = """
import os, threading
import mray

start = threading.Thread.start

def no_thread(self):
    raise RuntimeError("can't start new thread")

def open_files():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
            if "/libffi.so" not in name:  # which opens itself when ctypes makes its first callback, and stays so
                found[fd] = name
        except OSError:
            pass
    return found

before = open_files()
threading.Thread.start = no_thread
try:
    mray.init(num_cpus=1, logging_level="ERROR")
except Exception as error:
    print("DRIVER", type(error).__name__, str(error).replace("\\n", " | "), flush=True)
threading.Thread.start = start
print("LEFT", [name for fd, name in open_files().items() if fd not in before], flush=True)

mray.init(num_cpus=1, logging_level="ERROR")

def hook():
    threading.Thread.start = no_thread

@mray.remote
def value():
    return 7

try:
    mray.get(value.options(runtime_env={"worker_process_setup_hook": hook}).remote())
except Exception as error:
    print("WORKER", type(error).__name__, str(error).replace("\\n", " | "), flush=True)
print("VALUE", mray.get(value.remote()), flush=True)
mray.shutdown()
"""

#: Modules by what they do.
MODULES = {
    "prints": "print('said once', end='')",
    "raises": "raise ValueError('no good')",
    "exits": "import sys; sys.exit(3)",
    "interrupts": "raise KeyboardInterrupt",
    "threads": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "natives": "import ctypes; libc = ctypes.CDLL(None); ids = (ctypes.c_ulong * 2)()\n"
    "for i in (0, 8): libc.pthread_create(ctypes.byref(ids, i), None, libc.pause, None)",
    "leaks": "import os; fds = [os.open('/dev/null', os.O_RDONLY) for _ in range(50)]; closed = os.closerange",
    "children": "import os; child = os.fork()\nif not child: os._exit(5)",
}

PRELOADS = """
import os, sys
sys.path.insert(0, sys.argv[1])
import mray
mray.init(num_cpus=2, logging_level="ERROR", preload=sys.argv[2].split(","))

@mray.remote
class A:
    def loaded(self):
        return [name for name in NAMES if name in sys.modules]
    def large(self, value):
        return value

NAMES = sys.argv[2].split(",")
first, second = A.remote(), A.remote()
print("LOADED", mray.get(first.loaded.remote()), flush=True)
print("BOTH", mray.get([each.large.remote(b"x" * 1000000) for each in (first, second)]) == [b"x" * 1000000] * 2, flush=True)
mray.shutdown()
"""


def test_who_waits_for_a_process_that_cannot_be_forked_is_told_why_and_the_session_goes_on(run_text, tmp_path):
    full = str(tmp_path / "full")
    rules = [{"at": "about to fork", "in": "zygote", "while": full, "do": "EAGAIN"}]
    run = run_text(LIMITED, full, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    said = run.said()
    assert "could not fork: Resource temporarily unavailable" in said["REFUSED"], run.output()
    assert "ulimit -u" in said["REFUSED"]
    assert (said["SAME"], said["ZYGOTE"]) == ("True", "True"), run.output()
    run.assert_nothing_left()


def test_a_worker_that_cannot_be_forked_is_forked_when_it_can(run_text):
    rules = [{"at": "about to fork", "in": "zygote", "nth": nth, "do": name} for nth, name in ((1, "EAGAIN"), (2, "ENOMEM"), (3, "EAGAIN"))]
    run = run_text(TRIED_AGAIN, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    assert run.said()["VALUE"] == "7", run.output()
    run.assert_nothing_left()


def test_a_process_that_gets_no_thread_says_so_and_another_attempt_may_succeed(run_text):
    run = run_text(NO_THREAD)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert "The session could not be started" in said["DRIVER"] and "ulimit -u" in said["DRIVER"], run.output()
    assert said["LEFT"] == "[]", run.output()
    assert "can't start new thread" in said["WORKER"], run.output()
    assert said["VALUE"] == "7"
    run.assert_nothing_left()


def test_modules_that_misbehave_when_they_are_preloaded_keep_no_worker_from_working(run_text, tmp_path):
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text + "\n")
    run = run_text(PRELOADS, str(folder), ",".join(MODULES))
    assert run.wait() == 0, run.output()
    said = run.said()
    assert said["BOTH"] == "True", run.output()
    assert said["LOADED"] == str([name for name in MODULES if name not in ("raises", "exits", "interrupts")]), run.output()
    stderr = (tmp_path / "stderr").read_text()
    for name, why in (
        ("raises", "could not be imported: ValueError: no good"),
        ("exits", "could not be imported: SystemExit: 3"),
        ("interrupts", "could not be imported: KeyboardInterrupt"),
        ("threads", "has started a thread, which no forked process has: each worker imports it by itself"),
        ("natives", "has started 2 threads, which no forked process has: each worker imports it by itself"),
    ):
        assert f"preload: module {name!r} {why}" in stderr, run.output()
    assert stderr.count("has started") == 2, run.output()
    assert "said once" not in run.output()  # not each worker's word
    run.assert_nothing_left()


COMPUTES = """
import sys
sys.path.insert(0, sys.argv[1])
import mray
mray.init(num_cpus=2, logging_level="ERROR", preload=["colorsys", "model"])

@mray.remote(num_cpus=2)
def work(threads):
    import sys, torch
    if threads:
        torch.set_num_threads(threads)
    before = "model" in sys.modules, "colorsys" in sys.modules
    ones = torch.ones(800, 800)
    return *before, int((ones @ ones).relu().sum()), len(torch.sort(torch.randn(500_000))[0])

for threads in (0, 2, 4):
    print("WORK", mray.get(work.remote(threads)), flush=True)
mray.shutdown()
"""


def test_workers_compute_where_a_preloaded_module_has_computed_with_several_threads(run_text, tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "model.py").write_text(
        "import torch; torch.set_num_threads(4); W = torch.randn(800, 800); Y = (W @ W).relu().sum(); V = torch.sort(torch.randn(500_000))"
    )
    run = run_text(COMPUTES, str(folder))
    assert run.wait() == 0, run.output()
    assert run.said()["WORK"] == str((True, True, 800**3, 500_000)), run.output()
    assert "preload: module 'model' has started" in (tmp_path / "stderr").read_text(), run.output()
    run.assert_nothing_left()


def test_a_zygote_that_dies_of_what_it_preloads_ends_the_session_with_the_reason(run_text, tmp_path):
    (tmp_path / "dies.py").write_text("import os; os._exit(9)\n")
    program = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import mray
    try:
        mray.init(num_cpus=1, logging_level="ERROR", preload=["dies"])
        mray.get(mray.remote(lambda: 1).remote())
    except mray.exceptions.RayError as error:
        print("TOLD", str(error).replace("\\n", " | "), flush=True)
    mray.shutdown()
    """
    run = run_text(program)
    assert run.wait() == 0, run.output()
    told = run.said()["TOLD"]
    assert "has ended" in told and "the zygote cannot start: it exited with exit code 9" in told, run.output()
    assert "the zygote cannot start: it exited with exit code 9" in (tmp_path / "stderr").read_text(), run.output()
    run.assert_nothing_left()
