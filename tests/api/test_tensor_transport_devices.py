"""Tensors of devices that stay with their actor and are opened by others, on pretended GPUs."""

from __future__ import annotations

import gc
import os
import signal as signals
import threading
from pathlib import Path

import numpy as np
import pytest

from mray._api.current import current_backend
from mray._device.memory_pool import all_pools
from mray._device.platform import forget_platform, platform
from mray._gpu.cuda_ipc import trim_pools
from mray.testing import null

pytestmark = pytest.mark.only("mray")

SCOPE = f"test-tensor-transport-{os.getpid()}"


@pytest.fixture
def session(fresh, init, monkeypatch, eventually):
    """Starts a session of a machine with these pretended devices; returns the module."""

    def begin(devices, num_gpus=2):
        forget_platform()
        monkeypatch.setenv("MRAY_NULL_DEVICES", f"{devices},scope={SCOPE}")
        init(num_cpus=4, num_gpus=num_gpus)
        return fresh

    yield begin
    fresh.shutdown()
    gc.collect()
    eventually(trim_pools)
    monkeypatch.undo()
    forget_platform()


class Foreign:
    """An array of another library, on a device."""

    @property
    def __cuda_array_interface__(self):
        return {"version": 3}


class Actor:
    def __init__(self):
        self.kept = []

    def make(self, value, size=1000):
        return null.full(size, value)

    def make_before_a_fault(self):
        """A tensor whose kernel is late, and goes wrong."""
        hold = null.hold()
        platform().devices[0].launch(0, lambda: 1 // 0)
        threading.Timer(0.3, hold.release).start()
        return null.full(1000, 1.0)

    def make_held(self):
        """A tensor whose kernels do not run."""
        self.hold = null.hold()
        return null.full(1000, 1.0)

    def make_slowly(self, value):
        array = null.full(1000, 0.0)
        for _ in range(value):
            array += 1
        return array

    def make_mixed(self):
        return {"arrays": [null.full(10, 1.0), null.full((2, 3), 2.0)], "numbers": np.arange(4), "none": null.empty(0)}

    def make_and_keep(self, value):
        self.kept.append(null.full(1000, value))
        return self.kept[-1]

    def add_to_kept(self):
        self.kept[-1] += 1

    def write_again_once_free(self):
        import mray.experimental

        mray.experimental.wait_tensor_freed(self.kept[-1])
        self.kept[-1].fill_(-1)

    def wait_freed(self, timeout):
        import mray.experimental

        mray.experimental.wait_tensor_freed(self.kept[-1], timeout)
        return True

    def keep(self, array):
        self.kept.append(array)
        return float(array.sum())

    def kept_sums(self):
        return [float(array.sum()) for array in self.kept]

    def forget(self):
        self.kept.clear()

    def total(self, array):
        return float(array.sum())

    def begun(self, path, array):
        """The sum, after a note that the array is here."""
        Path(path).touch()
        return self.total(array)

    def stored(self, path, array):
        """A large value of the host, which is stored."""
        return np.full(1 << 20, self.begun(path, array))

    def through_host(self, path, array):
        """An array whose contents are looked at when it is pickled."""
        Path(path).touch()
        return array + 1

    def failing(self, path, array):
        """An error that comes of the contents."""
        raise ValueError(f"{self.begun(path, array)} is no sum of ones")

    def pair(self, path, array):
        """Two values, of which one is stored and the other goes through the host."""
        return self.stored(path, array), array + 1

    def arrays(self, path, array):
        """Two large values of the host."""
        return self.stored(path, array), np.zeros(1 << 20)

    def items(self, path, array):
        """One value after the other."""
        yield self.begun(path, array)

    def keep_and_pass(self, path, array):
        """Nobody waits for the contents."""
        self.kept.append(array)
        Path(path).touch()

    def totals(self, mixed):
        arrays = [*mixed["arrays"], mixed["none"]]
        return [float(array.sum()) for array in arrays], [array.shape for array in arrays], mixed["numbers"].tolist()

    def add_one(self, array):
        array += 1
        return float(array.sum())

    def fetched(self):
        """How many tensors came as views and as copies, and how often the host waited for a device."""
        imports = tuple(current_backend().client.tensors._loans._imports.values())
        return sum(each.viewed for each in imports), sum(each.copied for each in imports), platform().synchronizations

    def lent(self):
        """Loans that are out, and how many tensors were copied for them."""
        loans = current_backend().client.tensors._loans
        return loans._lent.out, loans._exports.copied

    def make_foreign(self):
        return [null.full(10, 1.0), Foreign()]

    def second(self, values):
        return type(values[1]).__name__

    def pool(self):
        return sum(pool.held() for pool in all_pools())

    def pid(self):
        return os.getpid()


def actors(ray, count, gpus=0.5, transport="cuda_ipc", **options):
    made = {name: ray.method(tensor_transport=transport)(getattr(Actor, name)) for name in vars(Actor) if name.startswith("make")}
    cls = ray.remote(num_gpus=gpus, num_cpus=0, **options)(type("Actor", (Actor,), made))
    return [cls.remote() for _ in range(count)]


def returned(ray, sender, value):
    """The ref of an array that no frame of its maker's looks at any more."""
    ref = sender.make.remote(value)
    ray.get(sender.pid.remote())
    return ref


@pytest.mark.parametrize("transport", ["cuda_ipc", "nccl"])
def test_an_array_is_seen_where_it_lies(session, transport):
    ray = session("1,late=0.002", 1)
    sender, receiver = actors(ray, 2, transport=transport)
    for value in range(3):
        assert ray.get(receiver.total.remote(returned(ray, sender, value))) == 1000 * value
    viewed, copied, _ = ray.get(receiver.fetched.remote())
    assert (viewed, copied) == (3, 0)
    assert ray.get(sender.lent.remote())[1] == 3


def test_the_receivers_stream_waits_for_what_makes_the_array(session):
    ray = session("1,late=0.005", 1)
    sender, receiver = actors(ray, 2)
    assert ray.get(receiver.total.remote(sender.make_slowly.remote(20))) == 20_000
    _, _, synchronizations = ray.get(sender.fetched.remote())
    assert synchronizations == 0, "nobody on the holder's host waited"


def test_arrays_anywhere_in_a_value_arrive(session):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    assert ray.get(receiver.totals.remote(sender.make_mixed.remote())) == (
        [10.0, 12.0, 0.0],
        [(10,), (2, 3), (0,)],
        [0, 1, 2, 3],
    )


def test_the_driver_gets_arrays_too(session):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)
    ref = sender.make.remote(3.0)
    array = ray.get(ref)
    assert type(array) is null.NullArray
    np.testing.assert_array_equal(array.numpy(), np.full(1000, 3.0))
    np.testing.assert_array_equal(ray.get(ref, _use_object_store=True).numpy(), np.full(1000, 3.0))


