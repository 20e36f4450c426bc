"""GPUs that are declared, not there: ids, CUDA_VISIBLE_DEVICES, fractions, fresh processes."""

from __future__ import annotations

import os
import time

import pytest


@pytest.fixture
def look(ray):
    """A task that tells what it sees of GPUs."""

    def look():
        context = ray.get_runtime_context()
        return ray.get_gpu_ids(), context.get_accelerator_ids()["GPU"], os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()

    return ray.remote(look)


@pytest.fixture
def gpu_actor(ray):
    class GPUActor:
        def __init__(self):
            self.at_start = os.environ.get("CUDA_VISIBLE_DEVICES")
            self.ids = ray.get_gpu_ids()

        def look(self):
            return self.ids, self.at_start, os.environ.get("CUDA_VISIBLE_DEVICES")

    return ray.remote(GPUActor)


def test_a_gpu_task_sees_one_device(ray_session, look):
    ids, accelerators, visible, _ = ray_session.get(look.options(num_gpus=1).remote())
    assert len(ids) == 1
    assert visible == str(ids[0])
    assert accelerators == [str(ids[0])]
    assert isinstance(ids[0], int)


def test_a_task_with_all_devices_sees_all(ray_session, look):
    ids, _, visible, _ = ray_session.get(look.options(num_gpus=2).remote())
    assert sorted(ids) == [0, 1]
    assert visible == ",".join(map(str, ids))


def test_a_task_without_gpus_sees_none_and_the_variable_is_unset(ray_session, look):
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        pytest.skip("set by whoever runs the tests")
    ids, accelerators, visible, _ = ray_session.get(look.remote())
    assert (ids, accelerators, visible) == ([], [], None)


def test_the_driver_has_no_gpu_ids_of_its_own(ray_session):
    assert ray_session.get_gpu_ids() in ([], [0, 1])


def test_gpu_tasks_get_fresh_processes(ray_session):
    ray = ray_session

    @ray.remote(num_gpus=1)
    def f():
        return os.getpid()

    assert len({ray.get(f.remote()) for _ in range(3)}) == 3


def test_a_worker_is_never_used_both_with_and_without_gpus(ray_session, look):
    ray = ray_session
    plain = {ray.get(look.remote())[3] for _ in range(3)}
    gpu = {ray.get(look.options(num_gpus=1).remote())[3] for _ in range(3)}
    assert not plain & gpu
    assert not gpu & {ray.get(look.remote())[3] for _ in range(3)}


def test_max_calls_zero_lets_gpu_workers_live(ray_session):
    ray = ray_session

    @ray.remote(num_gpus=1, max_calls=0)
    def f():
        return os.getpid(), ray.get_gpu_ids()

    results = [ray.get(f.remote()) for _ in range(4)]
    assert len({pid for pid, _ in results}) < 4


def test_gpu_actors_see_their_devices_before_user_code_runs(ray_session, gpu_actor):
    ray = ray_session
    actors = [gpu_actor.options(num_gpus=1).remote() for _ in range(2)]
    seen = ray.get([actor.look.remote() for actor in actors])
    assert sorted(ids[0] for ids, _, _ in seen) == [0, 1]
    for ids, at_start, now in seen:
        assert at_start == now == str(ids[0])


def test_devices_are_not_shared_beyond_one(ray_session, gpu_actor):
    ray = ray_session
    actors = [gpu_actor.options(num_gpus=0.5).remote() for _ in range(4)]
    ids = [tuple(ray.get(actor.look.remote())[0]) for actor in actors]
    assert sorted(ids) == [(0,), (0,), (1,), (1,)]


def test_fractions_pack_onto_a_device(ray_session, gpu_actor, eventually):
    ray = ray_session
    eventually(lambda: ray.available_resources().get("GPU") == 2)
    small = [gpu_actor.options(num_gpus=0.3).remote() for _ in range(3)]
    ids = {ray.get(actor.look.remote())[0][0] for actor in small}
    assert len(ids) == 1
    whole = gpu_actor.options(num_gpus=1).remote()
    assert ray.get(whole.look.remote())[0][0] not in ids


def test_a_device_comes_back_when_its_holder_ends(ray_session, gpu_actor, look):
    ray = ray_session
    for _ in range(3):
        actor = gpu_actor.options(num_gpus=2).remote()
        assert len(ray.get(actor.look.remote())[0]) == 2
        ray.kill(actor)
    assert len(ray.get(look.options(num_gpus=2).remote())[0]) == 2


def test_a_blocked_gpu_task_keeps_its_device(ray_session, signal, eventually):
    ray = ray_session
    gate = signal()

    @ray.remote(num_cpus=0)
    def waits(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)

    @ray.remote(num_gpus=2)
    def outer(gate):
        ray.get(waits.remote(gate))

    # Those of the test before may be on their way back.
    eventually(lambda: ray.available_resources().get("GPU") == 2)
    ref = outer.remote(gate)
    eventually(lambda: "GPU" not in ray.available_resources())
    ray.get(gate.arrive.remote())
    assert "GPU" not in ray.available_resources()
    ray.get(gate.send.remote())
    ray.get(ref)
    eventually(lambda: ray.available_resources().get("GPU") == 2)


