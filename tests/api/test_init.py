"""Starting and stopping: `init`, the context it returns, `shutdown`, implicit start, namespaces."""

from __future__ import annotations

import ast
import asyncio
import concurrent.futures
import inspect
import json
import os
import tempfile
import textwrap
import threading
import types

import pytest

from tests.api.conftest import MODULE

FUNCTIONS = {
    "available_resources", "cancel", "cluster_resources", "get", "get_actor", "get_gpu_ids", "get_runtime_context",
    "init", "is_initialized", "kill", "method", "nodes", "put", "remote", "shutdown", "timeline", "wait",
}  # fmt: skip


def test_all_functions_of_the_face_are_there(ray):
    assert {name for name in FUNCTIONS if isinstance(getattr(ray, name, None), types.FunctionType)} == FUNCTIONS


@pytest.mark.only("mray", "local")
def test_all_names_in_dunder_all_exist(ray):
    assert [name for name in ray.__all__ if not hasattr(ray, name)] == []


def test_init_starts_and_shutdown_stops(fresh, init):
    ray = fresh
    assert not ray.is_initialized()
    init(num_cpus=1)
    assert ray.is_initialized()
    ray.shutdown()
    assert not ray.is_initialized()
    ray.shutdown()


def test_init_twice_is_an_error_unless_told_to_ignore_it(fresh, init):
    init(num_cpus=1)
    with pytest.raises(RuntimeError, match="Maybe you called ray.init twice by accident"):
        fresh.init()
    init(ignore_reinit_error=True)
    assert fresh.is_initialized()


def test_an_unknown_keyword_is_named(fresh):
    with pytest.raises(RuntimeError, match="no_such_option"):
        fresh.init(no_such_option=1)
    assert not fresh.is_initialized()


def test_arguments_of_init_are_checked(run_program):
    program = """
    import ENGINE as ray

    for given in (
        {"_system_config": 3}, {"num_cpus": -1}, {"num_cpus": 1.5}, {"resources": {"a": -1}},
        {"resources": {"a": 2.5}}, {"object_store_memory": 10},
    ):
        try:
            ray.init(logging_level="ERROR", include_dashboard=False, **given)
        except (TypeError, ValueError) as error:
            print(type(error).__name__, error)
        ray.shutdown()
    """
    wanted = [
        "TypeError The _system_config must be a dict",
        "ValueError Resource quantities must be nonnegative. Violated by resource 'CPU'",
        "ValueError Resource quantities must all be whole numbers. Violated by resource 'CPU'",
        "ValueError Resource quantities must be nonnegative. Violated by resource 'a'",
        "ValueError Resource quantities must all be whole numbers. Violated by resource 'a'",
        "ValueError Attempting to cap object store memory usage at 10 bytes, but the minimum allowed is",
    ]
    lines = run_program(program).stdout.splitlines()
    assert len(lines) == len(wanted)
    assert all(line.startswith(text) for line, text in zip(lines, wanted, strict=True))


def test_the_address_may_be_local(fresh):
    fresh.init("local", num_cpus=1, logging_level="ERROR", include_dashboard=False)
    assert fresh.cluster_resources()["CPU"] == 1


@pytest.mark.parametrize("address", ["nonsense", ""])
def test_an_address_that_is_none_is_refused(fresh, address):
    with pytest.raises(ValueError, match=f"Invalid address format: {address}"):
        fresh.init(address)
    assert not fresh.is_initialized()


@pytest.mark.filterwarnings("ignore:Accessing values through ctx:DeprecationWarning")
def test_the_context_is_a_mapping(fresh, init):
    context = init(num_cpus=1)
    assert context["node_id"] == fresh.nodes()[0]["NodeID"]
    assert context["session_dir"] == context.address_info["session_dir"]
    assert "session_dir" in context
    assert "nothing" not in context
    assert context.get("nothing") is None
    with pytest.raises(KeyError):
        context["nothing"]


def test_the_context_ends_the_session_when_left(fresh, init):
    with init(num_cpus=1):
        assert fresh.get(fresh.put(1)) == 1
    assert not fresh.is_initialized()


def test_disconnect_of_the_context_ends_the_session(fresh, init):
    init(num_cpus=1).disconnect()
    assert not fresh.is_initialized()


def test_remote_put_and_context_start_a_session_by_themselves(fresh):
    ray = fresh

    @ray.remote
    def f():
        return 1

    assert ray.get(f.remote()) == 1
    assert ray.is_initialized()