def test_the_driver_puts_arrays_where_they_are(session):
    ray = session("1", 1)
    (receiver,) = actors(ray, 1)
    array = null.full(1000, 2.0)
    ref = ray.put([array], _tensor_transport="cuda_ipc")
    assert ray.get(ref)[0] is array
    add = receiver.__ray_call__.remote(lambda _actor, value: float(value[0].sum()), ref)
    assert ray.get(add) == 2000
    del ref, add


def test_get_writes_into_targets_on_the_device(session):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)
    ref = sender.make.remote(3.0)
    target = null.zeros(1000)
    ray.experimental.set_target_for_ref(ref, [target])
    assert ray.get(ref) is target
    np.testing.assert_array_equal(target.numpy(), np.full(1000, 3.0))


def test_what_a_receiver_keeps_does_not_bind_a_holder_that_copied(session):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    ref = sender.make_and_keep.remote(1.0)
    assert ray.get(receiver.keep.remote(ref)) == 1000
    del ref
    assert ray.get(sender.wait_freed.remote(None)) is True
    assert ray.get(receiver.kept_sums.remote()) == [1000]


def test_what_an_actor_keeps_is_copied_before_it_is_lent(session):
    ray = session("1,late=0.001", 1)
    sender, receiver = actors(ray, 2)
    ref = sender.make_and_keep.remote(1.0)
    assert ray.get(receiver.keep.remote(ref)) == 1000
    ray.get(sender.add_to_kept.remote())
    assert ray.get(receiver.kept_sums.remote()) == [1000]
    assert ray.get(receiver.total.remote(ref)) == 2000, "a later receiver gets the tensor as it is then"


