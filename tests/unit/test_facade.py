"""The package ``ray`` that mray makes. Each case runs in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mray._libraries.core.autoscaler import request_resources
from mray._libraries.core.internal_api import memory_summary
from mray._libraries.core.serve_client import parse_runtime_env_args


def run(program: str, *options: str, **environ: str) -> str:
    """The output of a program after the facade is installed; a failed assertion in it fails the test."""
    command = [sys.executable, *options, "-c", f"import mray.as_ray\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --------------------------------------------------------------------------------------------- identity
@pytest.mark.parametrize(
    "statement",
    [
        "import ray, mray; print(ray.remote is mray.remote and ray.ObjectRef is mray.ObjectRef)",
        "import ray.dag, mray.dag; print(ray.dag.InputNode is mray.dag.InputNode)",
        "from ray.dag import InputNode; import mray.dag; print(InputNode is mray.dag.InputNode)",
        "import ray.exceptions as e; from mray.exceptions import RayError; print(e.RayError is RayError)",
        "import importlib, ray; print(importlib.import_module('ray.dag') is ray.dag)",
        "import ray.util.queue as q, sys; print(sys.modules['ray.util.queue'] is q)",
        "import ray, ray._private.worker as w; print(ray.worker is w and w.get is ray.get)",
        "from ray.experimental.state.api import list_actors as one; from ray.util.state import list_actors; print(one is list_actors)",
    ],
)
def test_a_value_has_one_identity_however_it_was_imported(statement: str) -> None:
    assert run(statement) == "True"


def test_the_modules_have_rays_names_and_are_there_after_the_package_alone_was_imported() -> None:
    program = """
import ray
print(ray.__name__, ray.__spec__.name, ray.dag.__name__, ray.util.scheduling_strategies.__name__, ray.util.helpers.__name__)
print(ray.experimental.internal_kv.__name__, ray.experimental.compiled_dag_ref.__name__, ray.remote_function.__name__)
client = ray.util.client.ray
print(client.is_connected() or client.get_context().is_connected() or client.get_context().is_initialized(), ray.logger.name)
client.disconnect()
try:
    client.put(1)
except Exception as error:
    print(hasattr(client, "put"), error)
"""
    assert run(program).splitlines() == [
        "ray ray ray.dag ray.util.scheduling_strategies ray.util.helpers",
        "ray.experimental.internal_kv ray.experimental.compiled_dag_ref ray.remote_function",
        "False ray",
        "False ray.util.client.ray.put is not in mray: Ray's client reaches a cluster from outside; with mray the driver is on the machine",
    ]


def test_what_is_set_in_ray_is_set_there_alone() -> None:
    program = """
import ray, mray
from unittest import mock
real = ray.get
with mock.patch("ray.get", "patched"):
    assert ray.get == "patched" and mray.get is real
assert ray.get is real
ray.made = 1
print(hasattr(mray, "made"))
del ray.get
print(hasattr(ray, "get"), mray.get is real)
ray.get = real
print(ray.get is real, hasattr(ray, "cli"))
"""
    assert run(program).splitlines() == ["False", "False True", "True False"]


@pytest.mark.parametrize(
    "first", ["import ray.util.placement_group", "from ray.util.placement_group import PlacementGroup", "import mray.util.placement_group"]
)
def test_a_function_stays_where_a_module_has_its_name(first: str) -> None:
    program = f"""
{first}
import ray, ray.util.placement_group as whatever
from ray.util import placement_group
from ray.util.placement_group import placement_group as again
print(ray.util.placement_group is placement_group is again is whatever, callable(placement_group))
"""
    assert run(program) == "True True"


# ------------------------------------------------------------------------------------ ways to import it
def test_a_lazy_loader_takes_it() -> None:
    program = """
