"""Tensors that stay with the actor that made them: `@ray.method(tensor_transport=...)`, on the CPU."""

from __future__ import annotations

import importlib
import os
import signal as signals
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

PRELOAD = ["torch"]

#: Ray imports cupy for it, which misses NCCL on a machine without GPUs.
pytestmark = pytest.mark.filterwarnings(r"ignore:\s*nccl library could not be loaded")


def test_each_worker_has_random_numbers_of_its_own(ray_session):
    @ray_session.remote(num_cpus=0)
    class Random:
        def numbers(self):
            import numpy

            return torch.rand(4).tolist(), numpy.random.random(4).tolist()

    (torchs, numpys), *others = ray_session.get([each.numbers.remote() for each in [Random.remote(), Random.remote()]])
    assert others[0][0] != torchs
    assert others[0][1] != numpys


@pytest.fixture
def rdt(ray_session):
    """The module under test, its actors' class, and how to make a group of them."""
    ray = ray_session

    @ray.remote(num_cpus=0, enable_tensor_transport=True)
    class Actor:
        def __init__(self):
            self.attempts = 0

        @ray.method(tensor_transport="gloo")
        def echo(self, value):
            return value

        @ray.method(tensor_transport="gloo")
        def keep(self, tensor):
            self.tensor = tensor
            return tensor

        @ray.method(tensor_transport="gloo")
        def make(self, size):
            return torch.arange(size, dtype=torch.float32)

        @ray.method(tensor_transport="gloo")
        def fail(self):
            raise ValueError("not today")

        @ray.method(tensor_transport="gloo", max_task_retries=1, retry_exceptions=[ValueError])
        def fail_once(self):
            self.attempts += 1
            if self.attempts == 1:
                raise ValueError("not yet")
            return torch.ones(3)

        def plain(self, value):
            return value

        def double(self, value):
            if isinstance(value, (list, tuple)):
                return [self.double(item) for item in value]
            return value * 2

        def total(self, tensor):
            return tensor.sum().item()

        def both(self, one, other):
            return (one + other).sum().item(), one is other

        def add_one(self, tensor):
            tensor += 1
            return tensor.sum().item()

        def add_to_kept(self):
            self.tensor += 1

        def is_kept(self, tensor):
            return tensor is self.tensor

        def wait_freed(self, timeout=None):
            experimental = importlib.import_module(f"{ray.__name__}.experimental")
            experimental.wait_tensor_freed(self.tensor, timeout)
            return True

        def get_through_store(self, refs):
            return [ray.get(ref, _use_object_store=True) for ref in refs]

        def pid(self):
            return os.getpid()

    made = []

    def group(count):
        actors = [Actor.remote() for _ in range(count)]
        collective = importlib.import_module(f"{ray.__name__}.experimental.collective")
        made.append((collective, collective.create_collective_group(actors, backend="gloo")))
        return actors

    yield ray, Actor, group
    for collective, handle in made:
        try:
            collective.destroy_collective_group(handle)
        except (ValueError, ray.exceptions.RayActorError):
            pass  # members that a test has killed


def lent_by(_actor):
    """How many copies of its tensors an actor has lent."""
    from mray._api.current import current_backend

    return current_backend().client.borrowing.lent.out


# ------------------------------------------------------------------------------------------ from actor to actor
def test_a_ref_tells_its_transport(rdt):
    ray, _actor_class, group = rdt
    (actor, other) = group(2)
    tensor, plain = actor.make.remote(2), actor.plain.remote(2)
    assert [ref.tensor_transport() for ref in (tensor, plain, ray.put(1))] == ["GLOO", None, None]
    assert ray.get(other.total.remote(tensor)) == 1
    assert tensor.tensor_transport() == "GLOO"


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_a_tensor_goes_from_actor_to_actor(rdt, size):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(size)
    assert ray.get(receiver.total.remote(ref)) == torch.arange(size, dtype=torch.float32).sum().item()
    torch.testing.assert_close(ray.get(receiver.double.remote(ref)), torch.arange(size, dtype=torch.float32) * 2)