def test_a_freed_array_may_be_written_to_at_once(session):
    ray = session("1,late=0.005", 1)
    sender, receiver = actors(ray, 2)
    for value in range(1, 6):
        ref = sender.make_and_keep.remote(value)
        result = receiver.total.remote(ref)
        written = sender.write_again_once_free.remote()
        del ref
        assert ray.get(result) == 1000 * value
        ray.get(written)


def test_an_array_of_a_live_ref_is_not_free(session):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)
    ref = sender.make_and_keep.remote(1.0)
    with pytest.raises(TimeoutError):
        ray.get(sender.wait_freed.remote(0.2))
    del ref
    assert ray.get(sender.wait_freed.remote(None)) is True


def test_views_outlive_the_call_and_the_ref(session, eventually):
    ray = session("1,late=0.001", 1)
    sender, receiver = actors(ray, 2)
    refs = [sender.make.remote(value) for value in range(5)]
    for ref in refs:
        ray.get(receiver.keep.remote(ref))
    del refs, ref
    for value in range(20):
        ray.get(receiver.total.remote(sender.make.remote(100 + value)))
    assert ray.get(receiver.kept_sums.remote()) == [1000 * value for value in range(5)]
    eventually(lambda: ray.get(sender.lent.remote())[0] == 5)
    ray.get(receiver.forget.remote())
    eventually(lambda: ray.get(sender.lent.remote())[0] == 0)


def test_memory_is_used_again(session):
    ray = session("1,memory=268435456", 1)
    sender, receiver = actors(ray, 2)
    for value in range(30):  # 30 times 32 MiB on a device of 256
        assert ray.get(receiver.total.remote(sender.make.remote(value, 1 << 23))) == value * (1 << 23)


def test_arrays_cross_between_devices_with_peer_access(session):
    ray = session("2,late=0.001")
    sender, receiver = actors(ray, 2, gpus=1)
    assert ray.get(receiver.total.remote(sender.make.remote(4.0))) == 4000
    assert ray.get(receiver.fetched.remote())[:2] == (0, 1)


def test_devices_without_peer_access_are_told_apart(session):
    ray = session("2,peer=0")
    sender, receiver = actors(ray, 2, gpus=1)
    with pytest.raises(ValueError, match=r"(?s)'cuda_ipc' from Actor \(pid \d+\).*no device that can reach.*or write 'shm'"):
        ray.get(receiver.total.remote(sender.make.remote(4.0)))
    by_nccl, other = actors(ray, 1, gpus=0, transport="nccl"), receiver
    assert ray.get(other.total.remote(by_nccl[0].make.remote(4.0))) == 4000


def test_a_receiver_that_cannot_open_what_others_have_gets_it_through_the_host_and_says_so_once(session, capfd, eventually):
    ray = session("1")
    cut_off = ray.remote(num_gpus=0.5)(Actor)
    receiver = cut_off.options(runtime_env={"env_vars": {"MRAY_NULL_DEVICES": f"1,ipc=0,scope={SCOPE}"}}).remote()
    (sender,), (demanding,) = actors(ray, 1, gpus=0.2, transport="nccl"), actors(ray, 1, gpus=0.2)
    assert [ray.get(receiver.total.remote(sender.make.remote(value))) for value in (4.0, 5.0)] == [4000, 5000]
    assert ray.get(receiver.fetched.remote())[:2] == (0, 0)
    told = f"(pid {ray.get(sender.pid.remote())}) to pid {ray.get(receiver.pid.remote())}, which cannot open memory of its GPU"
    said = []
    eventually(lambda: said.append(capfd.readouterr().err) or told in "".join(said))
    with pytest.raises(ValueError, match=r"(?s)'cuda_ipc' from Actor .*this pretended device has no IPC.*or write 'shm'"):
        ray.get(receiver.total.remote(demanding.make.remote(4.0)))
    assert "".join([*said, capfd.readouterr().err]).count(told) == 1


