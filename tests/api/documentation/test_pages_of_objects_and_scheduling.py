"""Programs for the pages of Ray Core's documentation on objects, scheduling and environments.

Runs on mray and on real Ray. `test_the_pages` looks whether the programs use what their pages present.
"""

from __future__ import annotations

import importlib
import os
import threading

import pytest

#: The programs of a page, by the page's path in the documentation.
PAGES = {
    "starting-ray": "init is_initialized shutdown ignore_reinit_error num_cpus",
    "namespaces": "init namespace get_runtime_context lifetime disconnect",
    "objects": "put get wait ObjectRef hex binary",
    "objects/serialization": "register_serializer serializer deserializer deregister_serializer inspect_serializability __reduce__"
    " RayTaskError cause",
    "scheduling/index": "scheduling_strategy DEFAULT SPREAD NodeAffinitySchedulingStrategy node_id soft get_node_id",
    "scheduling/resources": "num_cpus num_gpus memory resources options cluster_resources available_resources get_assigned_resources",
    "scheduling/labels": "labels label_selector get_node_labels bundle_label_selector",
    "scheduling/placement-group": "placement_group bundles strategy STRICT_PACK PACK lifetime name ready wait bundle_specs bundle_count"
    " placement_group_table remove_placement_group get_placement_group get_current_placement_group PlacementGroupSchedulingStrategy"
    " placement_group_bundle_index placement_group_capture_child_tasks",
    "scheduling/accelerators": "num_gpus get_gpu_ids CUDA_VISIBLE_DEVICES get_accelerator_ids max_calls",
    "handling-dependencies": "runtime_env env_vars working_dir py_modules excludes config eager_install RuntimeEnv RuntimeEnvConfig"
    " setup_timeout_seconds worker_process_setup_hook",
    "miscellaneous": "options num_returns name nodes NodeID Alive alive NodeManagerAddress NodeManagerHostname Resources",
    "patterns/generators": "num_returns",
}


def module(ray, name):
    return importlib.import_module(f"{ray.__name__}.{name}")


def test_page_starting_ray(init, fresh):
    ray = fresh
    assert not ray.is_initialized()
    init(num_cpus=1)
    assert ray.is_initialized()
    with pytest.raises(RuntimeError, match="ignore_reinit_error"):
        init(num_cpus=1)
    ray.init(ignore_reinit_error=True)
    ray.shutdown()
    assert not ray.is_initialized()
    ray.shutdown()


def test_page_namespaces(init, fresh):
    ray = fresh

    class Named:
        def read(self):
            return ray.get_runtime_context().namespace

    context = init(num_cpus=1, namespace="fruits")
    named = ray.remote(num_cpus=0)(Named)
    assert ray.get_runtime_context().namespace == "fruits"
    orange = named.options(name="orange", lifetime="detached").remote()
    assert ray.get(orange.read.remote()) == "fruits"
    other = named.options(name="orange", namespace="colors", lifetime="detached").remote()
    assert ray.get_actor("orange", namespace="colors") == other != orange
    context.disconnect()


def test_page_objects(ray_session):
    ray = ray_session
    ref = ray.put([1, 2, 3])
    assert isinstance(ref, ray.ObjectRef)
    assert bytes.fromhex(ref.hex()) == ref.binary()
    assert ray.wait([ref]) == ([ref], [])

    @ray.remote(num_cpus=0)
    def top_level(value):
        return type(value).__name__

    @ray.remote(num_cpus=0)
    def nested(values):
        return type(values[0]).__name__, sum(ray.get(values[0]))

    captured = ref

    @ray.remote(num_cpus=0)
    def by_closure():
        return sum(ray.get(captured))

    assert ray.get(top_level.remote(ref)) == "list"
    assert ray.get(nested.remote([ref])) == ("ObjectRef", 6)
    assert ray.get(by_closure.remote()) == 6


def test_page_objects_serialization(ray_session):
    ray = ray_session

    class Held:
        def __init__(self, value):
            self.value = value
            self.lock = threading.Lock()

    class Reduced(Held):
        def __reduce__(self):
            return Reduced, (self.value,)

    assert ray.get(ray.put(Reduced(3))).value == 3
    one = {1}
    first, second = ray.get(ray.put([one, one]))
    assert first is second
    with pytest.raises(TypeError):
        ray.put(Held(1))
    ray.util.register_serializer(Held, serializer=lambda held: held.value, deserializer=Held)
    assert ray.get(ray.put(Held(2))).value == 2
    ray.util.deregister_serializer(Held)
    with pytest.raises(TypeError):
        ray.put(Held(1))
    ray.util.deregister_serializer(Held)

    class HeldError(Exception):
        def __init__(self, word):
            super().__init__(word)
            self.word = word
            self.lock = threading.Lock()

    def register():
        ray.util.register_serializer(HeldError, serializer=lambda error: error.word, deserializer=HeldError)

    @ray.remote(num_cpus=0)
    def fail():
        register()
        raise HeldError("all there")

    register()
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    assert caught.value.cause.word == "all there"
    ray.util.deregister_serializer(HeldError)

    lock = threading.Lock()
    good, found = ray.util.inspect_serializability(lambda: lock, name="holds")
    assert not good
    assert found


