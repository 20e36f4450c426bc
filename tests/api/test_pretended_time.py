"""Time limits hold, and deaths are told, while a test pretends another time, in the driver or in a worker."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import sys
import time

import pytest

pytestmark = pytest.mark.only("mray")

KNOWN = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")}


@contextlib.contextmanager
def pretended(rate):
    """As freezegun does: these clocks are replaced wherever a module has them. They stand still, or go so many times too fast."""
    began = {name: known() for name, known in KNOWN.items()}

    def fake(name):
        return lambda: type(began[name])(began[name] + rate * (KNOWN[name]() - began[name]))

    fakes = {id(known): fake(name) for name, known in KNOWN.items()}
    changed = []
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "") in (__name__, "__mp_main__", "__main__", "threading", "queue"):
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in fakes:
                setattr(module, name, fakes[id(value)])
                changed.append((module, name, value))
    assert (time, "monotonic", KNOWN["monotonic"]) in changed
    try:
        yield
    finally:
        for module, name, value in changed:
            setattr(module, name, value)


@pytest.fixture(params=[0, 1000], ids=["frozen", "fast"])
def rate(request):
    return request.param


@pytest.fixture
def stuck(ray_session, signal):
    """A ref whose value comes when the test is over."""
    ray = ray_session
    gate = signal()

    @ray.remote(num_cpus=0)
    def wait_for(gate):
        while not ray.get(gate.is_set.remote()):
            KNOWN_SLEEP(0.003)

    ref = wait_for.remote(gate)
    yield ref
    ray.get(gate.send.remote())
    ray.get(ref)


KNOWN_SLEEP = time.sleep


def test_time_limits_of_a_driver_hold(ray_session, stuck, rate):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def quick():
        time.sleep(0.2)
        return 1

    with pretended(rate):
        with pytest.raises(ray.exceptions.GetTimeoutError):
            ray.get(stuck, timeout=0.02)
        with pytest.raises(ray.exceptions.GetTimeoutError):
            ray.get([stuck, ray.put(1)], timeout=0.02)
        assert ray.wait([stuck], timeout=0.02) == ([], [stuck])
        assert ray.get(quick.remote(), timeout=60) == 1


def test_time_limits_of_a_worker_hold(ray_session, stuck, rate):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def limited(given):
        with pretended(rate):
            try:
                ray.get(given[0], timeout=0.02)
            except ray.exceptions.GetTimeoutError:
                return [len(part) for part in ray.wait(given, timeout=0.02)]

    assert ray.get(limited.remote([stuck])) == [0, 1]


def test_the_death_of_an_actor_is_told(ray_session, rate):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Mortal:
        def die(self):
            os._exit(3)

    warm = Mortal.remote()
    ray.get(warm.__ray_ready__.remote())
    with pretended(rate):
        for actor in (warm, Mortal.remote(), Mortal.remote()):
            with pytest.raises(ray.exceptions.ActorDiedError):
                ray.get(actor.die.remote())


def test_an_async_actor_sleeps_and_keeps_its_time_limits(ray_session, rate):
    ray = ray_session

    @ray.remote(num_cpus=0, concurrency_groups={"others": 2})
    class Awaits:
        async def limited(self):
            with pretended(rate):
                await asyncio.sleep(0.01)
                loop = asyncio.get_running_loop()
                before = loop.time()
                try:
                    await asyncio.wait_for(loop.create_future(), 0.02)
                except asyncio.TimeoutError:
                    return 0.01 < loop.time() - before < 10

        @ray.method(concurrency_group="others")
        async def limited_there(self):
            return await self.limited()

    actor = Awaits.remote()
    assert ray.get(actor.limited.remote())
    assert ray.get(actor.limited_there.remote())


def test_refs_and_items_are_awaited_in_a_loop_of_the_driver(ray_session, stuck, rate):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def items():
        yield 1
        while True:
            time.sleep(0.01)
            if ray.wait([stuck], timeout=0)[0]:
                return

    async def main():
        generator = items.remote()
        first = await generator._next_async(60)
        assert await first == 1
        return await generator._next_async(0.02)

    with pretended(rate):
        assert asyncio.run(main()).is_nil()


def test_the_time_limit_of_a_graph_holds(ray_session, rate):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Sleeper:
        def sleep(self, seconds):
            time.sleep(seconds)
            return seconds

    sleeper = Sleeper.remote()
    with ray.dag.InputNode() as given:
        graph = sleeper.sleep.bind(given).experimental_compile()
    with pretended(rate):
        ref = graph.execute(1.0)
        with pytest.raises(ray.exceptions.RayChannelTimeoutError):
            ref.get(timeout=0.02)
        assert ref.get(timeout=60) == 1.0
        assert graph.execute(0.0).get() == 0.0
    graph.teardown()


@pytest.mark.parametrize("tool", ["freezegun", "time_machine"])
def test_the_tools_themselves(ray_session, stuck, tool):
    ray = ray_session
    module = pytest.importorskip(tool)
    travel = module.freeze_time("2020-01-01") if tool == "freezegun" else module.travel("2020-01-01", tick=False)
    with travel:
        assert datetime.datetime.now().year == 2020
        with pytest.raises(ray.exceptions.GetTimeoutError):
            ray.get(stuck, timeout=0.02)
        assert ray.wait([stuck], timeout=0.02) == ([], [stuck])