def test_a_holder_that_cannot_export_sends_through_the_host_and_says_so_once(session, capfd, eventually):
    ray = session("1")
    environment = {"env_vars": {"MRAY_NULL_DEVICES": f"1,exports=0,scope={SCOPE}"}}
    (sender,), (demanding,) = (actors(ray, 1, gpus=0.2, transport=transport, runtime_env=environment) for transport in ("nccl", "cuda_ipc"))
    (receiver,) = actors(ray, 1, gpus=0.2)
    assert [ray.get(receiver.total.remote(sender.make.remote(value))) for value in (4.0, 5.0)] == [4000, 5000]
    assert ray.get(receiver.fetched.remote())[:2] == (0, 0)
    told = f"Tensors go through host memory from pid {ray.get(sender.pid.remote())}, which cannot export memory of its GPU"
    said = []
    eventually(lambda: said.append(capfd.readouterr().err) or told in "".join(said))
    with pytest.raises(ValueError, match=r"(?s)tensor_transport='cuda_ipc' from pid .*this pretended device has no IPC.*Write 'shm'"):
        ray.get(receiver.total.remote(demanding.make.remote(4.0)))
    assert "".join([*said, capfd.readouterr().err]).count(told) == 1


def test_an_array_of_another_library_passes_through_the_host_with_one_warning(session, capfd, eventually):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    assert [ray.get(receiver.second.remote(sender.make_foreign.remote())) for _ in range(2)] == ["Foreign"] * 2
    told, said = "tensor_transport='cuda_ipc' carries a ", []
    eventually(lambda: said.append(capfd.readouterr().err) or told in "".join(said))
    ray.get(receiver.second.remote(sender.make_foreign.remote()))
    assert "".join([*said, capfd.readouterr().err]).count(told) == 1


def test_arrays_of_the_host_are_refused(session):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)
    torch = pytest.importorskip("torch")
    ref = sender.__ray_call__.options(tensor_transport="cuda_ipc").remote(lambda _actor: torch.ones(3))
    with pytest.raises(ValueError, match="Tensor transport backend CUDA_IPC does not support tensor transfer on device cpu"):
        ray.get(ref)
    ref = sender.__ray_call__.options(tensor_transport="cuda_ipc").remote(lambda _actor: [torch.ones(3), null.ones(3)])
    with pytest.raises(ValueError, match="All tensors in an RDT object must have the same device type"):
        ray.get(ref)


def test_a_dead_receiver_gives_back_what_it_was_lent(session, eventually):
    ray = session("1", 1)
    sender, receiver, other = actors(ray, 3, gpus=0.25)
    ref = sender.make.remote(1.0)
    ray.get(receiver.keep.remote(ref))
    assert ray.get(sender.lent.remote())[0] == 1
    ray.kill(receiver)
    eventually(lambda: ray.get(sender.lent.remote())[0] == 0)
    assert ray.get(other.total.remote(ref)) == 1000


def test_a_dead_holder_is_named_and_leaves_its_receivers_whole(session):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    ref = sender.make.remote(7.0)
    ray.get(receiver.keep.remote(ref))
    pid = ray.get(sender.pid.remote())
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)pid {pid}\).*SIGKILL"):
        ray.get(receiver.total.remote(ref))
    assert ray.get(receiver.kept_sums.remote()) == [7000]


#: Ways in which a method's answer depends on an array: the method, and how many values it returns.
ANSWERS = [("begun", 1), ("stored", 1), ("through_host", 1), ("failing", 1), ("pair", 2), ("arrays", 2), ("items", "streaming")]


@pytest.mark.parametrize(("method", "num_returns"), ANSWERS)
def test_a_holder_that_is_killed_before_its_kernels_end_is_named_to_who_computed_with_the_array(
    session, tmp_path, eventually, method, num_returns
):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    pid = ray.get(sender.pid.remote())
    refs = getattr(receiver, method).options(num_returns=num_returns).remote(str(tmp_path / "begun"), sender.make_held.remote())
    eventually((tmp_path / "begun").exists)
    os.kill(pid, signals.SIGKILL)
    for ref in [refs] if num_returns == 1 else refs:
        with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)pid {pid}\).*SIGKILL"):
            ray.get(ref, timeout=60)
    (other,) = actors(ray, 1, gpus=0.25)
    assert ray.get(receiver.total.remote(other.make.remote(2.0)), timeout=60) == 2000


