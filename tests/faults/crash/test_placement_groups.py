"""Sudden death around placement groups: whoever made them, whoever runs in them, and the node that holds them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.faults.crash.test_persistent import Scene

#: Waits for a group that has no room yet, in both ways, while somebody kills the node.
WAITING = """
import os, sys, threading
import mray
from mray.util.placement_group import placement_group

mray.init(num_cpus=1)
held = placement_group([{"CPU": 1}])
assert held.wait(60)
group = placement_group([{"CPU": 1}])
kinds = {}

def note(name, wait):
    try:
        kinds[name] = str(wait())
    except Exception as error:
        kinds[name] = type(error).__name__

ways = {"ready": lambda: mray.get(group.ready()), "wait": lambda: group.wait(1000)}
threads = [threading.Thread(target=note, args=pair) for pair in ways.items()]
for thread in threads:
    thread.start()
open(os.path.join(sys.argv[-1], "waiting"), "w").close()
for thread in threads:
    thread.join()
for name, kind in kinds.items():
    print(name, kind)
"""

#: Makes groups in a persistent session, runs something in one of them, and never ends.
MAKER = """
import os, sys, time
import mray
from mray.util.placement_group import placement_group
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

@mray.remote(num_cpus=1)
class Actor:
    def pid(self):
        return os.getpid()

mray.init(address="auto", namespace="groups", logging_level="ERROR")
groups = [placement_group([{"CPU": 1}], name="plain"), placement_group([{"CPU": 1}], name="kept", lifetime="detached")]
actors = [Actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote() for group in groups]
print(*mray.get([actor.pid.remote() for actor in actors]), flush=True)
time.sleep(1000)
"""

#: The groups that a second driver finds when the first one is dead.
FINDER = """
import time
import mray
from mray.util.placement_group import get_placement_group, placement_group_table, remove_placement_group
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

mray.init(address="auto", namespace="groups", logging_level="ERROR")
states = lambda: {row["name"]: row["state"] for row in placement_group_table().values()}
while states()["plain"] != "REMOVED":
    time.sleep(0.01)
kept = get_placement_group("kept")
inside = PlacementGroupSchedulingStrategy(kept)
assert mray.get(mray.remote(lambda: "ran").options(scheduling_strategy=inside).remote(), timeout=60) == "ran"
remove_placement_group(kept)
while mray.available_resources().get("CPU") != 2:
    time.sleep(0.01)
print(states())
"""


def test_who_waits_for_a_group_is_told_of_the_death_of_the_node(run_text: Any) -> None:
    run = run_text(WAITING)
    run.wait_for("waiting")
    os.kill(run.pid_of("node"), signal.SIGKILL)
    assert run.wait() == 0, run.output()
    assert run.said() == {"ready": "NodeDiedError", "wait": "NodeDiedError"}, run.output()
    run.assert_nothing_left()


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_the_groups_of_a_driver_end_with_it_and_detached_ones_stay(run: Any, death: signal.Signals) -> None:
    scene = Scene(run)
    scene.start()
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": scene.environment, "cwd": "/"}
    maker = subprocess.Popen([sys.executable, "-c", MAKER], **options)
    assert maker.stdout is not None
    assert len(maker.stdout.readline().split()) == 2
    maker.send_signal(death)
    maker.communicate()
    found = subprocess.run([sys.executable, "-c", FINDER], check=True, **options)
    assert found.stdout.strip() == "{'plain': 'REMOVED', 'kept': 'REMOVED'}"
    assert scene.mray("stop").returncode == 0
    run.assert_nothing_left()