import importlib.util, sys
spec = importlib.util.find_spec("ray")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = importlib.util.module_from_spec(spec)
sys.modules["ray"] = module
spec.loader.exec_module(module)
print("mray.util" in sys.modules, callable(module.get))
import ray, ray.util.queue as queue
print(ray is module, queue.Queue is ray.util.queue.Queue)
mray.as_ray.facade.install()
"""
    assert run(program).splitlines() == ["False True", "True True"]


def test_all_of_it_can_be_imported_at_once() -> None:
    assert run("from ray import *\nprint(callable(remote), Language.PYTHON, util.__name__)") == "True PYTHON ray.util"


@pytest.mark.parametrize(
    ("options", "environ"), [(("-m", "mray", "run", "-m", "pytest"), {}), (("-m", "pytest"), {"MRAY_AS_RAY": "1"})], ids=["run", "variable"]
)
def test_pytest_with_warnings_as_errors_runs_tests_of_ray(tmp_path: Path, options: tuple[str, ...], environ: dict[str, str]) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("import ray\ndef test_it():\n    assert ray.__name__ == 'ray' and ray.get(ray.put(3)) == 3\n")
    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist", "-p", "no:cov")  # whose own warnings are none of ours
    command = [sys.executable, "-W", "error", *options, "-q", "-W", "error", *plugins, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, **environ})
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_children_of_a_program_have_it_through_the_variable() -> None:
    program = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', 'import mray, ray; print(ray)']).decode())"
    assert run(program, MRAY_AS_RAY="1") == "<module 'ray' (mray)>"


def test_its_submodules_are_listed_and_each_that_is_can_be_imported() -> None:
    program = """
import importlib, pkgutil, ray
names = [each.name for each in pkgutil.iter_modules(ray.__path__, "ray.")]
print("ray.util" in names, "ray.data" in names, "ray.tune" in names, "ray.cli" in names, "ray.as_ray" in names)
def refuse(name):
    raise
found = [each.name for each in pkgutil.walk_packages(ray.__path__, "ray.", onerror=refuse)]
print("ray.util.queue" in found, "ray._private.worker" in found, "ray.util.state.api" in found, len(found) == len(set(found)))
for each in found:
    importlib.import_module(each)
"""
    assert run(program).splitlines() == ["True True False False False", "True True True True"]


def test_it_can_be_loaded_again() -> None:
    program = """
import importlib, ray, ray.util.queue
real, queue = ray.get, ray.util.queue.Queue
ray.get = None
print(importlib.reload(ray) is ray, ray.get is real, importlib.reload(ray.util.queue).Queue is queue, ray.util.queue.Queue is queue)
"""
    assert run(program) == "True True True True"


def test_many_threads_import_at_once() -> None:
    program = """
import importlib, sys, threading
sys.setswitchinterval(1e-6)
names = ["ray", "ray.util.queue", "ray.util", "ray.dag", "ray.util.state.api", "ray.experimental.channel", "ray._private.worker",
         "ray.util.placement_group", "ray.exceptions", "ray.util.scheduling_strategies", "ray.actor", "ray.data"]
start, found, failed = threading.Barrier(2 * len(names)), {name: [] for name in names}, []

def load(name, names):
    start.wait()
    try:
        for each in names:
            found[each].append(importlib.import_module(each))
        import ray
        found[name].append(sys.modules[name])
        callable(ray.get), ray.util.queue.Queue, ray.dag.InputNode, ray.util.placement_group
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=load, args=(name, names[at:] + names[:at][::way]))
           for at, name in enumerate(names) for way in (1, -1)]
for each in threads:
    each.start()
for each in threads:
    each.join()
import ray
print(failed, all(len({id(each) for each in modules}) == 1 for modules in found.values()), callable(ray.util.placement_group))
"""
    assert run(program) == "[] True True"


def test_import_hooks_of_others_see_nothing_of_it_and_may_fail() -> None:
    program = """
import sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            raise RuntimeError(name)
sys.meta_path.append(Hook())
import ray.util.queue, ray.dag
for statement in ("import ray.tune", "from ray import tune"):
    try:
        exec(statement)
    except ImportError as error:
        print(error.name)
"""
    assert run(program).splitlines() == ["ray.tune", "ray.tune"]


def test_what_others_ask_of_it() -> None:
    program = """
import doctest, inspect, typing, pydoc, ray, ray.util.queue, ray.actor
from unittest import mock
sources = [inspect.getsource(each) for each in (ray.util.queue.Queue, ray.util.queue)]
print(inspect.getmodule(ray) is ray, *("class Queue" in each for each in sources))
def f(a: "ray.ObjectRef", b: "ray.actor.ActorHandle", c: "ray.data.Dataset | None" = None) -> "ray.util.queue.Queue": ...
print(typing.get_type_hints(f)["return"] is ray.util.queue.Queue)
for each in filter(inspect.isfunction, vars(ray).values()):
    typing.get_type_hints(each)