def test_put_starts_a_session_by_itself(fresh):
    assert fresh.get(fresh.put(1)) == 1
    assert fresh.is_initialized()


def test_functions_and_classes_survive_a_new_session(fresh, init):
    ray = fresh

    @ray.remote
    def f():
        return 1

    @ray.remote
    class A:
        def g(self):
            return 2

    for _ in range(2):
        init(num_cpus=1)
        assert ray.get(f.remote()) == 1
        actor = A.remote()
        assert ray.get(actor.g.remote()) == 2
        ray.shutdown()


def test_refs_of_an_old_session_are_rejected(fresh, init, engine):
    ray = fresh

    @ray.remote
    def f(value):
        return value

    @ray.remote
    class A:
        def f(self):
            return 1

        def items(self):
            yield 1

    init(num_cpus=1)
    stored, computed, actor = ray.put(1), f.remote(1), A.remote()
    called, items = actor.f.remote(), actor.items.remote()
    ray.wait([computed, called, items], num_returns=3)
    ray.shutdown()
    init(num_cpus=1)
    live = [ray.put(0), ray.put(2)][1]  # Ray numbers what is put
    for old in (stored, computed, called):
        with pytest.raises(ValueError, match="Ray objects whose owner is unknown"):
            ray.get(old)
        with pytest.raises(ValueError, match="Ray objects whose owner is unknown"):
            ray.get([live, old])
        with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
            f.remote(old)
        with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
            f.remote([old])
        with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
            ray.wait([old], timeout=0)
        with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
            ray.wait([live, old], num_returns=2, timeout=0)
        # It is never ready, whatever else there is to wait for. (Ray may refuse the list when it comes first.)
        mixed = [live, old] if engine == "ray" else [old, live]
        assert ray.wait(mixed, timeout=1) == ([live], [old])
        with pytest.raises(TypeError, match="No owner found for object"):
            ray.cancel(old)
    with pytest.raises(TypeError, match="No owner found for object"):
        ray.cancel(items)
    with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
        ray.wait([stored, computed], num_returns=2, timeout=0)


@pytest.mark.differs("who awaits a ref of an ended session is told so; Ray lets it wait for ever")
def test_who_awaits_a_ref_of_an_old_session_is_told(fresh, init, engine):
    ray = fresh
    init(num_cpus=1)
    old = ray.put(1)
    ray.shutdown()
    init(num_cpus=1)

    async def waits():
        return await old

    async def awaited():
        return await asyncio.wait_for(waits(), 0.2 if engine == "ray" else None)

    if engine == "ray":
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(awaited())
        with pytest.raises(concurrent.futures.TimeoutError):
            old.future().result(0.2)
        return
    with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
        asyncio.run(awaited())
    with pytest.raises(ValueError, match="Ray objects whose owner is unknown"):
        old.future().result()


@pytest.mark.only("mray", "local")
def test_ids_that_nobody_made_are_rejected(fresh, init):
    """Ray waits for them for ever."""
    ray = fresh
    init(num_cpus=1)
    live, made_up = ray.put(1), ray.ObjectRef.from_random()
    with pytest.raises(ValueError, match="Ray objects whose owner is unknown"):
        ray.get(made_up)
    with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
        ray.wait([made_up], timeout=0)
    with pytest.raises(ValueError, match="Ray object whose owner is unknown"):
        ray.wait([live, made_up], num_returns=2, timeout=0)
    assert ray.wait([made_up, live], timeout=1) == ([live], [made_up])
    with pytest.raises(TypeError, match="No owner found for object"):
        ray.cancel(made_up)


def test_actors_of_an_old_session_are_rejected(fresh, init):
    ray = fresh

    @ray.remote
    class A:
        def f(self):
            return 1

    init(num_cpus=1)
    actor = A.options(name="actor").remote()
    handles = [actor, ray.get_actor("actor")]
    ray.shutdown()
    init(num_cpus=1)
    other = A.remote()
    for handle in handles:
        with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="ActorHandle objects are not valid across Ray sessions"):
            ray.kill(handle)
        with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="ActorHandle objects are not valid across Ray sessions"):
            ray.kill(handle, no_restart=False)
        with pytest.raises(Exception, match="(?i)session|actor"):
            handle.f.remote()
    assert ray.get(other.f.remote()) == 1


@pytest.mark.only("mray", "local")
def test_an_actor_of_an_old_session_cannot_be_passed_on(fresh, init):
    """Ray ends the program."""
    ray = fresh

    @ray.remote
    class A:
        pass

    init(num_cpus=1)
    actor = A.remote()
    ray.shutdown()
    init(num_cpus=1)
    with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="ActorHandle objects are not valid across Ray sessions"):
        ray.put([actor])


