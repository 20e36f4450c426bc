"""A session of mray's own inside a worker of Ray; where mray runs by itself, the session that there is."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.only("mray", "mray-on-ray")  # Ray has no session in a session, and one process has one session


@pytest.fixture
def host(ray_session: ModuleType) -> Any:
    """An actor with a session of its own, if it may have one."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Worker:
        def add_one(self, value: Any) -> Any:
            return value + 1

        def pid(self) -> int:
            return os.getpid()

        def identity(self, value: Any) -> Any:
            return value

    @ray.remote(num_cpus=0)
    class Host:
        def __init__(self) -> None:
            self.context = ray.init(address="local", num_cpus=2, ignore_reinit_error=True, logging_level="ERROR")
            self.workers = [Worker.remote() for _ in range(2)]
            with ray.dag.InputNode() as given:
                self.graph = self.workers[1].add_one.bind(self.workers[0].add_one.bind(given)).experimental_compile()

        def session(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

        def run(self, value: int) -> Any:
            return ray.get(self.graph.execute(value))

        def call(self, value: Any) -> Any:
            return ray.get(self.workers[0].add_one.remote(value))

        def pids(self) -> list[int]:
            return [os.getpid(), *ray.get([worker.pid.remote() for worker in self.workers])]

        def get_inside(self, box: list[Any]) -> Any:
            own = ray.put(1)
            return [*ray.get([box[0], own]), ray.get(box[0]), ray.wait([box[0]]) == ([box[0]], [])]

        def call_outside(self, actor: Any, value: int) -> Any:
            return ray.get(actor.add_one.remote(value))

        def send_in(self, box: list[Any], way: str) -> Any:
            worker = self.workers[0]
            return ray.get(worker.identity.remote(box[0] if way == "argument" else box))

        def send_out(self, what: str) -> Any:
            return ray.put(1) if what == "ref" else [self.workers[0]]

        def end(self) -> tuple[bool, str]:
            self.graph.teardown()
            self.workers.clear()
            ray.shutdown()
            return ray.is_initialized(), self.session()

    return Host, Worker


@pytest.fixture
def has_own(ray_session: ModuleType) -> bool:
    """Whether an actor's session is one of its own."""
    return os.environ.get("MRAY_ADDRESS", "").startswith("ray:")


def test_a_graph_and_calls_in_the_session_within(ray_session, host, has_own):
    ray = ray_session
    a = host[0].remote()
    assert ray.get([a.run.remote(number) for number in range(5)]) == list(range(2, 7))
    assert ray.get(a.call.remote(1)) == 2
    assert (ray.get(a.session.remote()) != ray.get_runtime_context().get_node_id()) is has_own


def test_refs_and_handles_of_the_session_around_stay_good(ray_session, host):
    ray = ray_session
    make, worker = host
    a, outside = make.remote(), worker.remote()
    assert ray.get(a.get_inside.remote([ray.put(5)])) == [5, 1, 5, True]
    assert ray.get(a.call_outside.remote(outside, 1)) == 2
    assert ray.get(a.call.remote(outside.add_one.remote(1))) == 3


@pytest.mark.only("mray-on-ray")  # elsewhere there is one session
@pytest.mark.parametrize("way", ["argument", "inside"])
def test_a_ref_of_the_cluster_does_not_go_in(ray_session, host, way):
    a = host[0].remote()
    with pytest.raises(ValueError, match=r"belongs to the Ray cluster.*pass its value"):
        ray_session.get(a.send_in.remote([ray_session.put(1)], way))


@pytest.mark.only("mray-on-ray")  # elsewhere there is one session
@pytest.mark.parametrize("what", ["ref", "handle"])
def test_what_is_of_the_session_within_does_not_go_out(ray_session, host, what):
    a = host[0].remote()
    with pytest.raises(ValueError, match="belongs to the session within a worker of Ray.*return its value"):
        ray_session.get(a.send_out.remote(what))


@pytest.mark.only("mray-on-ray")  # elsewhere a worker belongs to its session
def test_shutdown_ends_the_session_within_alone(ray_session, host):
    ray = ray_session
    a = host[0].remote()
    assert ray.get(a.end.remote()) == (True, ray.get_runtime_context().get_node_id())


@pytest.mark.only("mray-on-ray")  # elsewhere the tests of actors say it
def test_the_session_within_ends_with_its_worker(ray_session, host, eventually):
    ray = ray_session
    a = host[0].remote()
    pids = ray.get(a.pids.remote())
    ray.kill(a)
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_init_without_ignore_reinit_error_says_no_where_there_is_a_session(ray_session, has_own):
    ray = ray_session

    @ray.remote
    def begin(address: str | None) -> None:
        ray.init(address=address, logging_level="ERROR")

    for address in [None] if has_own else [None, "local"]:
        with pytest.raises(RuntimeError, match="Maybe you called ray.init twice by accident"):
            ray.get(begin.remote(address))
