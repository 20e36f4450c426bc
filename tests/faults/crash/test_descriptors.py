"""A process of a session runs out of file descriptors: whoever waits is told which, and what to do, and all goes on once there are some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("descriptors_program.py")
#: Descriptors that a start by exec needs are among those that are refused.
ANEW = True


@pytest.mark.parametrize("process", ["init", "driver", "worker", "node"])
def test_with_descriptors_for_less_and_less_of_it_each_failure_is_told_and_nothing_is_lost(run, process):
    run.start(process, program=PROGRAM)
    assert run.wait() == 0, run.output()
    told = json.loads(run.said()["TOLD"])
    assert told.pop("left", []) == []
    for what, event_log in told.items():
        assert event_log["works"] is not None, (what, event_log)
        # A call may go over a connection that is there, with a segment that is there.
        assert event_log["errors"] or what in ("task", "actor"), f"{what} was to fail with no descriptor at all"
        for error in event_log["errors"]:
            assert "Too many open files" in error, (what, error)
            assert "ulimit -n" in error, (what, error)
    run.assert_nothing_left()


def test_in_a_system_without_room_for_open_files_whatever_cannot_be_opened_is_told_and_nothing_is_left(run):
    run.start("system", program=PROGRAM)
    assert run.wait() == 0, run.output()
    told = json.loads(run.said()["TOLD"])
    for call, event_log in told.items():
        # A session opens nothing with some of these calls, or goes on without.
        assert event_log["errors"] or event_log["works"] == 9, (call, event_log)
        for error in event_log["errors"]:
            assert "Too many open files in system: raise fs.file-max" in error, (call, error)
    assert {"openat", "socket", "eventfd2", "epoll_create1", "pipe2"} <= {call for call, event_log in told.items() if event_log["errors"]}
    run.assert_nothing_left()


PEERS = """
import os, resource
import mray, mray.dag

mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def pid(self):
        return os.getpid()
    def starve(self):
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, self.limits[1]))
    def recover(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)
    def keep(self):
        return [mray.put(b"x" * 10)]
    def ask(self, other):
        return mray.get(other.pid.remote())
    def read(self, refs):
        return mray.get(refs[0])
    def run(self, first, second):
        with mray.dag.InputNode() as value:
            graph = second.echo.bind(first.echo.bind(value)).experimental_compile()
        try:
            return graph.execute(7).get()
        finally:
            graph.teardown()
    def echo(self, value):
        return value

def told(what, ref):
    try:
        print(what, repr(mray.get(ref)), flush=True)
    except Exception as error:
        print(what, f"{type(error).__name__} {error}".replace("\\n", " | "), flush=True)