def test_an_actor_gets_its_own_tensor_by_reference(rdt):
    ray, _, group = rdt
    (actor,) = group(1)
    ref = actor.keep.remote(torch.ones(4))
    assert ray.get(actor.is_kept.remote(ref)) is True


def test_a_ref_given_twice_is_one_tensor(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(4)
    assert ray.get(receiver.both.remote(ref, ref)) == (12.0, True)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([torch.ones(3), torch.zeros(2), 7], id="in a list"),
        pytest.param((torch.ones(3), [torch.ones(100_000)], "text"), id="nested and large"),
        pytest.param([torch.ones(1), b"1" * 1_000_000], id="beside a large value"),
        pytest.param([torch.ones(2, dtype=torch.float64), torch.arange(6).reshape(2, 3)], id="other dtypes and shapes"),
        pytest.param(
            [torch.ones(2, dtype=torch.bfloat16), torch.arange(6).reshape(2, 3).t(), torch.ones(200_000)[::2]],
            id="strides that gloo does not carry",
            marks=pytest.mark.only("mray"),
        ),
        pytest.param([torch.empty(0), torch.tensor(5)], id="empty and scalar"),
    ],
)
def test_tensors_anywhere_in_a_value_arrive(rdt, value):
    ray, _, group = rdt
    sender, receiver = group(2)
    got = ray.get(receiver.plain.remote(sender.echo.remote(value)))

    def check(got, want):
        if isinstance(want, torch.Tensor):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)
        elif isinstance(want, (list, tuple)):
            assert type(got) is type(want) and len(got) == len(want)
            for one, other in zip(got, want, strict=True):
                check(one, other)
        else:
            assert got == want

    check(got, value)


