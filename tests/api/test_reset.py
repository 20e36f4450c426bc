"""`mray.util.testing.reset`: a session begins anew, and refs and handles from before raise errors instead of hanging."""

from __future__ import annotations

import os
import signal as signals
import threading

import pytest

#: Ray has no such thing; in one process `reset` starts another session, and what is asked of that is said in its own file.
pytestmark = pytest.mark.only("mray")


@pytest.fixture
def reset():
    from mray.util.testing import reset

    return reset


def test_names_groups_values_and_resources_are_as_at_the_beginning(ray_session, reset):
    ray = ray_session
    from mray.experimental import internal_kv
    from mray.util import get_placement_group, list_named_actors, placement_group

    reset()
    whole = ray.available_resources()

    @ray.remote(num_cpus=1, resources={"custom": 1})
    class A:
        def ping(self):
            return os.getpid()

    named = A.options(name="a").remote()
    kept = A.options(name="b", lifetime="detached").remote()
    ray.get([named.ping.remote(), kept.ping.remote()])
    ray.get(placement_group([{"CPU": 1}], name="g").ready())
    internal_kv._internal_kv_put(b"key", b"value")
    reset()
    assert ray.available_resources() == whole
    assert list_named_actors(all_namespaces=True) == []
    assert internal_kv._internal_kv_get(b"key") is None
    with pytest.raises(ValueError):
        ray.get_actor("a")
    with pytest.raises(ValueError):
        get_placement_group("g")
    assert ray.get(A.options(name="a").remote().ping.remote()) > 0


def test_functions_and_classes_are_taken_as_they_are_after_it(ray_session, reset):
    ray = ray_session
    value = 1

    @ray.remote
    def f():
        return value

    @ray.remote
    class A:
        def value(self):
            return value

    for number in (1, 2):
        value = number
        assert ray.get([f.remote(), A.remote().value.remote()]) == [number, number]
        reset()


def test_processes_of_before_are_gone_and_an_idle_worker_stays(ray_session, reset):
    ray = ray_session

    @ray.remote
    class A:
        def pid(self):
            return os.getpid()

    @ray.remote(num_cpus=4)
    def pid():
        return os.getpid()

    actors = [A.remote() for _ in range(3)]
    pids = ray.get([actor.pid.remote() for actor in actors])
    worker = ray.get(pid.remote())
    reset()
    assert not [each for each in pids if os.path.exists(f"/proc/{each}")]
    assert os.path.exists(f"/proc/{worker}")


def test_what_is_left_of_before_says_that_it_is_of_before(ray_session, reset):
    ray = ray_session

    @ray.remote
    def echo(value):
        return value

    @ray.remote
    class A:
        def ping(self):
            return 1

        def wait(self):
            threading.Event().wait()

    actor = A.remote()
    done, stored, computed = actor.ping.remote(), ray.put([1]), echo.remote(2)
    ray.get([done, computed])
    pending = actor.wait.remote()
    behind = echo.remote(pending)
    reset()
    for ref in (done, stored, computed, pending, behind):
        with pytest.raises(ValueError, match="before the session was reset"):
            ray.get(ref)
        with pytest.raises(ValueError, match="before the session was reset"):
            ray.wait([ref], timeout=0)
        with pytest.raises(ValueError, match="before the session was reset"):
            echo.remote(ref)
        with pytest.raises(ValueError, match="before the session was reset"):
            echo.remote([ref])
        with pytest.raises(TypeError, match="before the session was reset"):
            ray.cancel(ref)
    with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="before it was reset"):
        actor.ping.remote()
    with pytest.raises(ray.exceptions.ActorHandleNotFoundError, match="before it was reset"):
        ray.kill(actor)
    assert ray.get(echo.remote(3)) == 3


def test_threads_that_wait_are_told(ray_session, reset):
    ray = ray_session

    @ray.remote
    class A:
        def wait(self):
            threading.Event().wait()

    actors = [A.remote() for _ in range(2)]
    refs = [actor.wait.remote() for actor in actors]
    raised = []

    def wait(ref):
        try:
            ray.get(ref)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=wait, args=[ref]) for ref in refs]
    for thread in threads:
        thread.start()
    reset()
    for thread in threads:
        thread.join()
    assert len(raised) == 2
    assert all("reset" in str(error) for error in raised)