def test_resources_given_to_init_are_what_there_is(fresh, init):
    init(num_cpus=3, num_gpus=1, resources={"custom": 2}, object_store_memory=100 * 1024 * 1024)
    total = fresh.cluster_resources()
    assert (total["CPU"], total["GPU"], total["custom"]) == (3, 1, 2)
    assert total["object_store_memory"] == 100 * 1024 * 1024
    assert total["memory"] > 0


def test_custom_resources_may_not_be_called_cpu_or_gpu(fresh):
    with pytest.raises((ValueError, AssertionError)):
        fresh.init(resources={"CPU": 1}, logging_level="ERROR")


@pytest.mark.parametrize("namespace", [1, b"x", ["x"]])
def test_a_namespace_must_be_a_string(fresh, namespace):
    with pytest.raises((TypeError, ValueError)):
        fresh.init(namespace=namespace, num_cpus=1, logging_level="ERROR")


def test_an_empty_namespace_is_an_error(fresh):
    with pytest.raises(ValueError):
        fresh.init(namespace="", num_cpus=1, logging_level="ERROR")


def test_the_namespace_is_what_init_said(fresh, init):
    init(num_cpus=1, namespace="mine")
    assert fresh.get_runtime_context().namespace == "mine"

    @fresh.remote
    def f():
        return fresh.get_runtime_context().namespace

    assert fresh.get(f.remote()) == "mine"


def test_without_a_namespace_one_is_made_up(fresh, init):
    init(num_cpus=1)
    assert fresh.get_runtime_context().namespace


def test_the_temp_dir_must_be_absolute(fresh):
    with pytest.raises(ValueError, match="absolute"):
        fresh.init(num_cpus=1, _temp_dir="somewhere", logging_level="ERROR")


def test_the_temp_dir_holds_the_session(fresh, init, tmp_path_factory):
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as directory:
        context = init(num_cpus=1, _temp_dir=directory)
        assert context["session_dir"].startswith(directory)
        fresh.shutdown()


def test_resources_may_be_overridden_by_the_environment(fresh, init, monkeypatch):
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", json.dumps({"CPU": 7, "custom": 3}))
    init(resources={"custom": 1})
    assert fresh.cluster_resources()["CPU"] == 7
    assert fresh.cluster_resources()["custom"] == 3


def test_labels_are_those_of_init_and_of_the_environment(fresh, init, monkeypatch):
    monkeypatch.setenv("RAY_OVERRIDE_LABELS", json.dumps({"zone": "b"}))
    init(num_cpus=1, labels={"zone": "a", "rack": "1"})
    labels = fresh.get_runtime_context().get_node_labels()
    assert (labels["zone"], labels["rack"]) == ("b", "1")


def test_the_folder_of_sessions_may_come_from_the_environment(fresh, init, monkeypatch):
    monkeypatch.delenv("MRAY_TMPDIR", raising=False)
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as directory:
        monkeypatch.setenv("RAY_TMPDIR", directory)
        assert init(num_cpus=1).address_info["session_dir"].startswith(directory)
        fresh.shutdown()


def test_without_num_cpus_all_cores_that_may_be_used_count(fresh, init):
    import os

    init()
    assert 1 <= fresh.cluster_resources()["CPU"] <= len(os.sched_getaffinity(0))


def test_a_session_may_start_in_a_driver_with_threads(fresh, init):
    ray = fresh
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        init(num_cpus=1)

        @ray.remote
        def f():
            return threading.active_count()

        assert ray.get(f.remote()) >= 1
    finally:
        stop.set()
        thread.join()