print({each.name.partition(".")[0] for each in doctest.DocTestFinder().find(ray)})
print("class Queue" in pydoc.plain(pydoc.render_doc("ray.util.queue")), len(inspect.getmembers(ray)) > 50)
with mock.patch("ray.util.state.list_actors", lambda: 7):
    from ray.util.state import list_actors
    print(list_actors())
print(callable(mock.create_autospec(ray).get))
"""
    assert run(program, "-W", "error").splitlines() == ["True True True", "True", "{'ray'}", "True True", "7", "True"]


# ------------------------------------------------------------------------------------------- pickling
def test_pickles_name_mray_and_those_of_ray_can_be_read() -> None:
    program = """
import pickle, ray.exceptions, ray.util.queue
print(b"mray.exceptions" in pickle.dumps(ray.exceptions.RayError))
print(pickle.loads(b"cray.util.queue\\nQueue\\n.") is ray.util.queue.Queue)
"""
    assert run(program).splitlines() == ["True", "True"]


def test_a_program_that_holds_the_package_itself_can_be_pickled() -> None:
    program = """
import cloudpickle, pickle, ray, ray.util.queue, mray
for each in (ray, ray.util.queue, mray, lambda: (ray.__version__, mray.__version__)):
    again = pickle.loads(cloudpickle.dumps(each))
    assert again is each or again() == each(), each
"""
    run(program)
    pickled = run("import cloudpickle, ray.util.queue; print(cloudpickle.dumps([ray, ray.util.queue]).hex())")
    elsewhere = f"import pickle, mray.util.queue; print(pickle.loads(bytes.fromhex({pickled!r})) == [mray, mray.util.queue])"
    assert subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=True).stdout.strip() == "True"


def test_a_task_has_it(tmp_path: Path) -> None:
    program = """
import ray
ray.init(num_cpus=1, logging_level="ERROR")

@ray.remote
def names():
    import ray.util.queue
    return ray.__name__, ray.util.queue.Queue.__module__, ray._private.worker.global_worker.mode == ray.WORKER_MODE

print(*ray.get(names.remote()), ray._private.worker.global_worker.mode == ray.SCRIPT_MODE)
ray.shutdown()
print(ray.get_runtime_context().worker.mode)
"""
    assert run(program, RAY_ENABLE_AUTO_CONNECT="0").splitlines() == ["ray mray.util.queue True True", "None"]


def test_the_logger_of_ray_has_a_handler_and_the_level_info_in_workers_too() -> None:
    program = """
import contextlib, io, logging, ray
def logger():
    own = logging.getLogger("ray")
    own.getChild("data").info("a line of %s", "INFO")
    return own.level, len(own.handlers), own.propagate, logging.getLogger("ray.rllib").level, logging.getLogger().handlers

@ray.remote
def far():
    import sys
    sys.stderr = io.StringIO()
    return logger(), sys.stderr.getvalue()

print(logger())
ray.init(num_cpus=1, logging_level="ERROR", logging_format="%(name)s: %(message)s")
print(logger()[:2])
with contextlib.redirect_stderr(io.StringIO()):
    ray.logger.error("of the driver")  # to the stream of the import
print(ray.get(far.remote()))
ray.shutdown()
ray.init(num_cpus=1, configure_logging=False)
print(logger()[:2])
"""
    done = subprocess.run([sys.executable, "-m", "mray", "run", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "(20, 1, False, 30, [])",
        "(40, 1)",
        "((20, 1, False, 30, []), 'a line of INFO\\n')",
        "(40, 0)",
    ]
    first, second = done.stderr.splitlines()
    assert (first.endswith("-- a line of INFO"), second) == (True, "ray: of the driver")


def test_hooks_of_launches_hear_of_each_and_what_they_raise_is_the_launchs_error() -> None:
    program = """
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
told = []
def hook(launched, resources, strategy):
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    told.append((launched.module_name, launched.class_name, launched.function_name, resources, name))
    if resources.get("CPU") == 2:
        raise RuntimeError("no room")
