"""An actor dies while a graph with it is compiled, or has results that nobody has read: who died is told, and nothing of it is left."""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import os, signal, sys, time
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def f(self, x):
        return x

    def pid(self):
        return os.getpid()

a, b = A.remote(), A.remote()
pids = mray.get([a.pid.remote(), b.pid.remote()])
print("PIDS", *pids, flush=True)
with mray.dag.InputNode() as value:
    graph = b.f.bind(a.f.bind(value))
try:
    graph.experimental_compile()
except mray.exceptions.ActorDiedError as error:
    print("TOLD", " ".join(str(error).split()), flush=True)
c = A.remote()
with mray.dag.InputNode() as value:
    compiled = c.f.bind(value).experimental_compile()
print("REST", mray.get(compiled.execute(5)), flush=True)
compiled.teardown()
session = mray._api.current.current_backend()._session.directory.rpartition("_")[2]
del compiled, graph, a, b, c, value
print("LEFT", sorted(name for name in os.listdir("/dev/shm") if session in name and "table" not in name), flush=True)
mray.shutdown()
"""


@pytest.mark.parametrize("point", ["graph segment opened", "graph part compiled", "semaphore named", "semaphore opened"])
def test_an_actor_that_dies_while_it_makes_its_part_of_a_graph(run_text, tmp_path, point):
    flag = tmp_path / "flag"
    rules = [{"at": point, "in": "actor", "once": str(flag), "do": "SIGKILL"}]
    run = run_text(PROGRAM, env={"MRAY_POINTS": json.dumps({"rules": rules}), "MRAY_SEMAPHORES": str(int("semaphore" in point))})
    assert run.wait() == 0, run.output()
    check(run, flag.read_text().split()[0])


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("point", ["graph segment formatted", "graph parts asked", "graph parts there"])
def test_an_actor_that_dies_between_two_steps_of_compiling(run_text, tmp_path, point, victim):
    flag = tmp_path / "flag"
    rules = [{"at": point, "in": "driver", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    run.wait_for("flag")
    pid = run.said()["PIDS"].split()[victim]
    run.kill(int(pid))
    flag.with_suffix(".go").touch()
    assert run.wait() == 0, run.output()
    if "TOLD" in run.said() or point != "graph parts there":  # else the driver had all that it needs, and the first execution tells
        check(run, pid)
    run.assert_nothing_left()


def check(run, pid):
    said = run.said()
    assert f"pid: {pid}" in said["TOLD"], run.output()
    assert "SIGKILL" in said["TOLD"], run.output()
    assert said["REST"] == "5", run.output()
    assert said["LEFT"] == "[]", run.output()
    run.assert_nothing_left()


UNREAD = """
import os, sys, time
import numpy as np
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class A:
    def same(self, x):
        return x + 1

    def end(self, x):
        if x[0] == 2:
            os._exit(3)
        return 0

a, b = A.remote(), A.remote()
with mray.dag.InputNode() as value:
    graph = mray.dag.MultiOutputNode([a.same.bind(value), b.end.bind(value)]).experimental_compile()
numbers = np.ones(100_000)
# The first execution's memory is still held: the second's is fresh, and has a name until it is read.
first, zero = mray.get(graph.execute(numbers))
refs = graph.execute(numbers + 1)
session = mray._api.current.current_backend()._session.directory.rpartition("_")[2]

def names():
    return [name for name in os.listdir("/dev/shm") if session in name and "table" not in name]

try:
    mray.get(refs[1])
except mray.exceptions.ActorDiedError:
    pass
# The other actor leaves the graph, and takes what it has sent along.
deadline = time.monotonic() + 60
while names() and time.monotonic() < deadline:
    time.sleep(0.01)
print("NAMES", names(), flush=True)
try:
    print("VALUE", mray.get(refs[0])[0], flush=True)
except mray.exceptions.ActorDiedError as error:
    print("TOLD", "code 3" in str(error), flush=True)
graph.teardown()
mray.shutdown()
"""


LATER = """
import os, signal
import mray
from mray._api.current import current_backend

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Actor:
    def pid(self):
        return os.getpid()

    def death_of(self, actor, process):
        return str(current_backend().host().death_of(actor, process))

first = Actor.remote()
pid = mray.get(first.pid.remote())
actor = first._actor_id.hex()
process = current_backend().host().actor_process(actor)
os.kill(pid, signal.SIGKILL)
try:
    mray.get(first.pid.remote())
except mray.exceptions.ActorDiedError:
    pass
print("KNOWN", current_backend().host().death_of(actor, process), flush=True)
print("LATER", mray.get(Actor.remote().death_of.remote(actor, process)), flush=True)
mray.shutdown()
"""


def test_a_process_that_began_after_the_death_of_an_actor_does_not_wait_for_word_of_it(run_text):
    run = run_text(LATER)
    assert run.wait() == 0, run.output()
    assert "was killed by SIGKILL (signal 9)" in run.output()
    assert "LATER" in run.said(), run.output()
    run.assert_nothing_left()


def test_a_result_that_an_actor_took_along_when_another_died_is_the_death_of_that(run_text):
    run = run_text(UNREAD)
    assert run.wait() == 0, run.output()
    assert run.said() == {"NAMES": "[]", "TOLD": "True"}, run.output()
    run.assert_nothing_left()
