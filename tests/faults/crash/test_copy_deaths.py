"""A process that makes itself a copy of another's graph, and whose end, or whose actor's or owner's, comes between two steps of that."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import os, sys, threading, time
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def f(self, x):
        return x

    def pid(self):
        return os.getpid()

@mray.remote(num_cpus=0)
class User:
    def use(self, graph, count):
        for number in range(count):
            assert graph.execute(number).get() == number
        return count

    def pid(self):
        return os.getpid()

a, user = A.remote(), User.remote()
print("PIDS", *mray.get([a.pid.remote(), user.pid.remote()]), flush=True)
with mray.dag.InputNode() as value:
    graph = a.f.bind(value).experimental_compile()
pending = user.use.remote(graph, 100)
if "teardown" in sys.argv:
    flag = sys.argv[2]
    while not os.path.exists(flag):
        time.sleep(0.002)
    threading.Timer(0.1, open, (flag + ".go", "w")).start()
    graph.teardown()
try:
    print("USED", mray.get(pending), flush=True)
except mray.exceptions.RayError as error:
    print("TOLD", type(error).__name__, " ".join(str(error).split()), flush=True)
try:
    print("OWN", graph.execute(5).get(), flush=True)
except mray.exceptions.RayError as error:
    print("OWN", type(error).__name__, flush=True)
other = User.remote()
b = A.remote()
with mray.dag.InputNode() as value:
    second = b.f.bind(value).experimental_compile()
print("REST", mray.get(other.use.remote(second, 50)), flush=True)
graph.teardown()
second.teardown()
session = mray._api.current.current_backend()._session.directory.rpartition("_")[2]
del graph, second, a, b, user, other, value, pending
deadline = time.monotonic() + 60
while (left := [name for name in os.listdir("/dev/shm") if session in name and "table" not in name]) and time.monotonic() < deadline:
    time.sleep(0.01)
print("LEFT", left, flush=True)
mray.shutdown()
"""

POINTS = ["graph segment formatted", "graph parts asked", "graph parts there", "graph copied"]


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_while_it_makes_a_copy(run_text, tmp_path, point):
    flag = tmp_path / "flag"
    rules = [{"at": point, "in": "actor", "once": str(flag), "do": "SIGKILL"}]
    run = run_text(PROGRAM, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    said = run.said()
    assert said["TOLD"].startswith("ActorDiedError"), run.output()
    assert f"pid: {said['PIDS'].split()[1]}" in said["TOLD"], run.output()
    check(run, "5")


@pytest.mark.parametrize("point", POINTS)
def test_an_actor_that_dies_while_another_process_makes_a_copy(run_text, tmp_path, point):
    flag = tmp_path / "flag"
    rules = [{"at": point, "in": "actor", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    run.wait_for("flag")
    pid = run.said()["PIDS"].split()[0]
    run.kill(int(pid))
    flag.with_suffix(".go").touch()
    assert run.wait() == 0, run.output()
    said = run.said()
    assert "ActorDiedError" in said["TOLD"], run.output()
    assert f"pid: {pid}" in said["TOLD"], run.output()
    check(run, "ActorDiedError")


@pytest.mark.parametrize("point", POINTS)
def test_a_graph_that_ends_while_another_process_makes_a_copy(run_text, tmp_path, point):
    flag = tmp_path / "flag"
    rules = [{"at": point, "in": "actor", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, "teardown", str(flag), env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    assert "Channel closed" in run.said()["TOLD"], run.output()
    check(run, "RayChannelError")


def check(run, own):
    said = run.said()
    assert said["OWN"] == own, run.output()
    assert said["REST"] == "50", run.output()
    assert said["LEFT"] == "[]", run.output()
    run.assert_nothing_left()
