"""Compiled graphs that Ray has compiled for a program of mray: what is translated, and what Ray has not."""

from __future__ import annotations

import asyncio
import pickle
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.only("mray-on-ray")  # about the seam between the two


@pytest.fixture
def actor(ray_session: ModuleType) -> Any:
    class Actor:
        def add_one(self, value: Any) -> Any:
            return value + 1

        def add(self, left: Any, right: Any) -> Any:
            return left + right

        def wait_for(self, path: str) -> str:
            while not Path(path).exists():
                time.sleep(0.01)
            return path

        def full(self, size: int) -> Any:
            return np.full(size, 7)

    return ray_session.remote(num_cpus=0)(Actor)


def test_a_ref_whose_time_was_up_is_got_later(ray_session, actor, compiled, tmp_path):
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor.remote().wait_for.bind(given))
    path = tmp_path / "there"
    ref = graph.execute(str(path))
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        ray_session.get(ref, timeout=0.05)
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        ray_session.get([ref], timeout=0.05)
    path.touch()
    assert ray_session.get(ref) == str(path)
    with pytest.raises(ValueError, match="can only be called once"):
        ray_session.get(ref)


def test_a_constant_that_is_a_ref_is_its_value(ray_session, actor, compiled):
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor.remote().add.bind(given, ray_session.put(40)))
    assert ray_session.get(graph.execute(2)) == 42


def test_a_value_is_received_into_an_array(ray_session, actor, compiled):
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor.remote().full.bind(given))
    out = np.zeros(10, dtype=int)
    assert graph.execute(10).get(out=out) is out
    assert out.tolist() == [7] * 10


def test_one_execution_too_many_is_mrays_error(ray_session, actor, compiled, tmp_path):
    with ray_session.dag.InputNode() as given:
        graph = compiled(actor.remote().wait_for.bind(given), _max_inflight_executions=1)
    (tmp_path / "there").touch()
    ref = graph.execute(str(tmp_path / "there"))
    with pytest.raises(ray_session.exceptions.RayCgraphCapacityExceeded):
        graph.execute(str(tmp_path / "there"))
    assert ray_session.get(ref)


def test_a_stream_keeps_the_order(ray_session, actor, compiled):
    async def main() -> list[int]:
        # Ray's graphs belong to the event loop in which they were compiled.
        with ray_session.dag.InputNode() as given:
            graph = compiled(actor.remote().add_one.bind(given), enable_asyncio=True, _max_inflight_executions=3)
        return [value async for value in graph.stream(range(10))]

    assert asyncio.run(main()) == list(range(1, 11))


def test_what_ray_has_not_is_refused_by_its_name(ray_session, actor, compiled):
    first, second = actor.remote(), actor.remote()
    with ray_session.dag.InputNode() as given:
        dag = second.add_one.bind(first.add_one.bind(given).with_tensor_transport("cuda_ipc"))
    with pytest.raises(ValueError, match="Ray's graphs have no transport 'cuda_ipc'"):
        dag.experimental_compile()
    with ray_session.dag.InputNode() as given:
        dag = first.add_one.bind(given)
    with pytest.raises(NotImplementedError, match="_when_full='wait' is mray's own"):
        dag.experimental_compile(_when_full="wait")
    graph = compiled(dag)
    for ask in (graph.report, graph.statistics, graph.profile):
        with pytest.raises(NotImplementedError, match=rf"{ask.__name__}\(\) of a compiled graph is mray's own"):
            ask()
    with pytest.raises(TypeError, match="cannot be handed to another process"):
        pickle.dumps(graph)
    assert ray_session.get(graph.execute(1)) == 2


def test_a_graph_ends_with_an_actor_of_it_and_says_who_died(ray_session, actor, compiled):
    one = actor.remote()
    with ray_session.dag.InputNode() as given:
        graph = compiled(one.add_one.bind(given))
    assert ray_session.get(graph.execute(1)) == 2
    ray_session.kill(one)
    with pytest.raises((ray_session.exceptions.ActorDiedError, ray_session.exceptions.RayChannelError)):
        for _ in range(1000):  # the death is known some milliseconds later
            ray_session.get(graph.execute(1))
