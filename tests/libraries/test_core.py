"""mray's part of Ray's compiled core beside the real one. Each case runs in an interpreter of its own.

Sessions of Ray take seconds to start: where a case needs one, its answer stands here, and Ray is asked with MRAY_TEST_FULL=1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mray._libraries import ray_names
from tests.full import FULL

pytest.importorskip("ray")


def both(program: str, argument: Any = None) -> tuple[Any, Any]:
    """The JSON that a program prints on mray with Ray's libraries, and on Ray."""
    return mrays_alone(program, argument), _run(program, argument)


def is_rays(program: str, answer: Any) -> bool:
    """Whether mray prints this answer, and Ray, if it is asked."""
    return mrays_alone(program, None) == answer and (not FULL or _run(program, None) == answer)


def mrays_alone(program: str, argument: Any) -> Any:
    """The JSON that a program prints on mray with Ray's libraries."""
    return _run(f"import mray.libraries\n{program}", argument)


def _run(program: str, argument: Any) -> Any:
    command = [sys.executable, "-c", f"import json, sys\ngiven = json.loads(sys.stdin.read())\n{program}"]
    done = subprocess.run(command, input=json.dumps(argument), capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def series(chance: random.Random) -> list[tuple[float, float]]:
    """Points of a step function."""
    points, at = [], chance.uniform(1.7e9, 1.7e9 + 3)
    for _ in range(chance.randrange(6)):
        points.append((at, float(chance.randrange(4))))
        at += chance.choice([0.004, 0.01, 0.5, chance.random()])
    return points


def test_the_core_is_mrays_and_the_libraries_are_rays_files_in_workers_too() -> None:
    program = """
import mray, os, ray, ray.data, ray.util.queue
@ray.remote
def modules():
    import sys
    begun_with = "ray.data" in sys.modules
    import ray.data
    return [begun_with, ray.get is mray.get, ray.data.__file__.endswith(os.path.join("ray", "data", "__init__.py"))]
ray.init(num_cpus=1, logging_level="ERROR")
here = [type(ray).__module__, ray.get is mray.get, ray.util.queue.Queue is mray.util.queue.Queue, ray.data.Dataset.__module__]
print(json.dumps([here, ray.get(modules.remote())]))
ray.shutdown()
"""
    assert mrays_alone(program, None) == [["mray._libraries.facade", True, True, "ray.data.dataset"], [True, True, True]]


def test_step_functions_have_the_sums_and_means_of_rays() -> None:
    chance = random.Random(7)
    rows = [
        {
            "all": [series(chance) for _ in range(chance.randrange(4))],
            "one": series(chance),
            "from": chance.choice([None, 1.7e9 + chance.uniform(-1, 5)]),
            "to": chance.choice([None, 1.7e9 + chance.uniform(-1, 6)]),
            "last": chance.choice([0.5, 1.0]),
        }
        for _ in range(1000)
    ]
    program = """
from types import SimpleNamespace
from ray._raylet import merge_instantaneous_total_cython as merge, time_weighted_average_cython as mean
points = lambda rows: [SimpleNamespace(timestamp=at, value=value) for at, value in rows]
pair = lambda each: each if isinstance(each, tuple) else (each.timestamp, each.value)
edge = lambda at: float("-inf") if at is None else at
found = []
for row in given:
    total = [list(map(lambda number: round(number, 6), pair(each))) for each in merge([points(each) for each in row["all"]])]
    average = mean(points(row["one"]), edge(row["from"]), edge(row["to"]), row["last"])
    found.append((total, None if average is None else round(average, 5)))
print(json.dumps(found))
"""
    mrays, rays = both(program, rows)
    assert mrays == rays


def test_constants_and_addresses_are_rays() -> None:
    program = """
import ray._raylet as core
names = [name for name in given if isinstance(getattr(core, name), (str, int))]
addresses = [core.parse_address(each) for each in ("a:1", "[::1]:9", "host", "1.2.3.4:80")]
print(json.dumps([{name: getattr(core, name) for name in names}, addresses, core.build_address("::1", 3), core.build_address("h", "4"),
    [core.is_localhost(each) for each in ("localhost", "::1", "10.0.0.1")], core.get_localhost_ip(), core.get_all_interfaces_ip(),
    [core.node_labels_match_selector({"a": "b"}, {"a": each}) for each in ("b", "!b", "in(b,c)", "!in(b,c)", "c")]]))
"""
    mrays, rays = both(program, [name for name, (form, _rest) in ray_names.forms("ray._raylet").items() if form == "="])
    assert mrays == rays
    assert mrays[0]["RAY_NODE_ID_KEY"] == "ray.io/node-id"


def test_a_generator_is_told_how_long_storing_took_and_one_that_delegates_to_a_list_is_not() -> None:
    program = """
import ray
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
@ray.remote(num_returns="streaming")
def told():
    stats = yield 1
    yield type(stats).__name__, stats.object_creation_dur_s >= 0
@ray.remote(num_returns="streaming")
def delegates():
    yield from [1, 2]
found = [ray.get(each) for each in told.remote()]
print(json.dumps([found, [ray.get(each) for each in delegates.remote()]] if given else [found]))
ray.shutdown()
"""
    assert is_rays(program, [[1, ["StreamingGeneratorStats", True]]])
    # Ray fails: a list's iterator has no send.
    assert mrays_alone(program, True)[1] == [1, 2]


def test_callbacks_come_when_an_object_goes_out_of_scope() -> None:
    program = """
import gc, time, ray
from ray._private.worker import global_worker
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
@ray.remote
def use(value):
    time.sleep(1)
    return len(value)
gone = []
ref = ray.put(b"x" * 1_000_000)
answers = [global_worker.core_worker.add_object_out_of_scope_callback(ref, lambda object_id: gone.append(object_id))]
name = ref.binary()
call = use.remote(ref)
del ref
gc.collect()
time.sleep(0.3)
answers.append(gone == [])  # the task has it
answers.append(ray.get(call))
until = time.monotonic() + 20
while not gone and time.monotonic() < until:
    time.sleep(0.01)
answers.append(gone == [name])
print(json.dumps(answers))
ray.shutdown()
"""
    assert is_rays(program, [True, True, 1_000_000, True])


def test_small_results_that_this_process_holds_are_counted() -> None:
    program = """
import gc, time, ray
from ray._private.worker import global_worker
ray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)
held = global_worker.core_worker.get_local_memory_store_bytes_used
@ray.remote
def make(size): return b"x" * size
before = held()
results = [make.remote(10_000) for _ in range(10)] + [make.remote(1_000_000)]
ray.get(results)
answers = [100_000 <= held() - before < 102_000]
del results
until = time.monotonic() + 20
while held() > before and time.monotonic() < until:
    gc.collect()
answers.append(held() == before)
print(json.dumps(answers))
ray.shutdown()
"""
    assert is_rays(program, [True, True])


def test_tasks_that_run_again_are_told_with_their_labels(tmp_path: Path) -> None:
    program = """
import os, pathlib, time
import ray, numpy
from ray._private.internal_api import get_local_ongoing_lineage_reconstruction_tasks as tasks
folder = pathlib.Path(given)
token = ray.init(num_cpus=2, logging_level="ERROR", log_to_driver=False)["session_dir"].rpartition("_")[2]
@ray.remote(_labels={"team": "a"})
def make(number):
    while (folder / "lost").exists() and not (folder / "go on").exists():
        time.sleep(0.01)
    return numpy.full(200_000, number)
refs = [make.remote(number) for number in range(2)]
ray.wait(refs, num_returns=2)
answers = [tasks()]
(folder / "lost").touch()
for path in pathlib.Path("/dev/shm").glob(f"mray-{token}-*"):
    path.unlink()
again = [ray.remote(lambda value: int(value.sum())).remote(ref) for ref in refs]
until = time.monotonic() + 20
while [count for _, count in tasks()] != [2] and time.monotonic() < until:  # alike when both have been sent
    time.sleep(0.01)
answers.append([(task.name, dict(task.labels), count) for task, count in tasks()])
(folder / "go on").touch()
answers.append(ray.get(again))
answers.append(tasks())
print(json.dumps(answers))
ray.shutdown()
"""
    assert mrays_alone(program, str(tmp_path)) == [[], [["make", {"team": "a"}, 2]], [0, 200_000], []]


def test_a_private_name_that_changes_is_what_it_is_now_however_often_it_was_asked_for() -> None:
    program = """
import ray
from ray._private import worker
found = []
for number in range(2):
    found += [worker._global_node is None, worker._global_node is None]
    ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
    found += [worker._global_node is None, worker._global_node.get_session_dir_path().startswith("/")]
    ray.shutdown()
print(json.dumps(found))
"""
    assert is_rays(program, [True, True, False, True] * 2)


def test_the_state_of_an_actor_is_what_this_process_has_heard() -> None:
    program = """
import time, ray
ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False)
@ray.remote
class Actor:
    def f(self): pass
actor = Actor.remote()
ray.get(actor.f.remote())
states = [actor._get_local_state()]
ray.kill(actor)
until = time.monotonic() + 20
while actor._get_local_state() != 4 and time.monotonic() < until:
    try: ray.get(actor.f.remote())
    except ray.exceptions.RayActorError: pass
    time.sleep(0.01)
states.append(actor._get_local_state())
print(json.dumps(states))
ray.shutdown()
"""
    assert is_rays(program, [2, 4])


def test_another_version_of_ray_is_refused_with_both_versions(tmp_path: Any) -> None:
    package = tmp_path / "ray"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_version.py").write_text('version = "2.9.1"\n')
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "mray", "run", "--libraries", "-c", "import ray.data"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 1
    assert "Ray 2.9.1 is installed" in done.stderr
    assert "2.60.*" in done.stderr
    assert 'pip install "mray[libraries]"' in done.stderr


def test_a_notebook_loads_the_libraries_as_an_extension() -> None:
    program = "import importlib\nimportlib.import_module('mray.libraries').load_ipython_extension(None)\nimport json, ray.data, ray.util\n"
    assert _run(f"{program}print(json.dumps([ray.data.__name__, ray.util.__file__.endswith('mray/util/__init__.py')]))", None) == [
        "ray.data",
        True,
    ]