@ray.remote
def task(): return 1
@ray.remote
class Actor: pass
assert ray.actor._actor_launch_hook is ray.remote_function._task_launch_hook is None
ray.init(num_cpus=2, logging_level="ERROR")
group = ray.util.placement_group([{"CPU": 1}])
ray.actor._actor_launch_hook = ray.remote_function._task_launch_hook = hook
placed = task.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
ray.get([task.remote(), task.remote(), placed.remote(), task.options(scheduling_strategy="SPREAD").remote()])
Actor.remote()
for launch in (task.options(num_cpus=2), Actor.options(num_cpus=2)):
    try:
        launch.remote()
    except RuntimeError as error:
        print(error)
ray.actor._actor_launch_hook = None  # it can be taken back
Actor.remote()
print(*told, sep="\\n")
"""
    assert run(program).splitlines() == [
        "no room",
        "no room",
        "('__main__', '', 'task', {'CPU': 1.0}, 'DEFAULT')",
        "('__main__', '', 'task', {'CPU': 1.0}, 'PlacementGroupSchedulingStrategy')",
        "('__main__', '', 'task', {'CPU': 1.0}, 'SPREAD')",
        "('__main__', 'Actor', '__init__', {}, 'DEFAULT')",
        "('__main__', '', 'task', {'CPU': 2.0}, 'DEFAULT')",
        "('__main__', 'Actor', '__init__', {'CPU': 2.0}, 'DEFAULT')",
    ]


def test_rays_libraries_see_whether_errors_are_wanted_where_they_were_raised() -> None:
    asked = "from mray._libraries.core.debugger import _is_ray_debugger_post_mortem_enabled as asked; print(asked())"
    assert [run(asked, RAY_DEBUG_POST_MORTEM=each) for each in ("1", "0")] == ["True", "False"]


def test_what_clients_take_from_private_modules() -> None:
    program = """
import ray, socket
from ray._common.network_utils import build_address, find_free_port, parse_address
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory
with socket.socket() as sock:
    sock.bind(("127.0.0.1", find_free_port()))
print(parse_address(build_address("::1", 5)), parse_address(build_address("1.2.3.4", 5)), parse_address("abc"))
print(0 < get_used_memory() < get_system_memory())

from ray._common.test_utils import Semaphore, SignalActor, wait_for_condition
ray.init(num_cpus=1, logging_level="ERROR")
signal, semaphore = SignalActor.remote(), Semaphore.remote(2)
waiting = signal.wait.remote()
wait_for_condition(lambda: ray.get(signal.cur_num_waiters.remote()) == 1)
ray.get(signal.send.remote())
print(ray.get(waiting), ray.get([semaphore.acquire.remote(), semaphore.acquire.remote(), semaphore.locked.remote()]))
value = ray.put(bytes(300_000))
print(value.hex() in ray._private.internal_api.memory_summary(), list(ray._private.state.available_resources_per_node().values())[0]["CPU"])
try:
    wait_for_condition(lambda: 1 / 0, timeout=0)
except RuntimeError as error:
    print(type(error.__cause__).__name__)
"""
    assert run(program).splitlines() == [
        "('::1', '5') ('1.2.3.4', '5') None",
        "True",
        "None [True, True, True]",
        "True 1.0",
        "ZeroDivisionError",
    ]


def test_every_name_of_rays_inside_can_be_imported_and_says_so_when_it_is_used_or_works() -> None:
    program = """
import importlib
from mray._libraries import ray_names
from mray._libraries.absent import Absent
roots = "_private", "_raylet", "scripts", "dashboard", "autoscaler", "job_submission"
modules = [each for each in ray_names.FILE.read_text().splitlines() if each.startswith("ray.") and each.split(".")[1] in roots]
absent = there = 0
for name in modules:
    module = importlib.import_module(name)
    assert not ray_names.forms(name).keys() - set(dir(module)), name
    for each, (form, _rest) in list(ray_names.forms(name).items())[::6]:
        if form != "from":
            value = getattr(module, each)
            absent, there = absent + isinstance(value, Absent), there + (not isinstance(value, Absent))
print(len(modules) > 300, absent > 300, there > 150)

from ray._private.log_monitor import LogMonitor, WORKER_LOG_PATTERN
class Mine(LogMonitor):
    pass