starved, other = A.remote(), A.remote()
print("PID", mray.get(starved.pid.remote()), flush=True)
refs = mray.get(starved.keep.remote())
mray.get(other.pid.remote())
mray.get(starved.starve.remote())
told("CALL", other.ask.remote(starved))
told("OBJECT", other.read.remote(refs))
told("GRAPH", other.run.remote(starved, A.remote()))
told("OPEN", starved.pid.remote())  # over the connection that is there
mray.get(starved.recover.remote())
print("CALLED", mray.get(other.ask.remote(starved)), flush=True)
print("READ", mray.get(other.read.remote(refs)), flush=True)
print("RAN", mray.get(other.run.remote(starved, A.remote())), flush=True)
mray.shutdown()
"""


def test_who_asks_an_actor_without_descriptors_for_the_first_time_is_told_so_at_once(run_text):
    run = run_text(PEERS)
    assert run.wait() == 0, run.output()
    said = run.said()
    pid = said["PID"]
    for what in ("CALL", "OBJECT", "GRAPH"):
        assert "Too many open files" in said[what], (what, run.output())
        assert f"(pid {pid}) has no file descriptor left to answer with" in said[what], (what, run.output())
        assert "ulimit -n" in said[what]
    assert said["OPEN"] == said["CALLED"] == pid
    assert said["READ"] == repr(b"x" * 10)
    assert said["RAN"] == "7"
    run.assert_nothing_left()


MANY_GRAPHS = """
import os, resource, sys
import mray
from mray.dag import InputNode, MultiOutputNode

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def echo(self, value):
        return value
    def starve(self, free):
        used = [int(name) for name in os.listdir("/proc/self/fd")]
        limit = next(limit for limit in range(4096) if limit - sum(fd < limit for fd in used) == free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

def graph():  # two rings with two readers each: one that the actor reads, and one that it writes
    with InputNode() as value:
        passed = starved.echo.bind(value)
        return MultiOutputNode([other.echo.bind(value), other.echo.bind(passed), third.echo.bind(passed)]).experimental_compile()

starved, other, third = actors = [A.remote() for _ in range(3)]
mray.get([actor.echo.remote(0) for actor in actors])
FREE, SPARE = 10, 3
mray.get(starved.starve.remote(FREE))
# A mapping keeps a descriptor before Python 3.13.
graphs = [graph() for _ in range(30 if sys.version_info >= (3, 13) else FREE - SPARE)]
for number, each in enumerate((*graphs, *graphs)):
    assert mray.get(each.execute(number)) == [number] * 3
print("GRAPHS", len(graphs), flush=True)
mray.kill(other)
for each in graphs:
    try:
        mray.get(each.execute(1))
    except mray.exceptions.ActorDiedError as error:
        print("TOLD", error.actor_id == other._actor_id.hex(), flush=True)
mray.shutdown()
"""


def test_an_actor_with_few_descriptors_left_spends_none_on_waking_others_and_has_as_many_graphs(run_text):
    run = run_text(MANY_GRAPHS)
    assert run.wait() == 0, run.output()
    assert int(run.said()["GRAPHS"]) >= 7
    assert run.said()["TOLD"] == "True"
    run.assert_nothing_left()


PRINTS = """
import glob, os, resource, sys, time
import mray
from mray._api.current import current_backend

session = mray.init(num_cpus=1, logging_level="ERROR")
logs = os.path.join(session.address_info["session_dir"], "logs", "worker-*.out")

@mray.remote
class Speaker:
    def say(self, text):
        print(text, flush=True)

def text_of(*paths):
    return "".join(open(path).read() for path in paths)

def until(condition):
    while not condition():
        time.sleep(0.005)

node = current_backend().client.info["node_pid"]
speaker = Speaker.remote()
mray.get(speaker.__ray_ready__.remote())
limits = resource.prlimit(node, resource.RLIMIT_NOFILE)
resource.prlimit(node, resource.RLIMIT_NOFILE, (3, limits[1]))
speaker.say.remote("without")
until(lambda: "without" in text_of(os.path.join(sys.argv[-1], "stdout")))
resource.prlimit(node, resource.RLIMIT_NOFILE, limits)
speaker.say.remote("with")
until(lambda: "with" in text_of(*glob.glob(logs)))
print("LOGGED", text_of(*glob.glob(logs)).split(), flush=True)
mray.shutdown()
"""


def test_what_a_worker_prints_is_shown_where_no_log_file_can_be_opened_and_is_kept_from_then_on(run_text):
    run = run_text(PRINTS)
    assert run.wait() == 0, run.output()
    assert run.said()["LOGGED"] == "['with']"
    run.assert_nothing_left()


IN_FLIGHT = """
import ctypes, os, resource, socket, sys

CAP_SYS_ADMIN, CAP_SYS_RESOURCE, PR_CAPBSET_DROP = 21, 24, 24
if sys.argv[-1] != "again":  # with these rights nobody is counted
    for right in (CAP_SYS_ADMIN, CAP_SYS_RESOURCE):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    os.execv(sys.executable, [sys.executable, __file__, "again"])

import mray

def fill():
    try:
        for _ in range(10):
            socket.send_fds(ours, [b"x"], [0] * 100)
    except OSError as error:
        print("FULL", error, flush=True)

ours, theirs = socket.socketpair()
fill()
try:
    mray.init(num_cpus=2, logging_level="ERROR")
except mray.exceptions.RaySystemError as error:
    print("INIT", str(error).replace("\\n", " "), flush=True)
ours.close()
theirs.close()
mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def pid(self):
        return os.getpid()

mray.get(A.remote().pid.remote())
ours, theirs = socket.socketpair()
fill()
actors = [A.remote() for _ in range(3)]
refs = [actor.pid.remote() for actor in actors]
print("MEANWHILE", len(mray.wait(refs, num_returns=3, timeout=0.3)[0]), flush=True)
ours.close()
theirs.close()
later = A.remote()
print("DIFFERENT", len(set(mray.get([actor.pid.remote() for actor in (*actors, later)], timeout=60))), flush=True)
mray.shutdown()
"""


def test_as_many_descriptors_on_their_way_as_there_may_be_are_told_at_init_and_keep_workers_waiting_until_there_are_fewer(run_text):
    run = run_text(IN_FLIGHT)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert "Too many references" in said["FULL"]
    assert "ulimit -n" in said["INIT"]
    assert int(said["MEANWHILE"]) < 3
    assert said["DIFFERENT"] == "4"
    run.assert_nothing_left()
