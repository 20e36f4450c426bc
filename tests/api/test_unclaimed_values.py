"""Large results whose owner or maker dies before the one has them from the other leave nothing behind."""

from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.only("mray")  # looks into /dev/shm


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


@pytest.mark.parametrize("spilled", [False, True])
def test_a_result_whose_maker_died_before_it_was_told_of(fresh, init, eventually, spilled):
    ray = fresh
    numpy = pytest.importorskip("numpy")
    init(num_cpus=1, object_store_memory=80 << 20)
    from mray._api.current import current_backend

    info = current_backend().info()
    spill = os.path.join(info["session_dir"], "spilled")

    def names():
        on_disk = os.listdir(spill) if os.path.isdir(spill) else []
        return {name for name in [*os.listdir("/dev/shm"), *on_disk] if info["session"] in name or name in on_disk}

    @ray.remote
    class Maker:
        def make(self, size):
            return numpy.ones(size, numpy.uint8)

        def make_and_die(self, size):
            from mray._objects.store import SegmentStore

            def and_die(store):
                def store_and_die(*arguments):
                    store(*arguments)
                    os.kill(os.getpid(), signal.SIGKILL)

                return store_and_die

            SegmentStore.write = and_die(SegmentStore.write)
            SegmentStore.spill = and_die(SegmentStore.spill)
            return self.make(size)

    size = (100 if spilled else 1) << 20
    maker = Maker.remote()
    kept = ray.get(maker.make.remote(size)), maker.make.remote(size)
    ray.wait([kept[1]])
    before = names()
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(maker.make_and_die.remote(size))
    eventually(lambda: names() <= before)
    # Reported items are there still.
    assert ray.get(kept[1]).sum() == kept[0].sum() == size