def test_children_of_a_gpu_task_have_no_gpu(ray_session, look):
    ray = ray_session

    @ray.remote(num_gpus=1)
    def outer():
        return ray.get(look.remote())[:2]

    assert ray.get(outer.remote()) == ([], [])


def test_the_users_own_mask_is_respected(run_program):
    done = run_program(
        """
        import os
        import ENGINE as ray

        ray.init(num_cpus=2, num_gpus=2, logging_level="ERROR", include_dashboard=False)

        @ray.remote(num_gpus=1)
        class A:
            def look(self):
                return [int(i) for i in ray.get_gpu_ids()], os.environ["CUDA_VISIBLE_DEVICES"]

        @ray.remote
        def plain():
            return os.environ.get("CUDA_VISIBLE_DEVICES")

        actors = [A.remote() for _ in range(2)]
        print(sorted(ray.get([actor.look.remote() for actor in actors])))
        print(os.environ["CUDA_VISIBLE_DEVICES"])
        """,
        env={"CUDA_VISIBLE_DEVICES": "3,5"},
    )
    assert done.stdout.splitlines() == ["[([3], '3'), ([5], '5')]", "3,5"]


def test_the_gpus_that_a_runtime_environment_lists_are_the_ones_that_are_shown(run_program):
    done = run_program(
        """
        import os
        import ENGINE as ray

        ENV = {"env_vars": {"CUDA_VISIBLE_DEVICES": "2,3"}}

        def look():
            return sorted(int(i) for i in ray.get_gpu_ids()), sorted(os.environ["CUDA_VISIBLE_DEVICES"].split(","))

        class A:
            def __init__(self):
                self.at_start = look()

            def look(self):
                assert look() == self.at_start
                return self.at_start

        for level in ("job", "own"):
            job, own = ({"runtime_env": ENV}, {}) if level == "job" else ({}, {"runtime_env": ENV})
            ray.init(num_cpus=2, num_gpus=2, logging_level="ERROR", include_dashboard=False, **job)
            Actor = ray.remote(num_gpus=1, **own)(A)
            actors = [Actor.remote() for _ in range(2)]
            print(sorted(ray.get([actor.look.remote() for actor in actors])))
            for actor in actors:
                ray.kill(actor)
            print(ray.get(ray.remote(num_gpus=2, **own)(A).remote().look.remote()))
            print(ray.get(ray.remote(num_gpus=2, **own)(look).remote()))
            ids, shown = ray.get(ray.remote(num_gpus=1, **own)(look).remote())
            print(ids in ([2], [3]), shown == [str(i) for i in ids])
            print(ray.get(ray.remote(num_cpus=1, **own)(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).remote()))
            ray.shutdown()
        """
    )
    one_level = ["[([2], ['2']), ([3], ['3'])]", "([2, 3], ['2', '3'])", "([2, 3], ['2', '3'])", "True True", "2,3"]
    assert done.stdout.splitlines() == one_level * 2


def test_uuids_of_the_users_mask_stay_strings(run_program):
    done = run_program(
        """
        import os
        import ENGINE as ray

        ray.init(num_cpus=2, num_gpus=1, logging_level="ERROR", include_dashboard=False)

        @ray.remote(num_gpus=1)
        def f():
            return ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

        print(ray.get(f.remote()))
        """,
        env={"CUDA_VISIBLE_DEVICES": "GPU-11111111,GPU-22222222"},
    )
    assert done.stdout.splitlines() == ["(['GPU-11111111'], 'GPU-11111111')"]


def test_more_gpus_than_the_users_mask_shows_are_an_error(run_program):
    done = run_program(
        """
        import ENGINE as ray

        try:
            ray.init(num_cpus=1, num_gpus=3, logging_level="ERROR", include_dashboard=False)
        except ValueError as error:
            print("ValueError", "CUDA_VISIBLE_DEVICES" in str(error))
        """,
        env={"CUDA_VISIBLE_DEVICES": "0,1"},
    )
    assert done.stdout.splitlines() == ["ValueError True"]


def test_the_variable_can_be_left_alone(run_program):
    done = run_program(
        """
        import os
        import ENGINE as ray

        ray.init(num_cpus=2, num_gpus=2, logging_level="ERROR", include_dashboard=False)

        @ray.remote(num_gpus=1)
        def f():
            return len(ray.get_gpu_ids()), os.environ.get("CUDA_VISIBLE_DEVICES")

        print(ray.get(f.remote()))
        """,
        env={"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"},
    )
    assert done.stdout.splitlines() == ["(1, None)"]


def test_an_accelerator_type_is_a_resource(fresh, init):
    ray = fresh
    init(num_cpus=1, num_gpus=1, resources={"accelerator_type:T4": 1})

    @ray.remote(num_gpus=1, accelerator_type="T4")
    def f():
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(f.remote())["accelerator_type:T4"] == 0.001


def test_names_of_accelerators_are_there(ray):
    import importlib

    accelerators = importlib.import_module(f"{ray.__name__}.util.accelerators")
    assert accelerators.NVIDIA_TESLA_V100 == "V100"
    assert accelerators.NVIDIA_H100 == "H100"