def test_a_value_without_tensors_is_an_ordinary_one(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.echo.remote({"step": 5})
    assert ray.get(ref) == {"step": 5}
    assert ray.get(receiver.plain.remote(ref)) == {"step": 5}


def test_refs_beside_tensors_arrive(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    got = ray.get(receiver.plain.remote(sender.echo.remote([torch.ones(2), [ray.put("inside")]])))
    assert ray.get(got[1][0]) == "inside"


def test_a_parameter_arrives_as_one(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    got = ray.get(receiver.plain.remote(sender.echo.remote({"w": torch.nn.Parameter(torch.ones(3), requires_grad=False)})))
    assert type(got["w"]) is torch.nn.Parameter
    torch.testing.assert_close(got["w"].data, torch.ones(3))


def test_a_sender_that_is_busy_sends_all_the_same(rdt, signal):
    ray, _, group = rdt
    sender, receiver = group(2)
    gate = signal()

    def block(_actor):
        while not ray.get(gate.is_set.remote()):
            pass

    ref = sender.make.remote(1000)
    blocked = sender.__ray_call__.remote(block)
    assert ray.get(receiver.total.remote(ref)) == 499500.0
    ray.get(gate.send.remote())
    ray.get(blocked)


def test_options_name_the_transport_of_a_call(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.plain.options(tensor_transport="gloo").remote(torch.ones(5))
    with pytest.raises(ValueError, match="two-sided transport GLOO"):
        ray.get(ref)
    assert ray.get(receiver.total.remote(ref)) == 5.0


# ------------------------------------------------------------------------------------------ who writes to what
def test_a_receiver_writes_for_itself_alone(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    for size in (4, 100_000):
        ref = sender.keep.remote(torch.zeros(size))
        assert ray.get(receiver.add_one.remote(ref)) == size
        assert ray.get(receiver.add_one.remote(ref)) == size


def test_what_the_holder_writes_is_seen_by_later_receivers(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    for size in (4, 100_000):
        ref = sender.keep.remote(torch.zeros(size))
        assert ray.get(receiver.total.remote(ref)) == 0
        ray.get(sender.add_to_kept.remote())
        assert ray.get(receiver.total.remote(ref)) == size


def test_passing_a_ref_back_and_on_warns_once(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(3)
    ray.wait([ref])
    with pytest.warns(UserWarning, match=r"RDT ObjectRef\(.+\) is being passed back to the actor that created it"):
        ray.get([sender.total.remote(ref), receiver.total.remote(ref)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ray.get(receiver.total.remote(ref))


def test_a_tensor_is_free_when_its_last_ref_is_gone(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.keep.remote(torch.ones(1000))
    assert ray.get(receiver.total.remote(ref)) == 1000
    with pytest.raises(TimeoutError, match=r"not freed from RDT object store after 0\.2s"):
        ray.get(sender.wait_freed.remote(0.2))
    freed = sender.wait_freed.remote()
    assert ray.wait([freed], timeout=0.3)[0] == []
    del ref
    assert ray.get(freed) is True


def test_a_tensor_of_two_objects_is_free_after_both(rdt):
    ray, _, group = rdt
    (sender,) = group(1)
    one = sender.keep.remote(torch.ones(10))
    other = sender.__ray_call__.options(tensor_transport="gloo").remote(lambda actor: actor.tensor)
    ray.wait([one, other], num_returns=2)
    del one
    with pytest.raises(TimeoutError):
        ray.get(sender.wait_freed.remote(0.5))
    del other
    assert ray.get(sender.wait_freed.remote()) is True


def test_a_ref_dropped_before_its_use_arrives_all_the_same(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(1000)
    result = receiver.total.remote(ref)
    del ref
    assert ray.get(result) == 499500.0


# ------------------------------------------------------------------------------------------ get, put
def test_get_of_a_gloo_ref_asks_for_the_object_store(rdt):
    ray, _, group = rdt
    (sender,) = group(1)
    ref = sender.make.remote(4)
    with pytest.raises(ValueError, match=r"ray\.get is not allowed on RDT objects using the two-sided transport GLOO"):
        ray.get(ref)
    torch.testing.assert_close(ray.get(ref, _use_object_store=True), torch.arange(4.0))
    first, second = ray.get([ref, sender.make.remote(2)], _use_object_store=True)
    assert (len(first), len(second)) == (4, 2)


def test_wait_says_that_a_ref_is_ready(rdt):
    ray, _, group = rdt
    (sender,) = group(1)
    ref = sender.make.remote(4)
    assert ray.wait([ref]) == ([ref], [])


def test_refs_inside_a_list_reach_another_actor(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(4)
    assert ray.get(receiver.total.remote(ref)) == 6.0  # Ray can borrow the ref once its owner knows all about it
    (got,) = ray.get(receiver.get_through_store.remote([ref]))
    torch.testing.assert_close(got, torch.arange(4.0))


def test_put_is_for_one_sided_transports(rdt):
    ray, _, _ = rdt
    with pytest.raises(ValueError, match=r"ray\.put\(\) is not supported for two-sided RDT transport 'GLOO'"):
        ray.put(torch.ones(3), _tensor_transport="gloo")
    with pytest.raises(ValueError, match="Invalid tensor transport: BOGUS"):
        ray.put(torch.ones(3), _tensor_transport="bogus")


def test_targets_are_for_refs_of_tensors(rdt):
    ray, _, group = rdt
    experimental = ray.experimental
    with pytest.raises(ValueError, match=r"Ref ObjectRef\(.+\) is not an RDT object"):
        experimental.set_target_for_ref(ray.put(1), [torch.ones(3)])
    with pytest.raises(ValueError, match="is not an RDT object"):
        experimental.set_target_device_for_ref(ray.put(1), "cpu")
    (sender,) = group(1)
    ref = sender.make.remote(3)
    experimental.set_target_device_for_ref(ref, "cpu")
    with pytest.raises(ValueError, match="Tensor transport backend GLOO does not support fetching onto target device cuda"):
        experimental.set_target_device_for_ref(ref, "cuda")


# ------------------------------------------------------------------------------------------ errors
def test_unknown_transports_are_refused_where_they_are_written(rdt):
    ray, Actor, _ = rdt
    with pytest.raises(ValueError, match="Invalid tensor transport: BOGUS"):
        ray.method(tensor_transport="bogus")(lambda self: None)
    with pytest.raises(ValueError, match="Invalid tensor transport: BOGUS"):
        Actor.remote().plain.options(tensor_transport="bogus").remote(1)


def test_actors_must_be_made_for_transports(ray_session):
    ray = ray_session

    class Plain:
        def echo(self, value):
            return value

    actor = ray.remote(num_cpus=0)(Plain).remote()
    with pytest.raises(ValueError, match=r"are not supported when enable_tensor_transport=False\. Please set"):
        actor.echo.options(tensor_transport="gloo").remote(1)

    class Decorated:
        @ray.method(tensor_transport="gloo")
        def echo(self, value):
            return value

    with pytest.raises(ValueError, match="Either set enable_tensor_transport=True or remove the"):
        ray.remote(enable_tensor_transport=False)(Decorated).remote()


def test_an_error_reaches_whoever_is_given_the_ref(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    with pytest.raises(ValueError, match="not today"):
        ray.get(sender.fail.remote())
    with pytest.raises(ValueError, match="not today"):
        ray.get(receiver.total.remote(sender.fail.remote()))
    assert ray.get(receiver.total.remote(sender.make.remote(3))) == 3.0


def test_a_retry_succeeds(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    assert ray.get(receiver.total.remote(sender.fail_once.remote())) == 3.0


def test_a_holder_that_dies_before_it_has_made_the_tensor_is_named(rdt):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.__ray_call__.options(tensor_transport="gloo").remote(lambda _actor: os.kill(os.getpid(), signals.SIGKILL))
    with pytest.raises(ray.exceptions.ActorDiedError, match="Actor"):
        ray.get(receiver.total.remote(ref))


@pytest.mark.differs("Ray's receiver raises what gloo says of the broken connection, RuntimeError; mray's says who died")
def test_a_holder_that_died_with_the_tensor_is_named(rdt, engine):
    ray, _, group = rdt
    sender, receiver = group(2)
    ref = sender.make.remote(1000)
    ray.wait([ref])
    pid = ray.get(sender.pid.remote())
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(sender.pid.remote())
    if engine == "mray":
        with pytest.raises(ray.exceptions.ActorDiedError, match=rf"(?s)input arguments.*pid {pid}\).*SIGKILL"):
            ray.get(receiver.total.remote(ref))
        assert ray.get(receiver.plain.remote(1)) == 1
    else:
        with pytest.raises((ray.exceptions.ActorDiedError, RuntimeError)):
            ray.get(receiver.total.remote(ref))
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(ref, _use_object_store=True)


def test_tensors_of_other_devices_are_refused(rdt):
    ray, _, group = rdt
    (sender,) = group(1)
    ref = sender.__ray_call__.options(tensor_transport="gloo").remote(lambda _actor: torch.empty(3, device="meta"))
    with pytest.raises(ValueError, match="Tensor transport backend GLOO does not support tensor transfer on device meta"):
        ray.get(ref)


# ------------------------------------------------------------------------------------------ where mray goes further
@pytest.mark.differs("Ray wants a group first; on one host there is nothing to set up")
def test_no_group_is_needed(rdt, engine):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()
    if engine == "mray":
        assert ray.get(receiver.total.remote(sender.make.remote(3))) == 3.0
    else:
        with pytest.raises(ValueError, match="does not have tensor transport GLOO available"):
            sender.make.remote(3)


@pytest.mark.differs("Ray returns one value of tensors from a call")
def test_each_of_several_return_values_keeps_its_tensors(rdt, engine):
    ray, _, group = rdt
    sender, receiver = group(2)
    two = sender.plain.options(tensor_transport="gloo", num_returns=2)
    if engine == "mray":
        one, other = two.remote((torch.ones(2), [torch.ones(3)]))
        assert ray.get(receiver.total.remote(one)) == 2.0
        torch.testing.assert_close(ray.get(other, _use_object_store=True), [torch.ones(3)])
    else:
        with pytest.raises(ValueError, match="only support 1 return value"):
            two.remote((torch.ones(2), [torch.ones(3)]))


@pytest.mark.only("mray")
def test_keyword_arguments_and_tasks_get_tensors_too(rdt):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()
    assert ray.get(receiver.total.remote(tensor=sender.make.remote(3))) == 3.0
    total = ray.remote(lambda tensor: tensor.sum().item())
    assert ray.get(total.remote(sender.make.remote(3))) == 3.0

    @ray.remote(num_cpus=0)
    class Made:
        def __init__(self, tensor):
            self.made_total = tensor.sum().item()

        def total(self):
            return self.made_total

    assert ray.get(Made.remote(sender.make.remote(3)).total.remote()) == 3.0


@pytest.mark.only("mray")
@pytest.mark.parametrize("size", [4, 1_000_000])
def test_shm_is_one_sided(rdt, size):
    ray, Actor, _ = rdt
    actor, other = Actor.remote(), Actor.remote()
    want = torch.arange(size, dtype=torch.float32)
    ref = actor.make.options(tensor_transport="shm").remote(size)
    assert torch.equal(ray.get(ref), want)
    assert torch.equal(ref.future().result(), want)
    put = ray.put([want, "rest"], _tensor_transport="shm")
    assert ray.get(put)[0] is want
    assert torch.equal(ray.get(other.double.remote(put))[0], want * 2)
    assert torch.equal(ray.get(actor.make.options(tensor_transport="object_store").remote(size)), want)


@pytest.mark.only("mray")
def test_get_writes_into_the_targets_of_a_ref(rdt):
    ray, Actor, _ = rdt
    actor = Actor.remote()
    for size in (4, 100_000):
        ref = actor.echo.options(tensor_transport="shm").remote([torch.ones(size), torch.zeros(2)])
        targets = [torch.empty(size), torch.empty(2)]
        ray.experimental.set_target_for_ref(ref, targets)
        got = ray.get(ref)
        assert got[0] is targets[0] and got[1] is targets[1]
        assert got[0].sum() == size
        del got, targets[0]
        assert ray.get(ref)[0].sum() == size  # a target that is gone


@pytest.mark.only("mray")
@pytest.mark.parametrize(
    ("targets", "match"),
    [
        (lambda: [torch.ones(3), torch.ones(3)], r"Length of tensor_buffers \(2\) does not match length from object metadata \(1\)"),
        (lambda: [torch.ones(4)], r"Shape of tensor_buffer at index 0 \(torch.Size\(\[4\]\)\) does not match shape"),
        (lambda: [torch.ones(3, dtype=torch.float64)], r"Dtype of tensor_buffer at index 0 \(torch.float64\) does not match dtype"),
        (lambda: [torch.ones(6)[::2]], "Tensor buffer at index 0 is not contiguous"),
    ],
)
def test_targets_that_do_not_fit_are_refused(rdt, targets, match):
    ray, Actor, _ = rdt
    ref = Actor.remote().make.options(tensor_transport="shm").remote(3)
    held = targets()
    ray.experimental.set_target_for_ref(ref, held)
    with pytest.raises(ValueError, match=match):
        ray.get(ref)


@pytest.mark.only("mray")
def test_nixl_says_what_to_write_instead(rdt):
    ray, _, _ = rdt
    with pytest.raises(ValueError, match="Write 'cuda_ipc' for tensors of GPUs and 'shm' for those of the CPU"):
        ray.method(tensor_transport="nixl")(lambda self: None)
    for name in ("register_nixl_memory", "deregister_nixl_memory", "set_nixl_cuda_stream"):
        with pytest.raises(NotImplementedError, match=rf"{name}\(\) is not available: NIXL moves tensors between hosts"):
            getattr(ray.experimental, name)(torch.ones(1))


@pytest.mark.only("mray")
def test_an_actor_lives_as_long_as_its_tensors_are_wanted(rdt):
    ray, Actor, _ = rdt
    receiver = Actor.remote()
    ref = Actor.remote().make.remote(3)
    ray.wait([ref])
    assert ray.get(receiver.total.remote(ref)) == 3.0


@pytest.mark.only("mray")
def test_a_restarted_holder_no_longer_has_the_tensors(rdt):
    ray, Actor, _ = rdt
    sender, receiver = Actor.options(max_restarts=1).remote(), Actor.remote()
    ref = sender.make.remote(3)
    ray.wait([ref])
    pid = ray.get(sender.pid.remote())
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError, match=rf"process \(pid {pid}\) of Actor that held the tensors|pid {pid}\)"):
        ray.get(receiver.total.remote(ref))


@pytest.mark.only("mray")
@pytest.mark.parametrize("size", [4, 100_000])
def test_tensors_come_while_the_receiver_is_busy(rdt, signal, eventually, size):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()
    gate, come = signal(), signal()

    def block(_actor):
        from mray._api.current import current_backend

        ahead = current_backend().client.tensors._ahead
        while size > 4 and not (len(ahead) == 2 and all(fetch.answer.ready() for fetch in ahead.values())):
            ray.get(gate.is_set.remote())
        ray.get(come.send.remote())
        while not ray.get(gate.is_set.remote()):
            pass

    blocked = receiver.__ray_call__.remote(block)
    refs = [sender.make.remote(size) for _ in range(2)]
    ray.wait(refs, num_returns=2)
    results = [receiver.total.remote(ref) for ref in refs]
    pid = ray.get(sender.pid.remote())
    if size > 4:
        eventually(lambda: ray.get(come.is_set.remote()))
        assert ray.get(sender.__ray_call__.remote(lent_by)) == 2
        del refs
    os.kill(pid, signals.SIGKILL) if size > 4 else None
    ray.get(gate.send.remote())
    ray.get(blocked)
    assert ray.get(results) == pytest.approx([torch.arange(size, dtype=torch.float32).sum().item()] * 2, rel=1e-6)


@pytest.mark.only("mray")
def test_whoever_waits_for_tensors_is_told_that_their_holder_died(rdt, eventually):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()
    ref = sender.make.remote(3)
    ray.wait([ref])
    pid, waiting = ray.get([sender.pid.remote(), receiver.pid.remote()])
    os.kill(pid, signals.SIGSTOP)
    result = receiver.total.remote(ref)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(result, timeout=0.3)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(ref, _use_object_store=True, timeout=0.2)
    os.kill(pid, signals.SIGKILL)
    with pytest.raises(ray.exceptions.ActorDiedError, match=rf"pid {pid}\).*SIGKILL"):
        ray.get(result)
    assert ray.get(receiver.pid.remote()) == waiting


@pytest.mark.only("mray")
def test_a_receiver_that_dies_while_it_waits_leaves_the_holder_whole(rdt):
    ray, Actor, _ = rdt
    sender, receiver, other = Actor.remote(), Actor.remote(), Actor.remote()
    ref = sender.make.remote(100_000)
    ray.wait([ref])
    pid = ray.get(sender.pid.remote())
    os.kill(pid, signals.SIGSTOP)
    result = receiver.total.remote(ref)
    ray.wait([result], timeout=0.2)
    ray.kill(receiver)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(result)
    os.kill(pid, signals.SIGCONT)
    assert ray.get(other.total.remote(ref)) == pytest.approx(torch.arange(100_000, dtype=torch.float32).sum().item(), rel=1e-6)


@pytest.mark.only("mray")
def test_the_end_of_the_owner_frees_the_tensor(rdt):
    ray, Actor, _ = rdt
    sender, owner = Actor.remote(), Actor.remote()

    def own(actor, holder):
        actor.ref = holder.keep.remote(torch.ones(1000))
        ray.wait([actor.ref])

    ray.get(owner.__ray_call__.remote(own, sender))
    with pytest.raises(TimeoutError):
        ray.get(sender.wait_freed.remote(0.1))
    ray.kill(owner)
    assert ray.get(sender.wait_freed.remote()) is True


@pytest.mark.only("mray")
def test_many_transfers_leave_the_store_as_it_was(rdt):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()

    def used(_actor):
        from mray._api.current import current_backend

        return len(current_backend().client.owner.store._used)

    for size in range(50_000, 50_200):
        assert ray.get(receiver.plain.remote(sender.make.remote(size))).numel() == size
    assert ray.get(sender.__ray_call__.remote(used)) <= 2


@pytest.mark.only("mray")
def test_the_dead_actor_that_put_a_tensor_is_named(rdt, kill_and_wait):
    ray, Actor, _ = rdt
    owner, receiver = Actor.remote(), Actor.remote()
    (ref,) = ray.get(owner.__ray_call__.remote(lambda _actor: [ray.put(torch.ones(3), _tensor_transport="shm")]))
    assert ray.get(receiver.total.remote(ref)) == 3.0
    kill_and_wait(owner)
    with pytest.raises(ray.exceptions.ActorDiedError, match="it was killed by"):
        ray.get(receiver.total.remote(ref))


@pytest.mark.only("mray")
def test_what_a_dead_receiver_was_lent_comes_back(rdt, eventually):
    ray, Actor, _ = rdt
    sender, receiver = Actor.remote(), Actor.remote()

    ref = sender.make.remote(100_000)
    ray.get(receiver.__ray_call__.remote(lambda actor, tensor: setattr(actor, "tensor", tensor), ref))
    assert ray.get(sender.__ray_call__.remote(lent_by)) >= 1
    ray.kill(receiver)
    eventually(lambda: ray.get(sender.__ray_call__.remote(lent_by)) == 0)


@pytest.mark.only("mray")
def test_receivers_of_one_moment_share_one_copy(rdt):
    ray, Actor, _ = rdt
    sender, *receivers = [Actor.remote() for _ in range(3)]

    def lent(_actor):
        from mray._api.current import current_backend

        return {name for account in tuple(current_backend().client.borrowing.lent.accounts.values()) for name in account}

    ref = sender.keep.remote(torch.zeros(100_000))
    hold = lambda actor, tensor: setattr(actor, "tensor", tensor)  # noqa: E731
    for receiver in receivers:
        ray.get(receiver.__ray_call__.remote(hold, ref))
    assert len(ray.get(sender.__ray_call__.remote(lent))) == 1
    ray.get(sender.add_to_kept.remote())
    assert ray.get(receivers[0].total.remote(ref)) == 100_000


# ------------------------------------------------------------------------------------------ transports of a program's own
@pytest.fixture(scope="module")
def files(ray, tmp_path_factory):
    """A transport of arrays through files: its name, and where the files lie."""
    np = pytest.importorskip("numpy")
    experimental = importlib.import_module(f"{ray.__name__}.experimental")
    directory = tmp_path_factory.mktemp("files")

    class FileTransport(experimental.TensorTransportManager):
        def tensor_transport_backend(self):
            return "FILES"

        @staticmethod
        def is_one_sided():
            return True

        @staticmethod
        def can_abort_transport():
            return False

        def actor_has_tensor_transport(self, actor):
            return True

        def extract_tensor_transport_metadata(self, obj_id, rdt_object):
            for number, array in enumerate(rdt_object):
                np.save(directory / f"{obj_id}-{number}.npy", array)
            shapes = [(array.shape, array.dtype) for array in rdt_object]
            return experimental.TensorTransportMetadata(tensor_meta=shapes, tensor_device="cpu")

        def get_communicator_metadata(self, src_actor, dst_actor, backend=None):
            return experimental.CommunicatorMetadata()

        def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
            return [np.load(directory / f"{obj_id}-{number}.npy") for number in range(len(tensor_transport_metadata.tensor_meta))]

        def send_multiple_tensors(self, tensors, tensor_transport_metadata, communicator_metadata):
            raise NotImplementedError

        def garbage_collect(self, obj_id, tensor_transport_meta, tensors):
            for number in range(len(tensors)):
                (directory / f"{obj_id}-{number}.npy").unlink()

        def abort_transport(self, obj_id, communicator_metadata):
            raise NotImplementedError

    experimental.register_tensor_transport("files", ["cpu"], FileTransport, np.ndarray)
    with pytest.raises(ValueError, match="Transport FILES already registered"):
        experimental.register_tensor_transport("files", ["cpu"], FileTransport, np.ndarray)
    with pytest.raises(ValueError, match="transport_manager_class int must be a subclass of TensorTransportManager"):
        experimental.register_tensor_transport("other", ["cpu"], int, np.ndarray)
    yield directory
    # No call takes a name back, and files after this one list the names.
    if "mray" in sys.modules:
        registry = importlib.import_module("mray._common.tensor_transports")._transports
        for name in registry.keys() & {"FILES", "REFUSING", "BOTH"}:
            del registry[name]


def test_a_transport_of_the_programs_own_carries_its_type(rdt, files, eventually):
    ray, Actor, _ = rdt
    np = pytest.importorskip("numpy")
    sender, receiver = Actor.remote(), Actor.remote()
    ref = sender.plain.options(tensor_transport="files").remote([np.arange(4), "text"])
    assert ray.get(receiver.__ray_call__.remote(lambda _actor, value: (int(value[0].sum()), value[1]), ref)) == (6, "text")
    assert len(list(files.iterdir())) == 1
    got = ray.get(ref)
    np.testing.assert_array_equal(got[0], np.arange(4))
    np.testing.assert_array_equal(ray.get(ref, _use_object_store=True)[0], np.arange(4))
    assert ray.get(sender.plain.remote(np.arange(3))).tolist() == [0, 1, 2]
    del ref
    eventually(lambda: not list(files.iterdir()))


def test_the_driver_puts_by_a_transport_of_its_own(rdt, files, eventually):
    ray, Actor, _ = rdt
    np = pytest.importorskip("numpy")
    receiver = Actor.remote()
    array = np.arange(5)
    ref = ray.put(array, _tensor_transport="files")
    assert ray.get(receiver.total.remote(ref)) == 10
    assert ray.get(ref) is array
    del ref
    eventually(lambda: not list(files.iterdir()))


@pytest.mark.only("mray")
def test_a_transport_of_the_programs_own_is_taken_as_it_is_when_a_session_first_needs_it(run_program):
    assert run_program(AS_IT_IS).stdout.split() == ["1", "1", "2"]


#: Receivers see a factor that is changed twice: within a session, and before the next one.
AS_IT_IS = """
import numpy as np
import mray as ray
from mray import experimental

factor = 1

class Multiplying(experimental.TensorTransportManager):
    tensor_transport_backend = lambda self: "MULTIPLYING"
    is_one_sided = staticmethod(lambda: True)
    can_abort_transport = staticmethod(lambda: False)
    actor_has_tensor_transport = lambda self, actor: True
    get_communicator_metadata = lambda self, source, target, backend=None: experimental.CommunicatorMetadata()
    garbage_collect = send_multiple_tensors = abort_transport = lambda self, *_: None

    def extract_tensor_transport_metadata(self, obj_id, tensors):
        shapes = [(array.shape, array.dtype) for array in tensors]
        return experimental.TensorTransportMetadata(tensor_meta=shapes, tensor_device="cpu")

    def recv_multiple_tensors(self, obj_id, metadata, _communicator, target_buffers=None):
        return [np.full(shape, factor, dtype) for shape, dtype in metadata.tensor_meta]

@ray.remote(enable_tensor_transport=True)
class Actor:
    def make(self):
        return np.ones(1, dtype=int)

    def read(self, array):
        return int(array[0])

def read():
    sender, receiver = Actor.remote(), Actor.remote()
    return ray.get(receiver.read.remote(sender.make.options(tensor_transport="multiplying").remote()))

experimental.register_tensor_transport("multiplying", ["cpu"], Multiplying, np.ndarray)
print(read())
factor = 2
print(read())
ray.shutdown()
print(read())
"""


@pytest.mark.only("mray")
def test_a_value_that_its_transport_cannot_prepare_leaves_no_memory(rdt, files):
    ray, _, _ = rdt
    np = pytest.importorskip("numpy")

    def refuse(_manager, obj_id, tensors):
        raise ValueError("these cannot be prepared")

    backend = importlib.import_module("mray._api.current").current_backend()
    manager = importlib.import_module("mray._common.tensor_transports").tensor_transport("files").custom
    refusing = type("Refusing", (manager,), {"extract_tensor_transport_metadata": refuse})
    ray.experimental.register_tensor_transport("refusing", ["cpu"], refusing, np.ndarray)
    stored = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="these cannot be prepared"):
        patch.setattr(backend.client.owner, "store_value", lambda *value: stored.append(value))
        ray.put([np.arange(3), b"beside them" * 100_000], _tensor_transport="refusing")
    assert not stored


@pytest.mark.only("mray")
def test_transports_of_two_sides_are_refused(rdt, files):
    ray, _, _ = rdt
    manager = type("Both", (ray.experimental.TensorTransportManager,), {"is_one_sided": staticmethod(lambda: False)})
    with pytest.raises(NotImplementedError, match="Both is not one-sided"):
        ray.experimental.register_tensor_transport("both", ["cpu"], manager, torch.Tensor)
