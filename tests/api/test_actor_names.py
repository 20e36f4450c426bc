"""Named actors, namespaces, get_if_exists, listings."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest


@pytest.fixture
def named(ray):
    class Named:
        def __init__(self, value=0):
            self.value = value

        def read(self):
            return self.value

        def pid(self):
            return os.getpid()

    return ray.remote(Named)


def test_a_named_actor_is_found_by_name(ray_session, named):
    ray = ray_session
    actor = named.options(name="by-name").remote(5)
    found = ray.get_actor("by-name")
    assert found == actor
    assert ray.get(found.read.remote()) == 5


def test_a_named_actor_is_found_by_tasks_and_actors(ray_session, named):
    ray = ray_session
    actor = named.options(name="found-inside").remote(6)

    @ray.remote
    def f():
        return ray.get(ray.get_actor("found-inside").read.remote())

    assert ray.get(f.remote()) == 6
    del actor


def test_a_named_actor_is_found_before_it_is_ready(ray_session, named):
    ray = ray_session
    actors = [named.options(name=f"early-{i}").remote(i) for i in range(5)]
    assert [ray.get(ray.get_actor(f"early-{i}").read.remote()) for i in range(5)] == list(range(5))
    del actors


def test_an_unknown_name_is_a_value_error(ray_session):
    with pytest.raises(ValueError, match="Failed to look up actor with name 'nobody'"):
        ray_session.get_actor("nobody")


def test_a_blank_name_is_an_error(ray_session, named):
    with pytest.raises(ValueError, match="Please supply a non-empty value to get_actor"):
        ray_session.get_actor("")
    with pytest.raises(ValueError, match="Actor name cannot be an empty string"):
        named.options(name="").remote()


def test_a_name_can_be_taken_once(ray_session, named):
    ray = ray_session
    actor = named.options(name="taken").remote()
    with pytest.raises(ValueError, match="(The name .* is already taken)|(Please use a different name)"):
        named.options(name="taken").remote()
    with pytest.raises(ray.exceptions.ActorAlreadyExistsError):
        named.options(name="taken").remote()
    del actor


def test_a_name_is_free_again_after_kill(ray_session, named, eventually):
    ray = ray_session
    first = named.options(name="again").remote(1)
    ray.get(first.read.remote())
    ray.kill(first)
    made = []

    def try_again():
        try:
            made.append(named.options(name="again").remote(2))
        except ValueError:
            return False
        return True

    eventually(try_again)
    assert ray.get(ray.get_actor("again").read.remote()) == 2


def test_a_name_is_free_again_after_the_last_handle(ray_session, named, eventually):
    import gc

    ray = ray_session
    actor = named.options(name="scoped").remote()
    ray.get(actor.read.remote())
    del actor
    gc.collect()

    def gone():
        try:
            ray.get_actor("scoped")
        except ValueError:
            return True
        return False

    eventually(gone)


def test_get_if_exists_makes_it_once(ray_session, named):
    ray = ray_session
    first = named.options(name="shared", get_if_exists=True).remote(1)
    second = named.options(name="shared", get_if_exists=True).remote(2)
    assert first == second
    assert ray.get(second.read.remote()) == 1


#: Ray gives an actor that is ending, now and then.
NEVER_ENDING = pytest.mark.only("mray", "local")


@NEVER_ENDING
@pytest.mark.parametrize("how", ["last handle", "kill", "exit_actor"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_actor_that_is_ending_is_found_by_nobody(ray_session, how, is_async):
    ray = ray_session

    class Sync:
        def ping(self):
            return 1

        def leave(self):
            ray.actor.exit_actor()

    class Async:
        async def ping(self):
            return 1

        async def leave(self):
            ray.actor.exit_actor()

    def use(times):
        Lock = ray.remote(num_cpus=0)(Async if is_async else Sync)
        for _ in range(times):
            lock = Lock.options(name="ending", get_if_exists=True).remote()
            assert ray.get(lock.ping.remote()) == 1
            if how == "kill":
                ray.kill(lock)
            elif how == "exit_actor":
                with pytest.raises(ray.exceptions.RayActorError):
                    ray.get(lock.leave.remote())
            del lock
            with pytest.raises(ValueError, match="Failed to look up actor with name 'ending'"):
                ray.get_actor("ending")

    use(10)
    ray.get(ray.remote(num_cpus=0)(use).remote(10))


@NEVER_ENDING
def test_tasks_that_use_an_actor_by_turns_never_get_one_that_is_ending(ray_session, named):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def use(value):
        actor = named.options(name="by-turns", get_if_exists=True, num_cpus=0).remote(value)
        return ray.get(actor.read.remote()) in range(40)

    assert all(ray.get([use.remote(number) for number in range(40)]))


@NEVER_ENDING
def test_an_actor_that_get_if_exists_has_found_lives_as_long_as_that_handle(ray_session, named, eventually):
    ray = ray_session
    first = named.options(name="kept").remote(1)
    second = named.options(name="kept", get_if_exists=True).remote(2)
    del first
    for _ in range(3):
        assert ray.get(second.read.remote()) == 1
        assert ray.get_actor("kept") == second
    del second
    with pytest.raises(ValueError, match="Failed to look up"):
        ray.get_actor("kept")


@NEVER_ENDING
def test_an_actor_that_looks_for_itself_does_not_keep_itself_alive(ray_session, eventually):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Selfish:
        def find(self, cls):
            self.me = cls.options(name="selfish", get_if_exists=True).remote()
            return os.getpid()

    actor = Selfish.options(name="selfish", get_if_exists=True).remote()
    assert ray.get(actor.find.remote(Selfish))
    del actor
    with pytest.raises(ValueError, match="Failed to look up"):
        ray.get_actor("selfish")


def test_get_if_exists_needs_a_name(ray_session, named):
    with pytest.raises(ValueError, match="The actor name must be specified to use `get_if_exists`"):
        named.options(get_if_exists=True).remote()


def test_a_hundred_creators_make_one_actor(ray_session, named):
    ray = ray_session
    handles, errors = [], []

    def create():
        try:
            handles.append(named.options(name="raced", get_if_exists=True).remote())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({ray.get(handle.pid.remote()) for handle in handles}) == 1


def test_tasks_that_race_for_a_name_get_one_actor(ray_session, named):
    ray = ray_session

    @ray.remote
    def create():
        actor = named.options(name="raced-by-tasks", get_if_exists=True, lifetime="detached").remote()
        return ray.get(actor.pid.remote())

    assert len(set(ray.get([create.remote() for _ in range(12)]))) == 1
    ray.kill(ray.get_actor("raced-by-tasks"))


def test_names_live_in_namespaces(ray_session, named):
    ray = ray_session
    here = named.options(name="spaced").remote("here")
    there = named.options(name="spaced", namespace="elsewhere").remote("there")
    assert ray.get(ray.get_actor("spaced").read.remote()) == "here"
    assert ray.get(ray.get_actor("spaced", namespace="elsewhere").read.remote()) == "there"
    with pytest.raises(ValueError):
        ray.get_actor("spaced", namespace="nowhere")
    del here, there


def test_an_anonymous_actor_has_no_name(ray_session, named):
    ray = ray_session
    actor = named.remote()
    name = ray.get(actor.__ray_call__.remote(lambda self: ray.get_runtime_context().get_actor_name()))
    assert not name


def test_named_actors_can_be_listed(ray_session, named):
    ray = ray_session
    actors = [named.options(name=f"listed-{i}").remote() for i in range(3)]
    assert {f"listed-{i}" for i in range(3)} <= set(ray.util.list_named_actors())
    other = named.options(name="listed-other", namespace="other").remote()
    assert "listed-other" not in ray.util.list_named_actors()
    everything = ray.util.list_named_actors(all_namespaces=True)
    assert {"name": "listed-other", "namespace": "other"} in everything
    del actors, other


def test_dead_actors_are_not_listed(ray_session, named, eventually):
    ray = ray_session
    actor = named.options(name="listed-dead").remote()
    ray.get(actor.read.remote())
    ray.kill(actor)
    eventually(lambda: "listed-dead" not in ray.util.list_named_actors())


def test_restarting_actors_are_listed(ray_session, tmp_path, eventually):
    ray = ray_session
    go = tmp_path / "go"
    go.touch()

    class Slow:
        def __init__(self):
            while not go.exists():
                time.sleep(0.01)

        def pid(self):
            return os.getpid()

    actor = ray.remote(max_restarts=-1)(Slow).options(name="listed-restarting").remote()
    pid = ray.get(actor.pid.remote())
    go.unlink()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: is_gone(pid))
    assert "listed-restarting" in ray.util.list_named_actors()
    go.touch()
    eventually(lambda: pid_of(ray, actor) not in (None, pid))
    ray.kill(actor)


def is_gone(pid):
    try:
        os.kill(pid, 0)  # in one process, pids are not the kernel's
        if not os.path.exists(f"/proc/{pid}"):
            return False
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def pid_of(ray, actor):
    try:
        return ray.get(actor.pid.remote())
    except ray.exceptions.ActorUnavailableError:
        return None


def test_pending_actors_are_listed(ray_session, named):
    ray = ray_session
    first = named.options(name="listed-first", resources={"custom": 2}).remote()
    ray.get(first.read.remote())
    second = named.options(name="listed-pending", resources={"custom": 1}).remote()
    assert "listed-pending" in ray.util.list_named_actors()
    ray.kill(second)
    ray.kill(first)


def test_a_handle_from_a_name_is_weak(ray_session, named, eventually):
    import gc

    ray = ray_session
    actor = named.options(name="weakly-held").remote()
    pid = ray.get(actor.pid.remote())
    found = ray.get_actor("weakly-held")
    del actor
    gc.collect()
    eventually(lambda: is_gone(pid))
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(found.read.remote())


def test_a_killed_actor_gives_its_name_up_at_once(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Named:
        def who(self, number):
            return number

    for number in range(5):
        actor = Named.options(name="short-lived").remote()
        assert ray.get(actor.who.remote(number)) == number
        ray.kill(actor)
        with pytest.raises(ValueError, match="short-lived"):
            ray.get_actor("short-lived")