def test_a_fault_of_the_holders_device_ends_it_and_who_computed_with_the_array_is_told(session):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    ref = sender.make_before_a_fault.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match="CUDA_ERROR_LAUNCH_FAILED"):
        ray.get(receiver.total.remote(ref), timeout=60)
    with pytest.raises(ray.exceptions.ActorDiedError, match="CUDA_ERROR_LAUNCH_FAILED"):
        ray.get(sender.pid.remote(), timeout=60)
    (other,) = actors(ray, 1, gpus=0.25)
    assert ray.get(receiver.total.remote(other.make.remote(2.0)), timeout=60) == 2000


def test_each_of_several_receivers_is_told_whoever_of_them_hears_of_the_death_first(session, tmp_path, eventually):
    ray = session("1", 1)
    sender, *receivers = actors(ray, 4, gpus=0.25)
    pid, ref = ray.get(sender.pid.remote()), sender.make_held.remote()
    sums = [receiver.begun.remote(str(tmp_path / str(number)), ref) for number, receiver in enumerate(receivers)]
    eventually(lambda: len(list(tmp_path.iterdir())) == len(receivers))
    os.kill(pid, signals.SIGKILL)
    for total in sums:
        with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)pid {pid}\).*SIGKILL"):
            ray.get(total, timeout=60)


@pytest.mark.parametrize("options", [{"max_concurrency": 2}, {"concurrency_groups": {"io": 1}}, {}], ids=["threads", "groups", "async"])
def test_calls_that_run_beside_others_are_told_too(session, tmp_path, eventually, options):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)

    class Receiver(Actor):
        if not options:

            async def begun(self, path, array):
                return super().begun(path, array)

    receiver = ray.remote(num_gpus=0.5, num_cpus=0, **options)(Receiver).remote()
    pid = ray.get(sender.pid.remote())
    total = receiver.begun.remote(str(tmp_path / "begun"), sender.make_held.remote())
    eventually((tmp_path / "begun").exists)
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)pid {pid}\).*SIGKILL"):
        ray.get(total, timeout=60)
    assert ray.get(receiver.kept_sums.remote()) == []


def test_a_constructor_that_computed_with_an_array_of_the_dead_has_failed(session, tmp_path, eventually):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)

    @ray.remote(num_gpus=0.5, num_cpus=0)
    class Receiver(Actor):
        def __init__(self, path, array):
            super().__init__()
            self.sum = self.begun(path, array)

    pid = ray.get(sender.pid.remote())
    receiver = Receiver.remote(str(tmp_path / "begun"), sender.make_held.remote())
    eventually((tmp_path / "begun").exists)
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)pid {pid}\).*SIGKILL"):
        ray.get(receiver.pid.remote(), timeout=60)


def test_an_answer_that_was_there_before_the_holder_died_stays(session, tmp_path):
    ray = session("1", 1)
    sender, receiver = actors(ray, 2)
    pid = ray.get(sender.pid.remote())
    total = receiver.total.remote(sender.make.remote(1.0))
    assert ray.get(total) == 1000
    passed = receiver.keep_and_pass.remote(str(tmp_path / "begun"), sender.make_held.remote())
    assert ray.get(passed) is None, "its stream still waits"
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(sender.pid.remote(), timeout=60)
    assert (ray.get(total), ray.get(passed)) == (1000, None)
    assert len(ray.get(receiver.kept_sums.remote(), timeout=60)) == 1, "which goes on over undefined contents"


def test_rounds_of_killed_actors_leave_nothing_on_the_device(session):
    ray = session("1", 1)
    device = platform().devices[0]

    def round_():
        sender, receiver = actors(ray, 2)
        ray.get(receiver.keep.remote(sender.make.remote(1.0, 1 << 20)))
        for actor in (sender, receiver):
            pid = ray.get(actor.pid.remote())
            os.kill(pid, signals.SIGKILL)
            with pytest.raises(ray.exceptions.ActorDiedError):
                ray.get(actor.pid.remote())

    round_()
    free = device.memory()[0]
    for _ in range(5):
        round_()
    assert device.memory()[0] == free


def test_an_actor_without_devices_says_so(session, monkeypatch):
    ray = session("1", 1)
    (sender,) = actors(ray, 1)

    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"MRAY_NULL_DEVICES": "0"}})
    class Blind:
        def total(self, array):
            return float(array.sum())

    blind = Blind.remote()
    with pytest.raises(ValueError, match="This process sees no device"):
        ray.get(blind.total.remote(sender.make.remote(1.0)))
