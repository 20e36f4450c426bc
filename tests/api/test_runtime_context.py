"""Where code runs: `get_runtime_context` in drivers, tasks, actors and threads."""

from __future__ import annotations

import threading

import pytest


@pytest.fixture
def describe(ray):
    def describe():
        context = ray.get_runtime_context()
        return {
            "job": context.get_job_id(),
            "node": context.get_node_id(),
            "worker": context.get_worker_id(),
            "task": context.get_task_id(),
            "actor": context.get_actor_id(),
            "actor_name": context.get_actor_name(),
            "task_name": context.get_task_name(),
            "function": context.get_task_function_name(),
            "session": context.get_session_name(),
            "namespace": context.namespace,
            "group": context.get_placement_group_id(),
            "labels": context.get_node_labels(),
        }

    return describe


def test_the_context_of_a_driver(ray_session, describe):
    seen = describe()
    assert seen["task"] is None
    assert seen["actor"] is None
    assert seen["actor_name"] is None
    assert seen["task_name"] is None
    assert seen["function"] is None
    assert seen["group"] is None
    assert all(isinstance(seen[key], str) for key in ("job", "node", "worker", "session", "namespace"))
    assert seen["session"].startswith("session_")


def test_the_context_of_a_task(ray_session, describe):
    ray = ray_session
    seen = ray.get(ray.remote(describe).options(name="chosen").remote())
    here = describe()
    assert [seen[key] for key in ("job", "node", "session", "namespace")] == [here[key] for key in ("job", "node", "session", "namespace")]
    assert seen["worker"] != here["worker"]
    assert len(seen["task"]) == 48
    assert seen["actor"] is None
    assert seen["task_name"] == "chosen"
    # Of a function within another the name alone.
    assert seen["function"] == f"{describe.__module__}.describe"
    assert ray.get(ray.remote(lambda: ray.get_runtime_context().get_task_function_name()).remote()) == f"{describe.__module__}.<lambda>"


def test_functions_of_methods_are_named_after_their_class(ray_session):
    ray = ray_session

    def name():
        return ray.get_runtime_context().get_task_function_name()

    @ray.remote(num_cpus=0)
    class Plain:
        def __init__(self):
            self.made_by = name()

        def names(self):
            return self.made_by, name()

    @ray.remote(num_cpus=0)
    class Async:
        async def names(self):
            return name()

        def plain(self):
            return name()

    assert ray.get(Plain.remote().names.remote()) == (f"{__name__}.Plain.__init__", f"{__name__}.Plain.names")
    # Of an async actor with what its class was defined in.
    actor = Async.remote()
    where = f"{__name__}.test_functions_of_methods_are_named_after_their_class.<locals>.Async"
    assert ray.get([actor.names.remote(), actor.plain.remote()]) == [f"{where}.names", f"{where}.plain"]


def test_the_name_of_a_task_is_its_function_by_default(ray_session, describe):
    ray = ray_session
    assert ray.get(ray.remote(describe).remote())["task_name"].endswith("describe")


def test_the_context_of_an_actor(ray_session, describe):
    ray = ray_session

    @ray.remote
    class A:
        def __init__(self):
            self.first = describe()

        def both(self):
            return self.first, describe()

    actor = A.options(name="context-actor").remote()
    first, seen = ray.get(actor.both.remote())
    assert seen["actor"] == actor._actor_id.hex()
    assert first["actor"] == seen["actor"]
    assert seen["actor_name"] == "context-actor"
    assert seen["task_name"].endswith("A.both")
    assert seen["function"].endswith("A.both")
    assert seen["worker"] == first["worker"]
    assert seen["task"] != first["task"]


def test_task_ids_are_those_of_the_refs(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return ray.get_runtime_context().get_task_id()

    refs = [f.remote() for _ in range(3)]
    assert ray.get(refs) == [ref.task_id().hex() for ref in refs]


def test_job_ids_are_the_same_everywhere(ray_session):
    ray = ray_session
    job = ray.get_runtime_context().get_job_id()

    @ray.remote
    class A:
        def job(self):
            return ray.get_runtime_context().get_job_id()

        def in_thread(self):
            seen = []
            thread = threading.Thread(target=lambda: seen.append(ray.get_runtime_context().get_job_id()))
            thread.start()
            thread.join()
            return seen[0]

    actor = A.remote()
    assert ray.get([actor.job.remote(), actor.in_thread.remote()]) == [job, job]
    assert ray.put(1).job_id().hex() == job


def test_assigned_resources_of_a_driver_and_an_actor(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=1, resources={"custom": 1})
    class A:
        def f(self):
            return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(A.remote().f.remote()) == {"CPU": 1, "custom": 1}

    @ray.remote
    class B:
        def f(self):
            return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(B.remote().f.remote()) == {}


def test_accelerator_ids_are_strings_per_kind(ray_session):
    ray = ray_session

    @ray.remote(num_gpus=1)
    def f():
        return ray.get_runtime_context().get_accelerator_ids()

    ids = ray.get(f.remote())
    assert ids.pop("GPU") in (["0"], ["1"])
    assert {"TPU", "NPU", "HPU", "neuron_cores"} <= set(ids)
    assert not any(ids.values())


def test_the_current_actor_is_only_there_in_an_actor(ray_session):
    with pytest.raises(RuntimeError):
        ray_session.get_runtime_context().current_actor  # noqa: B018


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_get_gives_a_dictionary(ray_session):
    everything = ray_session.get_runtime_context().get()
    assert {"job_id", "node_id", "namespace"} <= set(everything)


@pytest.mark.parametrize("name", ["job_id", "node_id"])
def test_old_properties_warn(ray_session, name):
    with pytest.warns(Warning, match=f"get_{name}"):
        getattr(ray_session.get_runtime_context(), name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["task_id", "actor_id", "was_current_actor_reconstructed"])
def test_old_properties_of_tasks_and_actors_are_for_workers(ray_session, name):
    with pytest.raises(AssertionError, match="This method is only available when the process is a +worker"):
        getattr(ray_session.get_runtime_context(), name)


def test_actor_id_in_a_task_of_an_actor_is_none(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return ray.get_runtime_context().get_actor_id()

    @ray.remote
    class A:
        def f(self):
            return ray.get(f.remote())

    assert ray.get(A.remote().f.remote()) is None


@pytest.mark.filterwarnings("ignore:This API is deprecated:DeprecationWarning")  # where the actor is in this process
def test_was_current_actor_reconstructed_is_false_at_first(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def f(self):
            return ray.get_runtime_context().was_current_actor_reconstructed

    assert ray.get(A.remote().f.remote()) is False


def test_the_context_knows_the_runtime_env(ray_session):
    ray = ray_session

    @ray.remote(runtime_env={"env_vars": {"A": "1"}})
    def f():
        return dict(ray.get_runtime_context().runtime_env)["env_vars"]

    assert ray.get(f.remote()) == {"A": "1"}
