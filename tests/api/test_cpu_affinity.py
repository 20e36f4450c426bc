"""Tasks and actors pinned to CPUs: what Ray does not have."""

from __future__ import annotations

import os
import signal as signals
import threading

import pytest

pytestmark = pytest.mark.only("mray")

ALLOWED = sorted(os.sched_getaffinity(0))
#: One CPU of several; on a machine with one CPU pinning changes nothing that could be seen.
ONE = ALLOWED[-1]


def pinned():
    """The CPUs of every thread of this process, and of one that is started now."""
    found = {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
    thread = threading.Thread(target=lambda: found.add(frozenset(os.sched_getaffinity(0))))
    thread.start()
    thread.join()
    return sorted(map(sorted, found))


def test_a_list_pins_every_thread_of_a_task(ray_session):
    ray = ray_session
    task = ray.remote(pinned)
    assert ray.get(task.options(cpu_affinity=[ONE]).remote()) == [[ONE]]
    assert ray.get(ray.remote(cpu_affinity=ALLOWED)(pinned).remote()) == [ALLOWED]


def test_the_next_task_of_the_same_worker_runs_where_it_ran_before(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=4)
    def where():
        return os.getpid(), sorted(os.sched_getaffinity(0))

    first = ray.get(where.options(cpu_affinity=[ONE]).remote())
    again = [ray.get(where.remote()) for _ in range(3)]
    assert first[1] == [ONE]
    assert all(cpus == ALLOWED for _pid, cpus in again)
    assert first[0] in {pid for pid, _cpus in again}


def test_an_actor_is_pinned_for_life_and_in_its_next_one(ray_session, eventually):
    ray = ray_session

    @ray.remote(cpu_affinity=[ONE], max_restarts=1, max_task_retries=3)
    class Actor:
        def __init__(self):
            self.at_first = pinned()

        def where(self):
            return os.getpid(), self.at_first, pinned()

    actor = Actor.remote()
    pid, *places = ray.get(actor.where.remote())
    assert places == [[[ONE]], [[ONE]]]
    os.kill(pid, signals.SIGKILL)
    again, *places = ray.get(actor.where.remote())
    assert again != pid
    assert places == [[[ONE]], [[ONE]]]


def test_listings_show_who_is_pinned_where(ray_session):
    from mray.util.state import list_workers

    @ray_session.remote(cpu_affinity=[ONE])
    class Actor:
        def pid(self):
            return os.getpid()

    actor = Actor.remote()
    pid = ray_session.get(actor.pid.remote())
    pinned_to = {worker.pid: worker.cpu_affinity for worker in list_workers(detail=True)}
    assert pinned_to[pid] == [ONE]
    assert pinned_to[os.getpid()] == []


def test_children_of_a_pinned_task_are_not_pinned(ray_session):
    ray = ray_session

    @ray.remote
    def parent():
        return ray.get(ray.remote(pinned).remote()), ray.get(ray.remote(pinned).options(cpu_affinity=ALLOWED[:1]).remote())

    assert ray.get(parent.options(cpu_affinity=[ONE]).remote()) == ([ALLOWED], [ALLOWED[:1]])


def test_automatic_places_are_disjoint_as_long_as_there_are_cpus(ray_session, eventually):
    from mray.util.state import list_workers

    ray = ray_session
    eventually(lambda: not any(worker.cpu_affinity for worker in list_workers(detail=True)), what="leases of pinned tasks go back")

    @ray.remote(cpu_affinity="auto")
    class Actor:
        def where(self):
            return sorted(os.sched_getaffinity(0))

    actors = [Actor.remote() for _ in range(len(ALLOWED))]
    places = ray.get([actor.where.remote() for actor in actors])
    assert sorted(cpu for place in places for cpu in place) == ALLOWED


def test_an_unknown_cpu_is_an_error_at_the_call(ray_session):
    ray = ray_session
    with pytest.raises(ValueError, match=r"may not run on the CPUs \[100000\]"):
        ray.remote(pinned).options(cpu_affinity=[100000]).remote()

    @ray.remote(cpu_affinity=[100000])
    class Actor:
        pass

    with pytest.raises(ValueError, match=r"may not run on the CPUs \[100000\]"):
        Actor.remote()


def test_the_number_of_threads_of_libraries_follows_the_cpus_that_were_asked_for(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=2, cpu_affinity=[ONE])
    def threads():
        return os.environ["OMP_NUM_THREADS"]

    assert ray.get(threads.remote()) == "2"


def test_gpus_bring_the_cpus_near_them(init, monkeypatch):
    monkeypatch.setenv("MRAY_NULL_DEVICES", "2")
    init(num_cpus=2, num_gpus=2)
    import mray

    @mray.remote(num_gpus=1, cpu_affinity="auto")
    class Actor:
        def where(self):
            return mray.get_gpu_ids(), sorted(os.sched_getaffinity(0))

    actors = [Actor.remote() for _ in range(2)]
    places = sorted(mray.get([actor.where.remote() for actor in actors]))
    middle = len(ALLOWED) // 2
    shares = [ALLOWED[:middle], ALLOWED[middle:]] if middle else [ALLOWED, ALLOWED]
    assert places == [([0], shares[0]), ([1], shares[1])]


def test_a_placement_group_has_gpus_of_one_island(init, monkeypatch):
    monkeypatch.setenv("MRAY_NULL_DEVICES", "5,island=3")
    init(num_cpus=2, num_gpus=5)
    import mray
    from mray.util.placement_group import placement_group
    from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    @mray.remote(num_cpus=0)
    class Actor:
        def where(self):
            return mray.get_gpu_ids()

    def ids(actors):
        return sorted(gpu for gpus in mray.get([actor.where.remote() for actor in actors]) for gpu in gpus)

    alone = Actor.options(num_gpus=1).remote()
    assert ids([alone]) == [3]  # of the smaller island
    group = placement_group([{"GPU": 1}, {"GPU": 2}])
    mray.get(group.ready())
    strategy = PlacementGroupSchedulingStrategy(placement_group=group)
    assert ids([Actor.options(num_gpus=count, scheduling_strategy=strategy).remote() for count in (2, 1)]) == [0, 1, 2]
