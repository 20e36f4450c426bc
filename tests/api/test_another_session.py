"""Refs, handles, queues and graphs that come from another session say so, in every verb."""

from __future__ import annotations

import asyncio

import pytest

from mray import cloudpickle
from mray.util.queue import Queue

pytestmark = pytest.mark.only("mray")

BELONGS = "belongs to another session"


def things_of(ray):
    """Pickles of all that belongs to a session, and what keeps it alive."""

    class Echo:
        def echo(self, value):
            return value

    actor = ray.remote(num_cpus=0)(Echo).remote()
    with ray.dag.InputNode() as given:
        graph = actor.echo.bind(given).experimental_compile()
    assert graph.execute(1).get() == 1
    queue = Queue()
    queue.put(1)
    things = {"ref": ray.put(7), "refs": [ray.put(8)], "actor": actor, "method": actor.echo, "queue": queue, "graph": graph}
    return {name: cloudpickle.dumps(thing) for name, thing in things.items()}, things


def check(ray, pickles):
    """In a process with a session of its own."""

    @ray.remote(num_cpus=0)
    def same(value):
        return value

    async def awaited(ref):
        return await ref

    def fails(error, act):
        with pytest.raises(error, match=BELONGS):
            act()

    ref, (inner,), actor, method, queue = (cloudpickle.loads(pickles[name]) for name in ("ref", "refs", "actor", "method", "queue"))
    mine = ray.put(1)
    fails(ValueError, lambda: ray.get(ref))
    fails(ValueError, lambda: ray.get([mine, inner]))
    fails(ValueError, lambda: ray.wait([ref]))
    fails(ValueError, lambda: ray.wait([mine, ref], num_returns=2))
    assert ray.wait([ref, mine], timeout=60) == ([mine], [ref])
    fails(ValueError, lambda: asyncio.run(awaited(ref)))
    fails(ValueError, lambda: ref.future().result())
    fails(ValueError, lambda: same.remote(ref))
    fails(ValueError, lambda: same.remote([ref]))
    fails(ValueError, lambda: ray.put([ref]))
    fails(TypeError, lambda: ray.cancel(ref))
    fails(ray.exceptions.ActorHandleNotFoundError, lambda: actor.echo.remote(1))
    fails(ray.exceptions.ActorHandleNotFoundError, lambda: method.remote(1))
    fails(ray.exceptions.ActorHandleNotFoundError, lambda: ray.kill(actor))
    fails(ray.exceptions.ActorHandleNotFoundError, lambda: ray.get(same.remote(actor)).echo.remote(1))
    fails(ray.exceptions.ActorHandleNotFoundError, lambda: queue.put(2))
    fails(ray.exceptions.ActorHandleNotFoundError, queue.get)
    fails(ValueError, lambda: cloudpickle.loads(pickles["graph"]))
    assert ray.get(same.remote(mine)) == 1


def test_things_of_an_earlier_session_of_the_program(fresh, init):
    init(num_cpus=1)
    pickles, things = things_of(fresh)
    del things
    fresh.shutdown()
    init(num_cpus=1)
    check(fresh, pickles)


def test_things_of_a_session_that_lives(run_program, fresh, init, tmp_path):
    init(num_cpus=1)
    pickles, things = things_of(fresh)
    (tmp_path / "pickles").write_bytes(cloudpickle.dumps(pickles))
    done = run_program(
        """
        import pickle
        import mray
        from tests.api.test_another_session import check

        mray.init(num_cpus=1, logging_level="ERROR")
        check(mray, pickle.load(open("pickles", "rb")))
        print("checked")
        """
    )
    assert done.stdout.splitlines() == ["checked"]
    assert fresh.get(things["ref"]) == 7
    assert fresh.get(things["actor"].echo.remote(3)) == 3
    assert things["queue"].get() == 1


@pytest.mark.processes("another process")
def test_a_process_that_a_driver_or_a_worker_has_spawned_is_told(run_program, tmp_path):
    (tmp_path / "spawning.py").write_text(
        """
import multiprocessing

import mray
from mray import cloudpickle


def child(pickled):
    mray.init(num_cpus=1, logging_level="ERROR")
    try:
        mray.get(cloudpickle.loads(pickled))
    except ValueError as error:
        assert "belongs to another session" in str(error)
        assert "died" not in str(error)


def spawn():
    ref = mray.put(7)
    process = multiprocessing.get_context("spawn").Process(target=child, args=(cloudpickle.dumps(ref),))
    process.start()
    process.join()
    return process.exitcode, mray.get(ref)
"""
    )
    done = run_program(
        """
        import mray
        import spawning

        if __name__ == "__main__":
            mray.init(num_cpus=1, logging_level="ERROR")
            print(spawning.spawn(), mray.get(mray.remote(spawning.spawn).remote()))
        """
    )
    assert done.stdout.splitlines() == ["(0, 7) (0, 7)"]


def test_what_an_ended_session_has_left_is_refused_without_a_new_session(run_program):
    done = run_program(
        """
        import asyncio
        import pickle
        import ENGINE as ray

        class Echo:
            def echo(self, value):
                return value

        ray.init(num_cpus=1, logging_level="ERROR")
        ref, actor = ray.put(1), ray.remote(num_cpus=0)(Echo).remote()
        pending = actor.echo.remote(2)
        ray.get(pending)
        ray.shutdown()

        async def awaited():
            return await ref

        acts = {
            "get": lambda: ray.get(ref), "get several": lambda: ray.get([pending, ref]), "wait": lambda: ray.wait([ref]),
            "await": lambda: asyncio.run(awaited()), "future": lambda: ref.future().result(), "pickle": lambda: pickle.dumps(ref),
            "cancel": lambda: ray.cancel(ref), "call": lambda: actor.echo.remote(1),
            "options": lambda: actor.echo.options(name="a").remote(1), "kill": lambda: ray.kill(actor),
        }
        for name, act in acts.items():
            try:
                act()
            except Exception as error:
                print(name, "|", type(error).__name__, "session that has ended" in str(error) or "one that has ended" in str(error))
            assert not ray.is_initialized()
        """
    )
    errors = dict(line.split(" | ") for line in done.stdout.splitlines())
    refs = ("get", "get several", "wait", "await", "future", "pickle")
    assert errors == {
        **dict.fromkeys(refs, "ValueError True"),
        "cancel": "TypeError True",
        **dict.fromkeys(("call", "options", "kill"), "ActorHandleNotFoundError True"),
    }