@pytest.mark.only("mray", "local")
def test_a_session_may_start_in_another_thread(fresh, init):
    ray = fresh
    results = []

    def run():
        init(num_cpus=1)
        results.append(ray.get(ray.put(5)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [5]
    assert ray.get(ray.put(6)) == 6


def test_arguments_that_mean_nothing_on_one_host_are_accepted(fresh, init):
    init(
        num_cpus=1,
        include_dashboard=False,
        dashboard_host="127.0.0.1",
        dashboard_port=None,
        configure_logging=True,
        labels={"zone": "a"},
        log_to_driver=False,
    )
    assert fresh.is_initialized()


@pytest.mark.processes("a niceness is a process's")
def test_workers_are_as_nice_as_a_variable_of_ray_says(fresh, init, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "5")
    init(num_cpus=1)
    niceness = fresh.remote(lambda: os.nice(0))
    assert fresh.get(niceness.remote()) == os.nice(0) + 5


def test_without_auto_init_verbs_say_that_ray_is_not_started(run_program):
    done = run_program(
        """
        import ENGINE as ray

        for verb, arguments in [
            ("get", ([],)), ("put", (1,)), ("wait", ([],)), ("kill", (None,)), ("get_gpu_ids", ()),
            ("cluster_resources", ()), ("nodes", ()),
        ]:
            try:
                getattr(ray, verb)(*arguments)
            except ray.exceptions.RaySystemError as error:
                print(verb, "Ray has not been started yet" in str(error))
        print(ray.is_initialized())
        """,
        env={"RAY_ENABLE_AUTO_CONNECT": "0"},
    )
    assert done.stdout.splitlines() == [
        "get True", "put True", "wait True", "kill True", "get_gpu_ids True", "cluster_resources True", "nodes True", "False",
    ]  # fmt: skip


def test_the_log_says_that_an_instance_was_started(run_program, engine):
    done = run_program("import ENGINE as ray\nray.init(num_cpus=1, include_dashboard=False)\n")
    assert f"Started a local {'Ray' if engine == 'ray' else 'mray'} instance." in done.stderr


def test_a_session_that_starts_by_itself_is_what_init_would_have_started(run_program, engine):
    program = """
    import json, logging
    import ENGINE as ray

    @ray.remote
    def task():
        logging.getLogger("mine").warning("in the task")

    ray.get(task.remote())
    logging.getLogger("mine").warning("in the driver")
    assert ray.get_runtime_context().runtime_env.get("env_vars") == {"HOOKED": "yes"}
    ray.shutdown()
    """
    hook = "def change(runtime_env):\n    return {**(runtime_env or {}), 'env_vars': {'HOOKED': 'yes'}}\n"
    run_program(hook + "if __name__ == '__main__': pass\n", name="hooks.py")
    done = run_program(program, env={"RAY_LOGGING_CONFIG_ENCODING": "JSON", "RAY_RUNTIME_ENV_HOOK": "hooks.change"})
    told = [json.loads(line.partition("{")[1] + line.partition("{")[2])["message"] for line in done.stderr.splitlines() if "{" in line]
    assert {f"Started a local {'Ray' if engine == 'ray' else 'mray'} instance.", "in the task", "in the driver"} <= set(told)


def test_the_log_is_silent_at_level_error(run_program):
    done = run_program("import ENGINE as ray\nray.init(num_cpus=1, include_dashboard=False, logging_level='ERROR')\n")
    assert "Started a local" not in done.stderr


@pytest.mark.parametrize("kind", ["ObjectID", "TaskID", "ActorID", "JobID", "NodeID", "WorkerID"])
def test_ids_are_values(ray, kind):
    Id = getattr(ray, kind)
    if kind == "JobID":
        some = Id(b"abcd"[: Id.size()])
    else:
        some = Id.from_random() if hasattr(Id, "from_random") else Id(bytes(range(Id.size())))
    assert not some.is_nil()
    assert Id.nil().is_nil()
    assert len(some.binary()) == Id.size()
    assert some.hex() == some.binary().hex()
    assert Id(some.binary()) == some
    assert hash(Id(some.binary())) == hash(some)
    assert Id.nil() != some
    if kind != "ObjectID":
        assert Id.from_hex(some.hex()) == some


@pytest.mark.parametrize("kind", ["ObjectID", "TaskID", "ActorID", "JobID", "NodeID", "WorkerID", "ClusterID", "PlacementGroupID"])
def test_ids_are_made_of_bytes_of_their_length(ray, kind):
    Id = getattr(ray, kind)
    with pytest.raises(TypeError, match="Unsupported type: <class 'str'>, expected bytes"):
        Id("ab")
    with pytest.raises(ValueError, match=f"ID string needs to have length {Id.size()}, got 2"):
        Id(b"ab")


def test_the_functions_of_the_module_are_these_and_no_more(ray):
    wanted = (
        "init is_initialized remote get wait put kill cancel get_actor get_gpu_ids shutdown method nodes timeline cluster_resources "
        "available_resources java_function java_actor_class client get_runtime_context __getattr__"
    )
    assert {name for name in dir(ray) if inspect.isfunction(getattr(ray, name))} == set(wanted.split())
    assert not [name for name in dir(ray) if isinstance(getattr(ray, name), str) and not name.startswith("__")]


def test_modules_of_the_package_need_no_import(run_program):
    program = """
    import ENGINE as ray
    print(ray.runtime_env.RuntimeEnv(env_vars={"A": "b"})["env_vars"], ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: 7))())
    import ENGINE.cloudpickle as pickle
    print(pickle.loads(pickle.dumps([1])))
    from ENGINE.types import ObjectRef
    from ENGINE.remote_function import RemoteFunction
    print(isinstance(ray.remote(lambda: 1), RemoteFunction), ObjectRef[int] is not None)
    """
    assert run_program(program).stdout.splitlines() == ["{'A': 'b'} 7", "[1]", "True True"]


def test_an_object_id_is_an_object_ref(ray):
    assert ray.ObjectID is ray.ObjectRef


@pytest.mark.only("mray", "local")
def test_preloaded_modules_are_imported_before_any_task(fresh, init):
    init(num_cpus=1, preload=["colorsys"])

    @fresh.remote
    def f():
        import sys

        return "colorsys" in sys.modules

    assert fresh.get(f.remote())


FORESEEN = """
import os, sys
import ENGINE as ray
job = {"env_vars": {"OMP_NUM_THREADS": "1", "TRANSFORMERS_MODE": "job"}}
ray.init(num_cpus=2, logging_level="ERROR", preload="auto", runtime_env=job)

@ray.remote
class Model:
    def __init__(self):
        there = "transformers" in sys.modules
        import transformers
        self.info = there, transformers.PID == os.getpid(), transformers.MODE

    def get(self):
        return self.info

own = {"runtime_env": {"env_vars": {"TRANSFORMERS_MODE": "own"}}}
print(ray.get([actor.get.remote() for actor in (Model.remote(), Model.remote(), Model.options(**own).remote())]))
"""


@pytest.mark.only("mray")
def test_what_workers_imported_is_loaded_once_in_the_next_session_of_the_program(run_program, tmp_path):
    # It stands for the package of this name: one whose import takes long, and reads a variable.
    module = tmp_path / "transformers.py"
    module.write_text("import os, time; time.sleep(0.11); PID = os.getpid(); MODE = os.getenv('TRANSFORMERS_MODE')")
    env = {"MRAY_CACHE_DIR": str(tmp_path / "cache")}
    own = (False, True, "own")
    assert ast.literal_eval(run_program(FORESEEN, env=env).stdout) == [(False, True, "job"), (False, True, "job"), own]
    assert os.stat(tmp_path / "cache" / "imports").st_mode & 0o777 == 0o700
    assert ast.literal_eval(run_program(FORESEEN, env=env).stdout) == [(False, False, "job"), (False, False, "job"), own]

    # One that ends the zygote is tried once.
    module.write_text(f"import os; os.close(os.open({str(tmp_path / 'tried')!r}, os.O_CREAT | os.O_EXCL)); os._exit(9)")
    program = """
    import ENGINE as ray
    ray.init(num_cpus=1, logging_level="ERROR", preload="auto")
    print(ray.get(ray.remote(lambda: 7).remote()))
    """
    assert run_program(program, env=env).stdout == "7\n"
    assert (tmp_path / "tried").exists()


@pytest.mark.only("mray", "local")
def test_a_module_that_cannot_be_preloaded_is_named(fresh):
    with pytest.raises((RuntimeError, ImportError), match="no_such_module_here"):
        fresh.init(num_cpus=1, preload=["no_such_module_here"])
    assert not fresh.is_initialized()


GUEST = """
import os, sys
import ENGINE as ray
how, address = sys.argv[1:]
ray.init(address=how, namespace="of both", logging_level="ERROR")

@ray.remote(num_cpus=0)
def own():
    return os.environ.get("OF_THE_JOB"), ray.get_runtime_context().gcs_address == address

print(ray.get(ray.get_actor("it").get.remote()), ray.get(own.remote()), ray.get_runtime_context().gcs_address == address)
ray.shutdown()
"""


@pytest.mark.processes("another process")
@pytest.mark.parametrize("auto", ["", "auto"])
def test_a_program_that_a_worker_starts_joins_the_session_by_the_address_of_its_context(run_program, tmp_path, auto):
    (tmp_path / "guest.py").write_text(GUEST.replace("ENGINE", MODULE))
    program = """
    import os, subprocess, sys
    import ENGINE as ray
    job = {"env_vars": {"OF_THE_JOB": "1", "OMP_NUM_THREADS": "3"}}
    ray.init(num_cpus=2, namespace="of both", runtime_env=job, logging_level="ERROR", include_dashboard=False)

    @ray.remote(max_concurrency=2)
    class It:
        def get(self):
            return os.environ.get("OF_THE_JOB")

        def start(self, how, *command):
            address = ray.get_runtime_context().gcs_address
            return subprocess.check_output([*command, how or address, address], text=True)

    it = It.options(name="it").remote()
    print(ray.get(it.start.remote(sys.argv[2], sys.executable, sys.argv[1])), ray.get(it.get.remote()), end="")
    """
    assert run_program(program, str(tmp_path / "guest.py"), auto).stdout == "1 (None, True) True\n 1"


@pytest.mark.only("mray")
@pytest.mark.processes("another process")
def test_a_guests_workers_have_nothing_of_what_the_starter_preloads_with_its_variables(run_program, tmp_path):
    (tmp_path / "reads.py").write_text(
        "import os; TOKEN, NAME = os.environ.get('TOKEN'), os.urandom(8); POPPED = os.environ.pop('POPPED', None)"
    )
    (tmp_path / "guest.py").write_text(
        textwrap.dedent(
            """
            import json, os, sys
            import ENGINE as ray
            address, variables = sys.argv[1:]
            ray.init(address=address, runtime_env={"env_vars": json.loads(variables)}, logging_level="ERROR")

            @ray.remote
            def look():
                import reads
                shown = [open(f"/proc/{process}/environ").read() for process in ("self", os.getppid())]
                return (reads.TOKEN, os.environ.get("TOKEN"), reads.POPPED, any("of the starter" in each for each in shown)), reads.NAME

            (seen, name), *rest = ray.get([look.remote() for _ in range(3)])
            print(json.dumps([seen, name.hex()]))
            ray.shutdown()
            """
        ).replace("ENGINE", MODULE)
    )
    program = """
    import json, subprocess, sys
    import ENGINE as ray
    job = {"TOKEN": "of the starter", "POPPED": "1"}
    context = ray.init(num_cpus=2, preload=["reads"], runtime_env={"env_vars": job}, logging_level="ERROR")

    @ray.remote
    def look():
        import reads
        return reads.TOKEN, reads.POPPED, reads.NAME.hex()

    *mine, name = ray.get(look.remote())
    print(json.dumps(mine))
    for variables in ({}, {"TOKEN": "of the guest"}, {"OTHER": "1"}, job):
        words = [context.address_info["gcs_address"], json.dumps(variables)]
        seen, guests = json.loads(subprocess.check_output([sys.executable, sys.argv[1], *words], text=True))
        print(json.dumps([*seen, guests == name]))
    """
    printed = run_program(program, str(tmp_path / "guest.py")).stdout.splitlines()
    starter, *guests = map(json.loads, printed)
    assert starter == ["of the starter", "1"]
    assert guests[:3] == [
        [None, None, None, False, False],
        ["of the guest", "of the guest", None, False, False],
        [None, None, None, False, False],
    ]
    assert guests[3] == ["of the starter", "of the starter", "1", True, False]  # its own variables, in an import of its own


@pytest.mark.only("mray")
def test_a_driver_that_has_joined_anothers_session_is_told_when_that_one_ends_it(run_program, tmp_path):
    (tmp_path / "guest.py").write_text(
        textwrap.dedent(
            """
            import sys, threading
            import mray
            mray.init(address=sys.argv[1], logging_level="ERROR")
            ref = mray.remote(lambda: threading.Event().wait()).remote()
            print("waits", flush=True)
            try:
                mray.get(ref)
            except mray.exceptions.RayError as error:
                print(error)
            try:
                mray.init(address=sys.argv[1])
            except (RuntimeError, ConnectionError) as error:
                print(type(error).__name__)
            """
        )
    )
    program = """
    import subprocess, sys
    import mray
    from mray.util.state import list_jobs
    address = mray.init(num_cpus=2, logging_level="ERROR")["address"]
    guest = subprocess.Popen([sys.executable, sys.argv[1], address], stdout=subprocess.PIPE, text=True)
    print(guest.stdout.readline(), len(list_jobs()), end=" ")
    mray.shutdown()
    print(guest.communicate()[0], guest.returncode)
    """
    said = run_program(program, str(tmp_path / "guest.py")).stdout
    assert said.startswith("waits\n 2 ") and said.endswith(" 0\n"), said
    assert "has ended: shutdown" in said, said
