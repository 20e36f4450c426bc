"""The owner of an object dies: all that want the object are told who that was and how it died, also where they see its end first.

The producer of an object dies: its owner keeps the object, and no memory that only the dead process knew stays.
"""

from __future__ import annotations

import json

import pytest

PROGRAM = """
import os, signal, sys, threading, time
import mray
from mray._api.current import current_backend

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Owner:
    def make(self, size):
        return os.getpid(), [mray.put(b"x" * size)]

def wait_for(ref, pid):
    try:
        while True:
            mray.get(ref)
    except mray.exceptions.OwnerDiedError as error:
        print("TOLD", f"(pid {pid}) was killed by SIGKILL (signal 9)" in str(error), str(error).replace("\\n", " "), flush=True)

def lose(size, flag):
    owner = Owner.remote()
    pid, (ref,) = mray.get(owner.make.remote(size))
    os.kill(pid, signal.SIGKILL)
    waiting = threading.Thread(target=wait_for, args=(ref, pid))
    waiting.start()
    while any(peer.pid == pid for peer in list(current_backend().client.peers.values())):
        time.sleep(0.01)
    open(flag, "w").close()
    waiting.join()

lose(int(sys.argv[1]), sys.argv[2] + ".go")
mray.shutdown()
"""


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_who_hears_of_an_owners_death_before_the_node_tells_it_is_told_how_it_died(run_text, tmp_path, size):
    """The node is held back between hearing of the death and telling of it, until the owner has hung up."""
    flag = tmp_path / "flag"
    rules = [{"at": "channels closed", "in": "node", "once": str(flag), "do": "wait"}]
    run = run_text(PROGRAM, str(size), str(flag), env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    assert run.said()["TOLD"].startswith("True"), run.output()
    run.assert_nothing_left()


HALF = """
import os, pathlib, time
import mray, numpy

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Producer:
    def make(self):
        return numpy.ones(1 << 20)

(session,) = [path.name.rpartition("_")[2] for path in pathlib.Path(os.environ["MRAY_TMPDIR"]).glob("*/session_*")]

def large():
    names = [os.path.join("/dev/shm", name) for name in os.listdir("/dev/shm") if name.startswith(f"mray-{session}-")]
    return [name for name in names if os.path.exists(name) and os.path.getsize(name) >= 8 << 20]

producer = Producer.remote()
held = producer.make.remote()
mray.wait([held])
try:
    mray.get(producer.make.remote())
except mray.exceptions.ActorDiedError:
    pass
while len(large()) > 1:
    time.sleep(0.01)
print("HELD", mray.get(held).sum(), len(large()), flush=True)
mray.shutdown()
"""


def test_memory_that_only_a_dead_producer_knew_goes_and_its_values_stay(run_text):
    """It dies with its second value written and its owner not told."""
    rules = [{"at": "value stored", "in": "actor", "nth": 2, "do": "SIGKILL"}]
    run = run_text(HALF, env={"MRAY_POINTS": json.dumps({"rules": rules})})
    assert run.wait() == 0, run.output()
    assert run.said() == {"HELD": "1048576.0 1"}, run.output()
    run.assert_nothing_left()


MADE_FOR = """
import os, signal, time
import mray, numpy
from mray._api.current import current_backend

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote(num_cpus=0)
class Producer:
    def make(self):
        return numpy.ones(1 << 20)

    def mapped(self):
        store = current_backend().client.owner.store
        return len(store._used) + len(store._free)

@mray.remote(num_cpus=0)
class Owner:
    def call(self, producer):
        self.ref = producer.make.remote()
        mray.wait([self.ref])
        return os.getpid()

producer, owner = Producer.remote(), Owner.remote()
pid = mray.get(owner.call.remote(producer))
print("MAPPED", mray.get(producer.mapped.remote()), flush=True)
os.kill(pid, signal.SIGKILL)
while mray.get(producer.mapped.remote()):
    time.sleep(0.01)
print("FORGOTTEN", flush=True)
mray.shutdown()
"""


def test_a_producer_lets_go_of_memory_that_it_made_for_a_dead_owner(run_text):
    run = run_text(MADE_FOR)
    assert run.wait() == 0, run.output()
    assert run.said()["MAPPED"] == "1", run.output()
    assert "FORGOTTEN" in run.said(), run.output()
    run.assert_nothing_left()
