"""Callers of compiled graphs that die: an event loop, a process that was handed a graph, the one that compiled it; and Ctrl-C."""

from __future__ import annotations

import os
import signal

import pytest

PRELUDE = """
import asyncio
import os
import sys
import threading
import time

import mray

folder = sys.argv[-1]

def touch(name, text=""):
    with open(os.path.join(folder, name + ".new"), "w") as file:
        file.write(str(text))
    os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))

def until(condition):
    while not condition():
        time.sleep(0.002)

def there(name):
    return os.path.exists(os.path.join(folder, name))

@mray.remote(num_cpus=0)
class Worker:
    def wait(self, name):
        until(lambda: there(name))
        return name

    def echo(self, value):
        return value

    def pid(self):
        return os.getpid()

@mray.remote(num_cpus=0)
class User:
    def hold(self, graph):
        self.graph = graph

    def pid(self):
        return os.getpid()

    def use(self, value):
        return self.graph.execute(value).get()

    def flood(self):
        refs = [self.graph.execute("go") for _ in range(4)]
        touch("flooded", os.getpid())
        return mray.get(refs)

def graph_of(method, **options):
    with mray.dag.InputNode() as inp:
        return method.bind(inp).experimental_compile(**options)

def copies_wait(graph):
    from mray.util.state import list_graphs
    return any(row.submitted > row.finished for row in list_graphs(detail=True) if row.copy_of == graph.get_id())

mray.init(num_cpus=1, logging_level="ERROR")
worker = Worker.remote()
"""


@pytest.mark.parametrize(("manner", "status"), [("SIGKILL", -9), ("SIGSEGV", -11), ("SIGTERM", 15)])
def test_a_driver_that_dies_while_its_event_loop_awaits_leaves_nothing(run_text, manner, status):
    run = run_text(
        PRELUDE
        + """
graph = graph_of(worker.wait, enable_asyncio=True)

async def main():
    futures = [await graph.execute_async("never") for _ in range(3)]
    tasks = [asyncio.ensure_future(future) for future in futures]
    asyncio.get_running_loop().call_later(0.05, touch, "reached")
    await asyncio.gather(*tasks)

asyncio.run(main())
"""
    )
    run.wait_for("reached")
    os.kill(run.pid, getattr(signal, manner))
    assert run.wait() == status
    run.assert_nothing_left()


@pytest.mark.parametrize("how", ["await", "stream", "wait", "room"])
def test_an_interrupted_wait_ends_and_the_graph_goes_on(run_text, how):
    run = run_text(
        PRELUDE
        + """
how = sys.argv[1]
graph = graph_of(worker.wait, enable_asyncio=how in ("await", "stream"), _max_inflight_executions=1, _when_full="wait")

def soon():
    until(lambda: graph._submitted)
    time.sleep(0.05)
    touch("reached")

threading.Thread(target=soon).start()

async def wait():
    await (await graph.execute_async("go"))

async def stream():
    async for _ in graph.stream(["go", "go"]):
        pass

async def last():
    return await (await graph.execute_async("go"))

try:
    if how == "await":
        asyncio.run(wait())
    elif how == "stream":
        asyncio.run(stream())
    elif how == "wait":
        mray.wait([graph.execute("go")])
    else:
        ref = graph.execute("go")
        graph.execute("go")
except KeyboardInterrupt:
    print("INTERRUPTED yes", flush=True)
touch("go")
print("LAST", asyncio.run(last()) if how in ("await", "stream") else graph.execute("go").get(), flush=True)
graph.teardown()
mray.shutdown()
print("DONE", flush=True)
""",
        how,
    )
    run.wait_for("reached")
    os.kill(run.pid, signal.SIGINT)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert said["INTERRUPTED"] == "yes"
    assert said["LAST"] == "go"
    run.assert_nothing_left()


@pytest.mark.parametrize("manner", ["SIGKILL", "SIGSEGV"])
def test_a_process_that_dies_with_executions_on_their_way_harms_nobody(run_text, manner):
    run = run_text(
        PRELUDE
        + """
graph = graph_of(worker.wait, _max_inflight_executions=4)
user = User.remote()
mray.get(user.hold.remote(graph))
pending = user.flood.remote()
flooded = os.path.join(folder, "flooded")
until(lambda: os.path.exists(flooded))
touch("reached", open(flooded).read())
try:
    mray.get(pending)
except mray.exceptions.ActorDiedError:
    print("DIED yes", flush=True)
touch("go")
other = User.remote()
mray.get(other.hold.remote(graph))
print("OTHER", mray.get(other.use.remote("go")), flush=True)
print("OWN", graph.execute("go").get(), flush=True)
graph.teardown()
mray.shutdown()
print("DONE", flush=True)
"""
    )
    pid = int(run.wait_for("reached"))
    os.kill(pid, getattr(signal, manner))
    assert run.wait() == 0, run.output()
    said = run.said()
    assert (said.get("DIED"), said.get("OTHER"), said.get("OWN")) == ("yes", "go", "go"), run.output()
    run.assert_nothing_left()


@pytest.mark.parametrize("manner", ["SIGKILL", "os._exit"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_death_of_the_owner_is_told_to_who_waits_in_another_process(run_text, manner, asynchronous):
    run = run_text(
        PRELUDE
        + """
asynchronous = sys.argv[1] == "True"

@mray.remote(num_cpus=0)
class Owner:
    def compile(self, worker):
        self.graph = graph_of(worker.wait, enable_asyncio=asynchronous)
        return self.graph

    def exit(self):
        os._exit(3)

    def pid(self):
        return os.getpid()

owner = Owner.remote()
graph = mray.get(owner.compile.remote(worker))

async def use():
    return await (await graph.execute_async("never"))

def wait():
    try:
        asyncio.run(use()) if asynchronous else graph.execute("never").get()
    except mray.exceptions.RayChannelError as error:
        print("TOLD", error, flush=True)

thread = threading.Thread(target=wait)
thread.start()
until(lambda: copies_wait(graph))
pid = mray.get(owner.pid.remote())
if sys.argv[2] == "os._exit":
    owner.exit.remote()
touch("reached", pid)
thread.join()
touch("never")
# The worker has left the graph, and serves others.
print("FREE", graph_of(worker.echo).execute("free").get(), flush=True)
mray.shutdown()
""",
        str(asynchronous),
        manner,
    )
    pid = int(run.wait_for("reached"))
    if manner == "SIGKILL":
        os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0, run.output()
    said = run.said()
    assert "that compiled the graph" in said["TOLD"]
    assert said["FREE"] == "free"
    run.assert_nothing_left()


def test_the_session_ends_while_others_hold_and_use_a_graph(run_text):
    run = run_text(
        PRELUDE
        + """
graph = graph_of(worker.wait)
user = User.remote()
mray.get(user.hold.remote(graph))
pending = user.use.remote("never")
until(lambda: copies_wait(graph))
mray.shutdown()
print("DONE yes", flush=True)
"""
    )
    assert run.wait() == 0, run.output()
    run.note_sessions()
    assert run.said()["DONE"] == "yes"
    run.assert_nothing_left()
