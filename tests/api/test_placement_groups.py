"""Placement groups: creating, waiting, running inside, removing."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import signal as signals
import time
import warnings

import pytest

ENGINE = "ray" if os.environ.get("MRAY_TEST_ENGINE") == "ray" else "mray"
groups = importlib.import_module(f"{ENGINE}.util.placement_group")
In = importlib.import_module(f"{ENGINE}.util.scheduling_strategies").PlacementGroupSchedulingStrategy


EVERYTHING = {"CPU": 4, "GPU": 2, "custom": 2}


@pytest.fixture
def whole(ray_session, eventually):
    """Waits, before and after the test, until everything is free."""

    def wait():
        eventually(lambda: {name: ray_session.available_resources().get(name) for name in ("CPU", "GPU", "custom")} == EVERYTHING)

    wait()
    yield
    wait()


@pytest.fixture
def reserve(whole):
    """``reserve(bundles, ...)``: a group that is removed after the test, and its resources back."""
    made = []

    def reserve(*arguments, **options):
        made.append(groups.placement_group(*arguments, **options))
        return made[-1]

    yield reserve
    for group in made:
        groups.remove_placement_group(group)


def where(ray):
    """A task that tells where it runs."""

    @ray.remote
    def where():
        context = ray.get_runtime_context()
        group = groups.get_current_placement_group()
        assert (group is None) == (context.get_placement_group_id() is None)
        return group, context.get_assigned_resources(), ray.get_gpu_ids()

    return where


# --------------------------------------------------------------------------------------------- creating
def test_ready_is_a_ref_of_the_group_itself(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}, {"CPU": 1, "custom": 1}])
    assert ray.get(group.ready(), timeout=30) == group
    assert group.wait(30)
    assert group.bundle_specs == [{"CPU": 1}, {"CPU": 1, "custom": 1}]
    assert group.bundle_count == 2
    assert not group.is_empty
    assert len(group.id.binary()) == 18


def test_ready_needs_no_cpu_when_the_group_has_them_all(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 4}])
    assert ray.get(group.ready(), timeout=30) == group
    assert ray.get(group.ready(), timeout=30) == group


def test_ready_can_be_awaited_and_passed_to_tasks(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])

    async def wait():
        return await group.ready()

    @ray.remote
    def bundles(ready, nested):
        return ready.bundle_count, ray.get(nested[0]).bundle_specs

    assert asyncio.run(wait()) == group
    assert ray.get(bundles.remote(group.ready(), [group.ready()]), timeout=30) == (1, [{"CPU": 1}])


def test_groups_are_equal_by_their_id_and_travel(ray_session, reserve):
    ray = ray_session
    group, other = reserve([{"CPU": 1}]), reserve([{"CPU": 1}])

    @ray.remote
    def back(group):
        return group, group.bundle_specs, group.wait(30)

    assert ray.get(back.remote(group), timeout=30) == (group, [{"CPU": 1}], True)
    assert pickle.loads(pickle.dumps(group)) == group != other
    assert len({group, pickle.loads(pickle.dumps(group)), other}) == 2


def test_the_empty_group_stands_for_none(ray_session):
    ray = ray_session
    empty = groups.PlacementGroup.empty()
    assert empty.is_empty
    assert ray.get(empty.ready()).is_empty


def test_a_group_waits_for_resources_and_others_wait_for_it(ray_session, reserve):
    ray = ray_session
    first = reserve([{"CPU": 3}])
    assert first.wait(30)
    second = reserve([{"CPU": 1}, {"CPU": 1}])
    assert not second.wait(0.1)
    assert groups.placement_group_table(second)["state"] == "PENDING"
    inside = where(ray).options(scheduling_strategy=In(second)).remote()
    assert not ray.wait([inside, second.ready()], timeout=0.1)[0]
    groups.remove_placement_group(first)
    assert second.wait(30)
    assert ray.get(inside, timeout=30)[0] == second


def test_the_table_tells_state_and_bundles(ray_session, reserve, eventually):
    group = reserve([{"CPU": 1}, {"custom": 1}], strategy="SPREAD", name="table")
    assert group.wait(30)
    row = groups.placement_group_table(group)
    assert row["placement_group_id"] == group.id.hex()
    assert (row["name"], row["strategy"], row["state"]) == ("table", "SPREAD", "CREATED")
    assert row["bundles"] == {0: {"CPU": 1}, 1: {"custom": 1}}
    assert set(row["bundles_to_node_id"]) == {0, 1}
    assert row["stats"]["scheduling_state"] == "FINISHED"
    assert groups.placement_group_table()[group.id.hex()] == row
    groups.remove_placement_group(group)
    eventually(lambda: groups.placement_group_table(group)["state"] == "REMOVED")


def test_names_are_unique_and_found(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}], name="unique")
    assert groups.get_placement_group("unique") == group
    assert groups.get_placement_group("unique").bundle_specs == [{"CPU": 1}]
    with pytest.raises(ray.exceptions.RaySystemError, match="name 'unique' already exists"):
        reserve([{"CPU": 1}], name="unique")
    with pytest.raises(ValueError, match="Failed to look up placement group with name: nobody"):
        groups.get_placement_group("nobody")
    with pytest.raises(ValueError, match="non-empty"):
        groups.get_placement_group("")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"bundles": {"CPU": 1}}, "must be a list"),
        ({"bundles": []}, "must be a non-empty list"),
        ({"bundles": [3]}, "resource dictionaries"),
        ({"bundles": [{1: 1}]}, "resource dictionaries"),
        ({"bundles": [{"CPU": "1"}]}, "resource dictionaries"),
        ({"bundles": [{}]}, "only 0 values"),
        ({"bundles": [{"CPU": 1}, {"CPU": 0}]}, "only 0 values"),
        ({"bundles": [{"CPU": 1}], "strategy": "LOOSE"}, "Invalid placement group strategy LOOSE"),
        ({"bundles": [{"CPU": 1}], "lifetime": "long"}, "`lifetime` argument must be either `None` or 'detached'"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selector": []}, "Invalid bundle label selector"),
        ({"bundles": [{"CPU": 1}], "bundle_label_selector": [{"a": "?"}]}, "Invalid label selector provided"),
        ({"bundles": [{"CPU": 1}], "_soft_target_node_id": "ab" * 28}, "only works with STRICT_PACK"),
        ({"bundles": [{"CPU": 1}], "strategy": "PACK", "topology_strategy": {}}, "cannot both be specified"),
        ({"bundles": [{"CPU": 1}], "topology_strategy": {"x": "PACK"}}, "not supported yet"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(ray_session, arguments, text):
    with pytest.raises(ValueError, match=text):
        groups.placement_group(**arguments)


def test_a_name_that_is_no_text_is_refused_and_the_session_goes_on(ray_session):
    with pytest.raises(TypeError):
        groups.placement_group([{"CPU": 1}], name=3)
    with pytest.raises(TypeError):
        groups.get_placement_group({1})
    assert ray_session.nodes()


@pytest.mark.differs("waiting for what can never be is an error at once; Ray waits for a node that may join")
@pytest.mark.parametrize(
    ("bundles", "strategy"), [([{"CPU": 1}] * 9, "PACK"), ([{"unheard": 1}], "PACK"), ([{"custom": 1}, {"custom": 1}], "STRICT_SPREAD")]
)
def test_what_can_never_be_reserved_is_pending(ray_session, reserve, engine, bundles, strategy):
    ray = ray_session
    group = reserve(bundles, strategy)
    assert not group.wait(0.1)
    assert groups.placement_group_table(group)["state"] == "PENDING"
    with pytest.raises(ray.exceptions.GetTimeoutError, match="" if engine == "ray" else "can never be created") as raised:
        ray.get(group.ready(), timeout=0.1 if engine == "ray" else 30)
    assert engine == "ray" or isinstance(raised.value, ray.exceptions.TaskUnschedulableError)


# ----------------------------------------------------------------------------------------------- inside
def test_tasks_and_actors_run_inside_with_plain_names_of_resources(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}, {"CPU": 2, "custom": 1}])
    task = where(ray)
    assert ray.get(task.options(scheduling_strategy=In(group)).remote(), timeout=30) == (group, {"CPU": 1}, [])
    inside = task.options(num_cpus=2, resources={"custom": 1}, scheduling_strategy=In(group, 1))
    assert ray.get(inside.remote(), timeout=30) == (group, {"CPU": 2, "custom": 1}, [])
    assert ray.get(task.remote(), timeout=30) == (None, {"CPU": 1}, [])

    @ray.remote(num_cpus=1)
    class Actor:
        def where(self):
            return groups.get_current_placement_group(), ray.get_runtime_context().get_assigned_resources()

    actor = Actor.options(scheduling_strategy=In(group, 0)).remote()
    assert ray.get(actor.where.remote(), timeout=30) == (group, {"CPU": 1})


def test_a_bundle_bounds_what_runs_in_it(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}, {"CPU": 1}])

    @ray.remote(num_cpus=1)
    class Holder:
        def ping(self):
            return 1

    holder = Holder.options(scheduling_strategy=In(group, 0)).remote()
    assert ray.get(holder.ping.remote(), timeout=30) == 1
    second = Holder.options(scheduling_strategy=In(group, 0)).remote()
    assert not ray.wait([second.ping.remote()], timeout=0.3)[0]
    third = Holder.options(scheduling_strategy=In(group)).remote()
    assert ray.get(third.ping.remote(), timeout=30) == 1
    del holder
    assert ray.get(second.ping.remote(), timeout=30) == 1


def test_an_actor_without_options_runs_in_a_full_bundle(ray_session, reserve, kill_and_wait):
    ray = ray_session
    group = reserve([{"custom": 1}, {"CPU": 1}])

    @ray.remote
    class Default:
        def f(self):
            return ray.get_runtime_context().get_assigned_resources()

    holder = Default.options(num_cpus=1, scheduling_strategy=In(group, 1)).remote()
    assert ray.get(holder.f.remote(), timeout=60) == {"CPU": 1}
    actors = [Default.options(scheduling_strategy=In(group, index)).remote() for index in (-1, 1)]
    assert ray.get([actor.f.remote() for actor in actors], timeout=60) == [{}, {}]
    for actor in (holder, *actors):
        kill_and_wait(actor)


def test_a_task_that_waits_frees_its_cpu_inside_of_the_group(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])
    inside = In(group, placement_group_capture_child_tasks=True)

    @ray.remote
    def child():
        return groups.get_current_placement_group()

    @ray.remote
    def parent():
        return ray.get(child.remote())

    assert ray.get(parent.options(scheduling_strategy=inside).remote(), timeout=30) == group


def test_children_are_captured_when_asked_and_may_escape(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 2}])
    task = where(ray)

    @ray.remote(num_cpus=0)
    class Parent:
        def children(self):
            ways = [
                task,
                task.options(scheduling_strategy=In(None)),
                task.options(scheduling_strategy="DEFAULT"),
                task.options(scheduling_strategy=In(group, placement_group_capture_child_tasks=False)),
            ]
            return [ray.get(way.remote())[0] for way in ways]

        def captures(self):
            return ray.get_runtime_context().should_capture_child_tasks_in_placement_group

        def actor(self):
            return ray.get(Parent.remote().group.remote())

        def group(self):
            return groups.get_current_placement_group()

    capturing = Parent.options(scheduling_strategy=In(group, placement_group_capture_child_tasks=True)).remote()
    assert ray.get(capturing.children.remote(), timeout=30) == [group, None, None, group]
    assert ray.get(capturing.captures.remote(), timeout=30) is True
    assert ray.get(capturing.actor.remote(), timeout=30) == group
    plain = Parent.options(scheduling_strategy=In(group)).remote()
    assert ray.get(plain.children.remote(), timeout=30) == [None, None, None, group]
    assert ray.get(plain.captures.remote(), timeout=30) is False
    assert ray.get_runtime_context().should_capture_child_tasks_in_placement_group is False
    assert ray.get_runtime_context().get_placement_group_id() is None


def test_what_does_not_fit_is_refused_with_the_bundles(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])
    task = where(ray)
    text = r"because the resource request {'CPU': 3} cannot fit into any bundles for the placement group, \[{'CPU': 1.0}\]\."
    with pytest.raises(ValueError, match=text):
        task.options(num_cpus=3, scheduling_strategy=In(group)).remote()

    @ray.remote(num_cpus=1, num_gpus=8)
    class Actor:
        pass

    text = r"with the placement group because the resource request {'CPU': 1, 'GPU': 8} cannot fit into any bundles for the placement group"
    with pytest.raises(ValueError, match=text):
        Actor.options(name="a", get_if_exists=True, scheduling_strategy=In(group)).remote()
    bare = reserve([{"custom": 1}])
    with pytest.raises(ValueError, match="the actor requires 1 CPU for creation, but it cannot fit into any bundles"):
        Actor.options(num_cpus=None, num_gpus=None, scheduling_strategy=In(bare)).remote()
    assert ray.get(task.options(num_cpus=0, scheduling_strategy=In(bare)).remote(), timeout=30)[0] == bare


def test_indexes_of_bundles_are_checked(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])
    task = where(ray)
    for index in (3, -2):
        with pytest.raises(ValueError, match=f"bundle index {index} is invalid"):
            task.options(scheduling_strategy=In(group, index)).remote()
    with pytest.raises(ValueError, match="bundle index must be -1"):
        task.options(scheduling_strategy=In(None, 0)).remote()


@pytest.mark.only("mray", "local")
def test_a_bundle_cannot_have_the_resource_that_bundles_are_kept_as(ray_session):
    """On Ray the error is the same, and the session does not survive it."""
    ray = ray_session
    with pytest.raises(ray.exceptions.RaySystemError, match="bundle is a system reserved resource"):
        ray.util.placement_group([{"bundle": 1}])


def test_the_deprecated_arguments_still_work_with_a_warning(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])
    task = where(ray)
    text = "{} parameter is deprecated.*PlacementGroupSchedulingStrategy"
    with (
        pytest.warns(DeprecationWarning, match=text.format("placement_group")),
        pytest.warns(DeprecationWarning, match=text.format("placement_group_bundle_index")),
    ):
        ref = task.options(placement_group=group, placement_group_bundle_index=0).remote()
    assert ray.get(ref, timeout=30)[0] == group
    with pytest.raises(ValueError, match="should be specified via the scheduling_strategy option"):
        task.options(scheduling_strategy=In(group), placement_group=group).remote()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ray.get(task.remote(), timeout=30)[0] is None


def test_gpus_are_unique_across_bundles_and_fractions_share_one(ray_session, reserve):
    ray = ray_session
    group = reserve([{"GPU": 1, "CPU": 1}, {"GPU": 1, "CPU": 2}])

    @ray.remote(num_cpus=0)
    class Actor:
        def gpus(self):
            return ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    whole_gpu = Actor.options(num_gpus=1, scheduling_strategy=In(group, 0)).remote()
    halves = [Actor.options(num_gpus=0.5, scheduling_strategy=In(group, 1)).remote() for _ in range(2)]
    (first, variable), *rest = ray.get([actor.gpus.remote() for actor in [whole_gpu, *halves]], timeout=30)
    assert variable == str(first[0])
    assert rest[0] == rest[1]
    assert rest[0][0] != first


def test_bundles_stand_among_the_resources_while_the_group_is_there(ray_session, reserve, eventually):
    ray = ray_session
    group = reserve([{"CPU": 1}, {"CPU": 2}])
    assert group.wait(30)
    name = group.id.hex()
    eventually(lambda: ray.available_resources().get(f"CPU_group_{name}") == 3)
    eventually(lambda: ray.available_resources().get("CPU") == 1)
    assert ray.cluster_resources()[f"CPU_group_1_{name}"] == 2
    groups.remove_placement_group(group)
    eventually(lambda: not [each for each in ray.available_resources() if name in each])
    eventually(lambda: not [each for each in ray.cluster_resources() if name in each])


# --------------------------------------------------------------------------------------------- removing
@pytest.mark.differs("who runs in a removed group ends with it; Ray starts its tasks again, and they wait for ever")
def test_removal_ends_who_runs_and_who_waits(ray_session, reserve, signal, eventually, engine):
    ray = ray_session
    gate = signal()
    group = reserve([{"CPU": 1}, {"CPU": 1}])

    @ray.remote
    def hold(gate):
        ray.get(gate.arrive.remote())
        while True:
            time.sleep(0.01)

    @ray.remote(num_cpus=1)
    class Actor:
        def ping(self):
            return 1

    actor = Actor.options(scheduling_strategy=In(group, 1)).remote()
    waiting = Actor.options(scheduling_strategy=In(group, 1)).remote()
    assert ray.get(actor.ping.remote(), timeout=30) == 1
    never = waiting.ping.remote()
    running = hold.options(scheduling_strategy=In(group, 0), max_retries=0).remote(gate)
    eventually(lambda: ray.get(gate.count.remote()) == 1)
    queued = hold.options(scheduling_strategy=In(group, 0)).remote(gate)
    groups.remove_placement_group(group)
    error = ray.exceptions.WorkerCrashedError if engine == "ray" else ray.exceptions.TaskPlacementGroupRemoved
    with pytest.raises(error):
        ray.get(running, timeout=30)
    with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
        ray.get(queued, timeout=30)
    with pytest.raises(ray.exceptions.ActorDiedError, match="placement group was removed"):
        ray.get(actor.ping.remote(), timeout=30)
    with pytest.raises(ray.exceptions.ActorUnschedulableError, match="its associated placement group was removed"):
        ray.get(never, timeout=30)
    with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
        ray.get(group.ready(), timeout=30)
    with pytest.raises(Exception, match="does not exist"):
        group.wait(1)
    groups.remove_placement_group(group)
    if engine == "mray":
        with pytest.raises(ray.exceptions.TaskPlacementGroupRemoved):
            ray.get(hold.options(scheduling_strategy=In(group)).remote(gate), timeout=30)


@pytest.mark.only("mray", "local")  # on Ray it lives as long as the driver
def test_a_group_ends_with_the_actor_that_made_it(ray_session, whole, eventually):
    ray = ray_session

    @ray.remote
    class Maker:
        def make(self, **options):
            group = groups.placement_group([{"CPU": 1}], **options)
            return group, group.wait(30), os.getpid()

    maker = Maker.remote()
    group, there, pid = ray.get(maker.make.remote(), timeout=30)
    kept, _there, _pid = ray.get(maker.make.remote(lifetime="detached"), timeout=30)
    assert there
    os.kill(pid, signals.SIGKILL)
    eventually(lambda: groups.placement_group_table(group)["state"] == "REMOVED")
    assert groups.placement_group_table(kept)["state"] == "CREATED"
    groups.remove_placement_group(kept)


def test_a_group_made_by_a_task_outlives_it(ray_session, whole):
    ray = ray_session

    @ray.remote
    def make():
        return groups.placement_group([{"CPU": 1}])

    group = ray.get(make.remote(), timeout=30)
    assert group.wait(30)
    groups.remove_placement_group(group)


def test_a_worker_that_dies_leaves_its_bundle_to_the_next(ray_session, reserve):
    ray = ray_session
    group = reserve([{"CPU": 1}])
    inside = In(group, 0)

    @ray.remote
    def crash():
        os._exit(3)

    @ray.remote(num_cpus=1, max_restarts=1)
    class Actor:
        def pid(self):
            return os.getpid()

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(crash.options(scheduling_strategy=inside, max_retries=0).remote(), timeout=30)
    actor = Actor.options(scheduling_strategy=inside, max_task_retries=3).remote()
    pid = ray.get(actor.pid.remote(), timeout=30)
    os.kill(pid, signals.SIGKILL)
    assert ray.get(actor.pid.remote(), timeout=30) != pid
    ray.kill(actor)
    assert ray.get(where(ray).options(scheduling_strategy=inside).remote(), timeout=30)[0] == group