for use in (Mine, lambda: LogMonitor.x, lambda: list(WORKER_LOG_PATTERN), lambda: 1 in WORKER_LOG_PATTERN, lambda: LogMonitor().x):
    try:
        use()
    except NotImplementedError as error:
        print("not in mray: it is about the inside of Ray" in str(error))
"""
    assert run(program).splitlines() == ["True True True"] + ["True"] * 5


def test_constants_types_and_tables_of_rays_inside_are_rays() -> None:
    program = """
import ray, sys
from ray._private import ray_constants as constants
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray._private.services import ProcessInfo
from ray.job_submission import JobStatus, JobSubmissionClient
from ray.util.state.common import RAY_MAX_LIMIT_FROM_API_SERVER, RAY_MAX_LIMIT_FROM_DATA_SOURCE
print(RAY_JOB_CONFIG_JSON_ENV_VAR, constants.LOG_MONITOR_MAX_OPEN_FILES, constants.RAY_DEDUP_LOGS)
print(RAY_MAX_LIMIT_FROM_API_SERVER, RAY_MAX_LIMIT_FROM_DATA_SOURCE)
assert ray.ray_constants is constants
print(ProcessInfo._fields[:2], JobStatus("FAILED") is JobStatus.FAILED == "FAILED", ray._private.worker.SPILL_WORKER_MODE)
try:
    JobSubmissionClient("http://127.0.0.1:8265")
except NotImplementedError as error:
    print(error)
import importlib, ray._private.runtime_env.packaging as packaging, ray._private.runtime_env.nsight as nsight
print(importlib.reload(packaging) is packaging, open(nsight.__file__).readline().startswith("# The names of Ray"))
"""
    given = {"RAY_LOG_MONITOR_MAX_OPEN_FILES": "7", "RAY_DEDUP_LOGS": "0"}
    limits = {"RAY_MAX_LIMIT_FROM_API_SERVER": "40000", "RAY_MAX_LIMIT_FROM_DATA_SOURCE": "20"}
    assert run(program, **given, **limits).splitlines() == [
        "RAY_JOB_CONFIG_JSON_ENV_VAR 7 False",
        "40000 20",
        "('process', 'stdout_file') True 2",
        (
            "ray.dashboard.modules.job.sdk.JobSubmissionClient is not in mray: "
            "mray has no dashboard; mray top --web and mray list show what runs"
        ),
        "True True",
    ]


def test_functions_of_rays_inside_that_programs_use_work() -> None:
    program = """
import asyncio, sys
import ray
from ray._private.async_compat import has_async_methods, sync_to_async
from ray._private.profiling import profile
from ray._private.state import object_transfer_timeline
from ray._private.worker import BaseContext, RemoteFunction1, global_worker, print_to_stdstream
from ray.actor import _tracing_actor_method_invocation, wrap_auto_init
from ray.experimental.internal_kv import _pin_runtime_env_uri, global_gcs_client
from ray.scripts.scripts import memory_summary
from ray.util.queue import _QueueActor
from ray.util.timer import _Timer

def annotated(function: RemoteFunction1[None, dict[str, int], str]) -> None: ...

with profile("event"), ray.init(num_cpus=1, resources={"x": 2}, logging_level="ERROR") as context:
    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    table = ray._private.state.state.placement_group_table
    print(table(group.id) == table()[group.id.hex()] == ray.util.placement_group_table(group), object_transfer_timeline())
    print(isinstance(context, BaseContext), ray.worker.get_dashboard_url() == "", ray.worker.get_resource_ids())
    print(ray.get(ray.remote(num_cpus=0, resources={"x": 2})(lambda: ray._private.worker.get_resource_ids()).remote()))
    address = global_worker.gcs_client.address
    print(address == global_gcs_client.address, ray.init(address=address, ignore_reinit_error=True)["address"] == address)
    print(", 0 objects," in memory_summary(stats_only=True), _pin_runtime_env_uri("gcs://x", expiration_s=1), wrap_auto_init(len)([1]))
print(has_async_methods(_QueueActor), asyncio.run(sync_to_async(len)([1])), _tracing_actor_method_invocation(len) is len)
timer = _Timer(window_size=2)
with timer:
    pass