def test_tasks_under_way_and_in_the_queue_never_run_on(ray_session, reset, tmp_path):
    ray = ray_session

    @ray.remote(num_cpus=2)
    def note(path, number):
        open(f"{path}/began-{number}", "w").close()
        signals.pause()

    @ray.remote
    def outer(path):
        return ray.get([note.remote(path, number) for number in range(10, 20)])

    refs = [note.remote(str(tmp_path), number) for number in range(10)]
    refs.append(outer.remote(str(tmp_path)))
    reset()

    @ray.remote(num_cpus=4)
    def whole_machine():
        return True

    # Calls that had begun are dead: all CPUs are free. Calls that had not begun did not begin meanwhile.
    began = sorted(tmp_path.iterdir())
    assert ray.get(whole_machine.remote())
    assert sorted(tmp_path.iterdir()) == began


def test_a_graph_of_before_is_down_and_the_next_one_runs(ray_session, reset):
    ray = ray_session

    @ray.remote
    class A:
        def double(self, x):
            return 2 * x

    def compiled():
        with ray.dag.InputNode() as x:
            return A.remote().double.bind(x).experimental_compile()

    graph = compiled()
    assert ray.get(graph.execute(1)) == 2
    pending = graph.execute(2)
    reset()
    with pytest.raises(Exception):  # noqa: B017  (whichever says that it is down; it must not hang)
        ray.get(pending)
    with pytest.raises(Exception):  # noqa: B017
        graph.execute(3)
    again = compiled()
    assert ray.get(again.execute(4)) == 8
    again.teardown()


def test_large_objects_are_given_back(ray_session, reset, eventually):
    ray = ray_session
    from mray._api.current import current_backend

    session = current_backend().info()["session"]

    def names():
        return {name for name in os.listdir("/dev/shm") if session in name}

    @ray.remote
    def large():
        return bytes(1 << 20)

    @ray.remote
    def keeps():
        import builtins

        builtins.kept = ray.put(bytes(1 << 20))
        return os.getpid()

    reset()
    before = names()
    refs = [ray.put(bytes(1 << 20)), large.remote()]
    ray.get(refs)
    pid = ray.get(keeps.remote())
    assert names() - before
    reset()
    assert not os.path.exists(f"/proc/{pid}"), "it owned an object"
    eventually(lambda: names() <= before)  # workers that stay hear of it at the same time


def test_output_of_before_is_printed_before_it_returns(ray_session, reset, capfd):
    ray = ray_session

    @ray.remote
    def say():
        print("from before")

    for _ in range(20):
        ray.get(say.remote())
        reset()
        assert "from before" in capfd.readouterr().out


def test_again_and_again(ray_session, reset):
    ray = ray_session

    @ray.remote
    class A:
        def ping(self):
            return 1

    for _ in range(20):
        actor = A.options(name="always").remote()
        assert ray.get(actor.ping.remote()) == 1
        reset()


def test_without_a_session_it_says_so(fresh, reset):
    with pytest.raises(fresh.exceptions.RaySystemError, match="not been started"):
        reset()


def test_a_worker_cannot_reset_the_session(ray_session):
    ray = ray_session

    @ray.remote
    def inside():
        from mray.util.testing import reset

        reset()

    with pytest.raises(ray.exceptions.RaySystemError, match="only the driver"):
        ray.get(inside.remote())


def test_a_node_that_died_is_reported_and_the_next_session_starts(init, fresh, reset):
    ray = fresh
    init(num_cpus=1)
    from mray._api.current import current_backend

    node = current_backend().info()["node_pid"]
    os.kill(node, signals.SIGKILL)
    with pytest.raises(ray.exceptions.RayError, match="SIGKILL"):
        while True:
            ray.get(ray.remote(lambda: 1).remote())
    # The session that begins anew is another one then.
    reset()
    assert ray.get(ray.remote(lambda: 2).remote()) == 2