def test_page_objects_serialization_of_arrays(ray_session):
    ray = ray_session
    numpy = pytest.importorskip("numpy")

    @ray.remote(num_cpus=0)
    def write(array):
        array[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        ray.get(write.remote(numpy.zeros(100_000)))


def test_page_scheduling_index(ray_session):
    ray = ray_session
    strategies = module(ray, "util.scheduling_strategies")

    @ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
    def where():
        return ray.get_runtime_context().get_node_id()

    here = ray.get_runtime_context().get_node_id()
    hard = strategies.NodeAffinitySchedulingStrategy(node_id=here, soft=False)
    soft = strategies.NodeAffinitySchedulingStrategy(node_id="e" * len(here), soft=True)
    asked = [where.remote(), *[where.options(scheduling_strategy=each).remote() for each in ("DEFAULT", hard, soft)]]
    assert set(ray.get(asked)) == {here}
    with pytest.raises(ray.exceptions.TaskUnschedulableError):
        nowhere = strategies.NodeAffinitySchedulingStrategy(node_id="e" * len(here), soft=False)
        ray.get(where.options(scheduling_strategy=nowhere).remote())


def test_page_scheduling_resources(ray_session):
    ray = ray_session
    assert {name: ray.cluster_resources()[name] for name in ("CPU", "GPU", "custom")} == {"CPU": 4, "GPU": 2, "custom": 2}
    assert set(ray.available_resources()) >= {"CPU", "GPU", "memory"}

    @ray.remote(num_cpus=2, num_gpus=1, memory=1 << 20, resources={"custom": 1})
    def given():
        return ray.get_runtime_context().get_assigned_resources()

    @ray.remote(num_cpus=0, num_gpus=0.5)
    class Actor:
        def given(self):
            return ray.get_runtime_context().get_assigned_resources()

    had = ray.get(given.remote())
    assert (had["CPU"], had["GPU"], had["custom"]) == (2, 1, 1)
    assert ray.get(given.options(num_cpus=1, num_gpus=0, resources={"custom": 0.001}).remote())["custom"] == 0.001
    assert ray.get(Actor.options(num_gpus=0.6).remote().given.remote())["GPU"] == 0.6


def test_page_scheduling_labels(init, fresh):
    ray = fresh
    init(num_cpus=2, labels={"stage": "trial", "zone": "west"})

    def labels():
        return ray.get_runtime_context().get_node_labels()

    @ray.remote(label_selector={"zone": "west"})
    def f():
        return labels()

    @ray.remote(num_cpus=0, label_selector={"stage": "!real"})
    class Actor:
        def read(self):
            return labels()

    seen = ray.get(f.remote())
    assert (seen["stage"], seen["zone"]) == ("trial", "west")
    assert seen["ray.io/node-id"] == ray.get_runtime_context().get_node_id()
    assert ray.get(f.options(label_selector={"zone": "in(east,west)"}).remote()) == seen
    assert ray.get(Actor.remote().read.remote()) == seen
    assert ray.get(Actor.options(label_selector={"zone": "!in(north,south)"}).remote().read.remote()) == seen
    group = ray.util.placement_group(bundles=[{"CPU": 1}], bundle_label_selector=[{"zone": "west", "stage": "in(trial)"}])
    assert group.wait(30)


def test_page_scheduling_placement_group(ray_session):
    ray = ray_session
    util, strategies = ray.util, module(ray, "util.scheduling_strategies")
    group = util.placement_group(bundles=[{"CPU": 1, "GPU": 1}, {"CPU": 1}], strategy="STRICT_PACK", name="the-group")
    assert ray.get(group.ready()) == group
    assert group.wait(30)
    assert (group.bundle_count, group.bundle_specs) == (2, [{"CPU": 1, "GPU": 1}, {"CPU": 1}])
    assert util.get_placement_group("the-group") == group
    record = util.placement_group_table(group)
    assert (record["state"], record["strategy"], record["name"]) == ("CREATED", "STRICT_PACK", "the-group")

    @ray.remote(num_cpus=1)
    class Actor:
        def group(self):
            return ray.util.get_current_placement_group()

    @ray.remote(num_cpus=0)
    def current():
        return ray.util.get_current_placement_group()

    @ray.remote(num_cpus=0)
    def parent():
        outside = strategies.PlacementGroupSchedulingStrategy(placement_group=None)
        return ray.get([current.remote(), current.options(scheduling_strategy=outside).remote()])

    def within(**options):
        return strategies.PlacementGroupSchedulingStrategy(placement_group=group, **options)

    first = Actor.options(num_gpus=1, scheduling_strategy=within(placement_group_bundle_index=0)).remote()
    assert ray.get(first.group.remote()) == group
    catching = parent.options(scheduling_strategy=within(placement_group_capture_child_tasks=True))
    assert ray.get(catching.remote()) == [group, None]
    assert ray.get(parent.options(scheduling_strategy=within()).remote()) == [None, None]

    later = util.placement_group([{"GPU": 2}], strategy="PACK")
    assert not later.wait(0.01)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(later.ready(), timeout=0.01)
    kept = util.placement_group([{"CPU": 1}], lifetime="detached", name="kept")
    assert kept.wait(30)
    for each in (group, later, kept):
        util.remove_placement_group(each)
    while util.placement_group_table(group)["state"] != "REMOVED":
        pass
    with pytest.raises(ray.exceptions.RayActorError):
        while True:
            ray.get(first.group.remote())
    assert util.get_current_placement_group() is None


def test_page_scheduling_accelerators(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0, num_gpus=1)
    class Whole:
        def read(self):
            return ray.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")

    @ray.remote(num_cpus=0, num_gpus=0.5, max_calls=1)
    def half():
        return ray.get_runtime_context().get_accelerator_ids()["GPU"]

    actor = Whole.remote()
    (own,), visible = ray.get(actor.read.remote())
    assert visible == str(own)
    other = str(1 - own)
    assert ray.get([half.remote(), half.remote()]) == [[other], [other]]


@pytest.mark.processes("an environment is a process's own")
def test_page_handling_dependencies(init, fresh, tmp_path):
    ray = fresh
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "greeting.txt").write_text("found")
    (tmp_path / "work" / "big.bin").write_text("left out")
    (tmp_path / "documented_module").mkdir()
    (tmp_path / "documented_module" / "__init__.py").write_text("WORD = 'imported'")

    def set_up():
        os.environ["SET_UP"] = "yes"

    environment = ray.runtime_env.RuntimeEnv(
        env_vars={"PAGE": "of the job", "LONGER_PATH": "${NO_SUCH_VARIABLE}:more"},
        working_dir=str(tmp_path / "work"),
        py_modules=[str(tmp_path / "documented_module")],
        excludes=["*.bin"],
        worker_process_setup_hook=set_up,
        config=ray.runtime_env.RuntimeEnvConfig(setup_timeout_seconds=60, eager_install=False),
    )
    assert environment["env_vars"]["PAGE"] == "of the job"
    init(num_cpus=2, runtime_env=environment)

    def environ():
        return [os.environ.get(name) for name in ("PAGE", "LONGER_PATH", "SET_UP", "MORE")]

    @ray.remote(num_cpus=0)
    def look():
        import documented_module

        with open("greeting.txt") as file:
            return file.read(), os.path.exists("big.bin"), documented_module.WORD, environ()

    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"MORE": "of the actor"}})
    class Actor:
        def look(self):
            return environ()

    assert ray.get(look.remote()) == ("found", False, "imported", ["of the job", ":more", "yes", None])
    assert ray.get(Actor.remote().look.remote()) == ["of the job", ":more", "yes", "of the actor"]


@pytest.mark.processes("the name of a process")
def test_page_miscellaneous(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def title():
        with open("/proc/self/cmdline") as file:
            return file.read().rstrip("\0 ")

    assert ray.get(title.options(name="renamed").remote()) == "ray::renamed"

    @ray.remote(num_cpus=0)
    def count(number):
        return list(range(number))

    assert ray.get(count.options(num_returns=2).remote(2)) == [0, 1]
    (node,) = ray.nodes()
    assert node["Alive"] and node["alive"]
    assert node["NodeID"] == ray.get_runtime_context().get_node_id()
    assert node["NodeManagerAddress"]
    assert node["NodeManagerHostname"]
    assert node["Resources"]["CPU"] == 4


def test_page_patterns_generators(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0, num_returns=3)
    def large_ones():
        for number in range(3):
            yield bytes([number]) * 200_000

    assert [value[0] for value in ray.get(large_ones.remote())] == [0, 1, 2]