for seconds in (1.0, 3.0):
    timer.push(seconds)
timer.push_units_processed(8)
print(timer.count, timer.mean, timer.mean_units_processed, timer.mean_throughput)
print_to_stdstream({"lines": ["a"], "pid": 3, "ip": "1.2.3.4", "actor_name": "A", "task_name": "t", "is_err": False}, ignore_prefix=True)
"""
    assert run(program).splitlines() == [
        "True []",
        "True True {}",
        "{'x': [(0, 1.0), (1, 1.0)]}",
        "True True",
        "True None 1",
        "True 1 True",
        "3 2.0 8.0 2.0",
        "a",
    ]


# --------------------------------------------------------------------------------------------- version
def test_the_version_is_that_of_ray_under_its_name_alone() -> None:
    program = """
import importlib.metadata, ray, mray
from ray import __version__
from mray._common.version import __version__ as ours
print(ray.__version__ == __version__ == importlib.metadata.version("ray") == importlib.metadata.version("Ray"), mray.__version__ == ours)
print(__version__, len(ray.__commit__), ray._version.version == __version__)
print(sum(each.name == "ray" for each in importlib.metadata.distributions()), importlib.metadata.packages_distributions()["ray"]
      if hasattr(importlib.metadata, "packages_distributions") else ["ray"])
try:
    importlib.metadata.version("ray_of_nobody")
except importlib.metadata.PackageNotFoundError:
    print("not found")
"""
    assert run(program).splitlines() == ["True True", "2.60.0 40 True", "1 ['ray']", "not found"]
    assert run(program, MRAY_RAY_VERSION="2.58.1").splitlines() == ["True True", "2.58.1 40 True", "1 ['ray']", "not found"]


# -------------------------------------------------------------------------------------- what is missing
@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("import ray.tune", "ray.tune"),
        ("import ray.tune.search", "ray.tune"),
        ("from ray.tune import run", "ray.tune"),
        ("from ray import tune", "ray.tune"),
        ("import importlib; importlib.import_module('ray.util.spark.utils')", "ray.util.spark"),
    ],
)
def test_a_module_that_is_missing_is_named_with_the_reason(statement: str, missing: str) -> None:
    program = f"try:\n    {statement}\nexcept ImportError as error:\n    print(error.name, '|', error)"
    name, _bar, text = run(program).partition(" | ")
    assert name == missing
    assert text.startswith(f"No module named {missing!r}: this part of Ray is not in mray; ")


def test_what_is_no_part_of_ray_is_missing_as_anywhere() -> None:
    program = """
import importlib.util, ray
print(importlib.util.find_spec("ray.nonsense"), hasattr(ray, "nonsense"), hasattr(ray, "tune"), hasattr(ray.util, "spark"))
for statement in ("import ray.nonsense", "from ray import nonsense", "ray.nonsense", "ray.tune", "import ray.util.queue.nonsense"):
    try:
        exec(statement)
    except Exception as error:
        print(type(error).__name__)
"""
    assert run(program).splitlines() == [
        "None False False False",
        "ModuleNotFoundError",
        "ImportError",
        "AttributeError",
        "AttributeError",
        "ModuleNotFoundError",
    ]


def test_names_that_are_missing_can_be_mentioned_and_say_so_when_they_are_used() -> None:
    program = """
import ray
import warnings

with warnings.catch_warnings(record=True) as warned:
    from ray.data import Dataset, from_pandas_refs

def annotated(data: "Dataset | None") -> ray.data.Dataset | None:
    return data

try:
    raise ValueError
except ray.util.multiprocessing.pool.PoolTaskError:
    raise
except ValueError:
    pass
print(isinstance(3, ray.data.Dataset), issubclass(int, Dataset), ray.data.Dataset is Dataset, hasattr(Dataset, "map"))
for use in (lambda: from_pandas_refs([]), lambda: Dataset.map, lambda: ray.cluster_utils.Cluster()):
    try:
        use()
    except NotImplementedError as error:
        print(error)
