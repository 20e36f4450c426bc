"""Large results whose owner or maker dies before the one has them from the other leave nothing behind."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.only("mray")  # looks into /dev/shm


@pytest.fixture
def segments(ray_session):
    """The names of the session's shared memory."""
    from mray._api.current import current_backend

    prefix = f"mray-{current_backend().facts()['session']}-"
    return lambda: {name for name in os.listdir("/dev/shm") if name.startswith(prefix)}


def test_a_result_whose_owner_died_before_it_was_made(ray_session, segments, tmp_path, eventually):
    ray = ray_session
    numpy = pytest.importorskip("numpy")
    begun, go = tmp_path / "begun", tmp_path / "go"

    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            begun.touch()
            eventually(go.exists)
            return numpy.ones(10**6)

        def answer(self):
            return 1

    @ray.remote(num_cpus=0)
    class Caller:
        def call(self, maker):
            self.ref = maker.make.remote()

        def pid(self):
            return os.getpid()

    maker, caller = Maker.remote(), Caller.remote()
    pid = ray.get(caller.pid.remote())
    ray.get(caller.call.remote(maker))
    eventually(begun.exists)
    before = segments()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(caller.pid.remote())
    go.touch()
    assert ray.get(maker.answer.remote()) == 1
    eventually(lambda: segments() <= before)