"""
    lines = run(program).splitlines()
    assert lines[0] == "False False True False"
    library = "it is one of Ray's libraries: use `mray run --libraries`, or `import mray.libraries` before the first `import ray`"
    assert lines[1] == f"ray.data.from_pandas_refs is not in mray: {library}"
    assert lines[2] == f"ray.data.Dataset is not in mray: {library} (its attribute 'map' was asked for)"
    assert lines[3] == "ray.cluster_utils.Cluster is not in mray: mray runs on one machine, which is one node"


@pytest.mark.parametrize(
    "statement", ["import ray.tune", "from ray import serve", "from ray.train import ScalingConfig", "ray.data.range(3)", "ray.rllib"]
)
def test_a_library_of_ray_names_the_option_that_brings_it(statement: str) -> None:
    program = f"import ray\ntry:\n    {statement}\nexcept Exception as error:\n    print(error)"
    assert run(program).strip().endswith("use `mray run --libraries`, or `import mray.libraries` before the first `import ray`")


def test_the_import_of_a_name_of_a_library_warns_the_program_and_not_a_package_that_annotates_with_it(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "annotates.py"
    package.parent.mkdir()
    package.write_text("from ray.data import Dataset\n")
    program = f"""
import sys, warnings
sys.path.append({str(package.parent)!r})
with warnings.catch_warnings(record=True) as warned:
    import annotates
    from ray.data import Dataset
    from ray.data import ActorPoolStrategy
    import ray
    ray.data.Dataset
for each in warned:
    print(each.lineno, str(each.message).partition(" is not in mray: ")[0], "`mray run --libraries`" in str(each.message))
"""
    assert run(program).splitlines() == ["7 ray.data.Dataset True", "8 ray.data.ActorPoolStrategy True"]


def test_rays_channels_say_what_to_do_instead_and_the_types_beside_them_are_there() -> None:
    program = """
import ray
from ray.experimental.channel import Channel, ChannelContext, Communicator, CPUCommunicator
from ray.experimental.channel.accelerator_context import register_accelerator_context
from ray.experimental.channel.common import ChannelInterface, ChannelOutputType
from ray.experimental.channel.shared_memory_channel import SharedMemoryType
from ray.experimental.channel.torch_tensor_type import TorchTensorType

print(issubclass(TorchTensorType, ChannelOutputType), issubclass(CPUCommunicator, Communicator))
for use in (lambda: Channel(None, []), lambda: ChannelContext.get_current(), SharedMemoryType, ChannelInterface):
    try:
        use()
    except NotImplementedError as error:
        print(str(error).split("; ")[-1].partition(" (")[0])
"""
    assert run(program).splitlines() == ["True True", *["pass values in calls of actors, or compile a graph"] * 4]


# ---------------------------------------------------------------------------------- beside the real Ray
def test_an_installed_ray_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("real = 1")
    assert run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport ray, mray; print(ray.get is mray.get)") == "True"


def test_an_imported_ray_cannot_be_replaced() -> None:
    program = "import sys, types; sys.modules['ray'] = types.ModuleType('ray')\nimport mray.as_ray"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: the package 'ray' is imported already" in done.stderr


def test_installing_twice_is_installing_once() -> None:
    program = "import sys, mray._libraries.facade as f; n = len(sys.meta_path); f.install(); print(len(sys.meta_path) - n)"
    assert run(program) == "0"


def test_mray_alone_installs_nothing() -> None:
    program = "import sys, mray, mray.cli, mray._libraries.facade as f; print('ray' in sys.modules, f.is_installed())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_a_ray_cluster_is_not_reached_through_the_name_that_means_mray() -> None:
    program = """
import ray
try:
    ray.init(address="ray:local")
except ImportError as error:
    print(str(error)[:95])
print(ray.is_initialized())
"""
    assert run(program).splitlines() == [
        "this address names a Ray cluster, and `import ray` means mray in this process (mray run, mray.a",
        "False",
    ]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: request_resources(bundles=[{1: 1}]), TypeError, "each bundle key should be str"),
        (lambda: memory_summary(sort_by="COLOUR"), ValueError, r"sort_by is one of \[.*\], units one of .*; got 'COLOUR' and 'B'"),
        (
            lambda: parse_runtime_env_args("env.yaml", "{}"),
            ValueError,
            "Only one of --runtime_env and --runtime-env-json can be provided",
        ),
    ],
    ids=["bundles", "order", "environments"],
)
def test_a_function_of_rays_libraries_refuses_a_wrong_argument(call: Callable[[], object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
