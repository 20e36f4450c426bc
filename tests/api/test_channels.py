"""Channels outside of graphs: one writer, the declared readers, and nobody who waits for ever."""

from __future__ import annotations

import importlib
import pickle
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

#: Long enough that a wait which should not happen fails the test, in seconds.
LONG = 50


@pytest.fixture
def channels(ray):
    """The module of channels."""
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports misses libraries of GPUs
        return importlib.import_module(f"{ray.__name__}.experimental.channel")


@pytest.fixture
def actor(ray_session, channels):
    """Makes actors that make, write and read channels; and, with its node, what the constructors take."""
    name = channels.__name__

    @ray_session.remote(num_cpus=0)
    class Actor:
        def __init__(self):
            self.channel = None

        def where(self):
            return ray_session.get_runtime_context().get_node_id()

        def make(self, kind, *arguments):
            module = importlib.import_module(name)
            own = ray_session.get_runtime_context().current_actor
            self.channel = getattr(module, kind)(own, *arguments)
            return self.channel

        def take(self, channel):
            self.channel = channel

        def write(self, value, timeout=None):
            self.channel.write(value, timeout)

        def write_in_time(self, value, timeout):
            try:
                self.channel.write(value, timeout)
            except ray_session.exceptions.RayChannelTimeoutError:
                return False
            return True

        def read(self, timeout=None):
            return self.channel.read(timeout)

        def read_from(self, channel, count=1):
            return [channel.read(LONG) for _ in range(count)]

        def read_type(self):
            value = self.channel.read(LONG)
            return type(value).__name__, str(value)

        def waiting(self):
            context = importlib.import_module(name).ChannelContext.get_current().serialization_context
            return len(context.intra_process_channel_buffers)

        def open_files(self):
            return len(list(Path("/proc/self/fd").iterdir()))

        def close(self):
            self.channel.close()

    return Actor.remote


def readers_of(ray, *actors):
    return [(actor, ray.get(actor.where.remote())) for actor in actors]


@pytest.fixture
def to_driver(ray_session, channels, actor):
    """A channel from the driver to itself: it reads in the place of an actor."""
    return channels.Channel(None, readers_of(ray_session, actor()), 1000)


# ---------------------------------------------------------------------------------------------- values
def test_the_driver_writes_and_reads(to_driver):
    for number in range(100):
        to_driver.write(number.to_bytes(8, "little"))
        assert to_driver.read() == number.to_bytes(8, "little")


@pytest.mark.parametrize("value", [b"hello", "hello", 1000, None, 2.5, {"a": [1, (2, 3)]}, True])
def test_values_of_every_kind(to_driver, value):
    to_driver.write(value)
    assert to_driver.read() == value


def test_arrays_of_sizes_that_change(to_driver):
    for size in (5, 100, 3_000_000, 7, 200_000):
        array = np.random.default_rng(size).random(size)
        to_driver.write(array)
        np.testing.assert_array_equal(to_driver.read(), array)


def test_tensors(to_driver):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(10_000, dtype=torch.float32).reshape(100, 100)
    to_driver.write({"tensor": tensor})
    assert torch.equal(to_driver.read()["tensor"], tensor)


def test_an_exception_is_a_value(ray_session, actor):
    reader = actor()
    module = importlib.import_module(f"{ray_session.__name__}.experimental.channel")
    channel = module.Channel(None, readers_of(ray_session, reader), 1000)
    ray_session.get(reader.take.remote(channel))
    channel.write(KeyError("lost"))
    assert ray_session.get(reader.read_type.remote()) == ("KeyError", "'lost'")


def test_a_value_that_cannot_be_pickled_is_refused_and_the_channel_lives_on(to_driver):
    with pytest.raises(TypeError, match="Could not serialize the put value"):
        to_driver.write(threading.Lock())
    to_driver.write(1)
    assert to_driver.read() == 1


@pytest.mark.only("mray", "local")
def test_values_that_are_held_stay_as_they_are(to_driver):
    held = []
    for number in range(20):
        to_driver.write(np.full(50_000, number))
        held.append(to_driver.read())
    assert [int(array[0]) for array in held] == list(range(20))
    assert all((array == array[0]).all() for array in held)


# --------------------------------------------------------------------------------------------- readers
@pytest.mark.parametrize("count", [1, 3])
def test_every_reader_gets_every_value(ray_session, channels, actor, count):
    ray = ray_session
    readers = [actor() for _ in range(count)]
    channel = channels.Channel(None, readers_of(ray, *readers), 1000)
    done = [reader.read_from.remote(channel, 200) for reader in readers]
    for number in range(200):
        channel.write(number, LONG)
    assert ray.get(done) == [list(range(200))] * count


def test_reading_goes_on_through_another_handle(ray_session, channels, actor):
    ray = ray_session
    reader = actor()
    channel = channels.Channel(None, readers_of(ray, reader), 1000)
    for number in range(5):
        channel.write(number, LONG)
        assert ray.get(reader.read_from.remote(channel)) == [number]


def test_an_actor_writes_and_another_reads(ray_session, actor):
    ray = ray_session
    writer, reader = actor(), actor()
    channel = ray.get(writer.make.remote("Channel", readers_of(ray, reader), 1000))
    ray.get(reader.take.remote(channel))
    for value in ("first", np.arange(30_000), "last"):
        ray.get(writer.write.remote(value))
        np.testing.assert_array_equal(ray.get(reader.read.remote()), value)


def test_an_actor_writes_and_the_driver_reads(ray_session, actor):
    ray = ray_session
    writer = actor()
    channel = ray.get(writer.make.remote("Channel", readers_of(ray, actor()), 1000))
    for value in (b"x", b"x" * 2000):
        ray.get(writer.write.remote(value))
        assert channel.read() == value


@pytest.mark.only("mray", "local")
def test_the_driver_may_be_declared_as_none(ray_session, channels, actor):
    ray = ray_session
    writer = actor()
    channel = ray.get(writer.make.remote("Channel", [(None, "")]))
    ray.get(writer.write.remote(1))
    assert channel.read(LONG) == 1


def test_more_readers_than_declared(ray_session, actor):
    ray = ray_session
    writer, declared, other = actor(), actor(), actor()
    channel = ray.get(writer.make.remote("Channel", readers_of(ray, declared), 1000))
    ray.get(writer.write.remote(1))
    reads = [reader.read_from.remote(channel) for reader in (declared, other)]
    with pytest.raises(ray.exceptions.RayTaskError, match="RaySystemError"):
        ray.get(reads)


@pytest.mark.only("mray", "local")
def test_only_the_process_that_made_a_channel_writes_it(ray_session, channels, actor):
    ray = ray_session
    other = actor()
    channel = channels.Channel(None, readers_of(ray, other))
    ray.get(other.take.remote(channel))
    with pytest.raises(ray.exceptions.RaySystemError, match="Only the process that made a channel writes it: the driver"):
        ray.get(other.write.remote(1))
    with pytest.raises(ValueError, match="A channel is made by the process that writes it"):
        channels.Channel(other, readers_of(ray, actor()))


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("readers", [[], ["somebody"], [("somebody", "")]])
def test_readers_that_are_none(ray_session, channels, readers):
    with pytest.raises(TypeError if readers else ValueError):
        channels.Channel(None, readers)


def test_a_buffer_too_small_for_anything(ray_session, channels, actor):
    with pytest.raises(ValueError, match="typ.buffer_size_bytes must be at least MIN_BUFFER_SIZE"):
        channels.Channel(None, readers_of(ray_session, actor()), 999)


# ----------------------------------------------------------------------------------- waiting and closing
def test_reading_what_was_not_written_times_out(ray_session, to_driver):
    for timeout in (0, 0.1):
        with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
            to_driver.read(timeout)
    to_driver.write(1)
    assert to_driver.read(0) == 1


def test_writing_again_before_everyone_has_read_times_out(ray_session, to_driver):
    to_driver.write(1, timeout=LONG)
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        to_driver.write(2, timeout=0.2)
    assert to_driver.read() == 1
    to_driver.write(3, timeout=LONG)
    assert to_driver.read() == 3


def test_writing_waits_for_the_slowest_reader(ray_session, channels, actor):
    ray = ray_session
    fast, slow = actor(), actor()
    channel = channels.Channel(None, readers_of(ray, fast, slow), 1000)
    channel.write(1)
    assert ray.get(fast.read_from.remote(channel)) == [1]
    with pytest.raises(ray.exceptions.RayChannelTimeoutError):
        channel.write(2, timeout=0.2)
    done = slow.read_from.remote(channel)
    channel.write(2, timeout=LONG)
    assert ray.get(done) == [1]


@pytest.mark.differs("Ray asserts; mray raises ValueError")
@pytest.mark.parametrize("timeout", [-2, -0.5])
def test_a_timeout_that_is_none(engine, to_driver, timeout):
    for verb in (to_driver.read, lambda given: to_driver.write(1, given)):
        with pytest.raises(AssertionError if engine == "ray" else ValueError, match="Timeout must be non-negative or -1."):
            verb(timeout)


def test_after_close_nothing_is_read_or_written(ray_session, to_driver):
    to_driver.write(1)
    to_driver.close()
    to_driver.close()
    for verb in (lambda: to_driver.read(LONG), lambda: to_driver.write(2, LONG)):
        with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
            verb()


def test_close_wakes_a_reader(ray_session, actor):
    ray = ray_session
    writer, reader = actor(), actor()
    channel = ray.get(writer.make.remote("Channel", readers_of(ray, reader), 1000))
    ray.get(reader.take.remote(channel))
    ray.get(writer.write.remote(np.arange(1000)))
    held = ray.get(reader.read.remote())
    reading = reader.read.remote()
    ray.get(writer.close.remote())
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        ray.get(reading)
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        ray.get(reader.read.remote())
    assert held.sum() == sum(range(1000))


def test_close_wakes_the_writer(ray_session, to_driver):
    to_driver.write(1)
    outcome = []

    def write():
        try:
            to_driver.write(2)
        except ray_session.exceptions.RayChannelError as error:
            outcome.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    to_driver.close()
    thread.join(LONG)
    assert not thread.is_alive()
    assert len(outcome) == 1


@pytest.mark.only("mray", "local")
def test_a_reader_closes_for_everybody(ray_session, channels, actor):
    ray = ray_session
    one, two = actor(), actor()
    channel = channels.Channel(None, readers_of(ray, one, two))
    ray.get([one.take.remote(channel), two.take.remote(channel)])
    reading = one.read.remote()
    channel.write(1)
    assert ray.get(reading) == 1
    reading = one.read.remote()
    ray.get(two.close.remote())
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        ray.get(reading)
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        channel.write(2, LONG)


@pytest.mark.only("mray", "local")
def test_the_writer_is_told_that_a_reader_has_died(ray_session, channels, actor):
    ray = ray_session
    one, two = actor(), actor()
    channel = channels.Channel(None, readers_of(ray, one, two))
    done = one.read_from.remote(channel)
    channel.write(1)
    ray.get(done)
    ray.kill(two)
    with pytest.raises(ray.exceptions.RayChannelError, match="(?s)its reader, actor .*, has died.*killed by `ray.kill`") as caught:
        channel.write(2)
    assert isinstance(caught.value.__cause__, ray.exceptions.ActorDiedError)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("joined", [True, False], ids=["while it waits", "before it has read anything"])
def test_a_reader_is_told_that_the_writer_has_died(ray_session, actor, joined):
    ray = ray_session
    writer = actor()
    channel = ray.get(writer.make.remote("Channel", [(None, "")]))
    ray.get(writer.write.remote("last words"))
    if joined:
        assert channel.read() == "last words"
    ray.kill(writer)
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed"):
        for _ in range(2):
            channel.read()


@pytest.mark.only("mray", "local")
def test_a_channel_that_nobody_else_has_goes_with_its_handle(ray_session, channels, actor, eventually):
    channel = channels.Channel(None, readers_of(ray_session, actor()))
    names = [path for path in Path("/dev/shm").iterdir() if f"/dev/shm{channel._facts.prefix}" in str(path)]
    assert names
    del channel
    eventually(lambda: not any(path.exists() for path in names))


@pytest.mark.only("mray", "local")
def test_channels_that_were_closed_elsewhere_cost_a_reader_nothing(ray_session, channels, actor):
    ray = ray_session
    reader = actor()
    readers = readers_of(ray, reader)
    before = None
    for _ in range(20):
        channel = channels.Channel(None, readers)
        done = reader.read_from.remote(channel)
        channel.write(1)
        assert ray.get(done) == [1]
        channel.close()
        files = ray.get(reader.open_files.remote())
        before = files if before is None else before
        assert files <= before + 2


@pytest.mark.only("mray", "local")
def test_a_task_has_no_channels(ray_session, channels, actor):
    @ray_session.remote
    def make(readers):
        channels.Channel(None, readers)

    with pytest.raises(ray_session.exceptions.RaySystemError, match="by drivers and actors, not by tasks"):
        ray_session.get(make.remote(readers_of(ray_session, actor())))


# -------------------------------------------------------------------------------------------- buffered
def test_a_buffered_channel_has_room_for_so_many_values(ray_session, actor):
    ray = ray_session
    writer = actor()
    channel = ray.get(writer.make.remote("BufferedSharedMemoryChannel", readers_of(ray, actor()), 5, 1000))
    for number in range(12):
        ray.get(writer.write.remote(number))
        assert channel.read(LONG) == number
        assert channel.next_read_index == (number + 1) % 5
    for number in range(5):
        assert ray.get(writer.write_in_time.remote(number, LONG))
    assert not ray.get(writer.write_in_time.remote(5, 0.2))
    assert [channel.read(LONG) for _ in range(5)] == list(range(5))
    with pytest.raises(ray.exceptions.RayChannelTimeoutError):
        channel.read(0.2)


def test_a_buffered_channel_can_be_pickled(ray_session, actor):
    ray = ray_session
    writer = actor()
    channel = ray.get(writer.make.remote("BufferedSharedMemoryChannel", readers_of(ray, actor()), 2, 1000))
    ray.get(writer.write.remote("once"))
    assert pickle.loads(pickle.dumps(channel)).read(LONG) == "once"


def test_a_value_may_be_thrown_away_unread(to_driver):
    to_driver.write(1)
    to_driver.release_buffer(LONG)
    to_driver.write(2, LONG)
    assert to_driver.read(LONG) == 2


# ------------------------------------------------------------------------------------ inside of a process
def test_a_value_inside_a_process_is_read_as_often_as_declared(ray_session, channels, actor):
    ray = ray_session
    one = actor()
    ray.get(one.take.remote(channels.IntraProcessChannel(num_readers=2)))
    for value in ("hello", "world"):
        ray.get(one.write.remote(value))
        assert ray.get(one.read.remote()) == value
        assert ray.get(one.waiting.remote()) == 1
        assert ray.get(one.read.remote()) == value
        assert ray.get(one.waiting.remote()) == 0
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(one.read.remote())
    ray.get(one.write.remote("unread"))
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(one.write.remote("too early"))
    ray.get(one.close.remote())
    assert ray.get(one.waiting.remote()) == 0


def test_a_value_inside_a_process_is_not_copied(channels):
    channel = channels.IntraProcessChannel(num_readers=1)
    value = object()
    channel.write(value)
    assert channel.read() is value


@pytest.mark.parametrize("reads", [1, 2])
def test_a_cached_value_is_read_several_times(ray_session, channels, actor, reads):
    ray = ray_session
    one = actor()
    inner = channels.Channel(None, readers_of(ray, one), 1000)
    channel = channels.CachedChannel(num_reads=reads, inner_channel=inner)
    ray.get(one.take.remote(channel))
    for value in ("hello", "world"):
        channel.write(value, LONG)
        for left in reversed(range(reads)):
            assert ray.get(one.read.remote()) == value
            assert ray.get(one.waiting.remote()) == (1 if left else 0)


def test_a_cache_without_an_inner_channel_is_inside_a_process(channels):
    channel = channels.CachedChannel(num_reads=2)
    channel.write("both")
    assert [channel.read(), channel.read()] == ["both", "both"]


# ------------------------------------------------------------------------------------------- composite
def test_a_composite_channel_reaches_others(ray_session, channels, actor):
    ray = ray_session
    one, two = actor(), actor()
    channel = channels.CompositeChannel(None, readers_of(ray, one, two), 10)
    ray.get([one.take.remote(channel), two.take.remote(channel)])
    channel.write("hello")
    assert ray.get([one.read.remote(), two.read.remote()]) == ["hello"] * 2


def test_a_composite_channel_reaches_the_writer_itself(ray_session, actor):
    ray = ray_session
    one, two = actor(), actor()
    channel = ray.get(one.make.remote("CompositeChannel", readers_of(ray, one, two), 10))
    ray.get(two.take.remote(channel))
    ray.get(one.write.remote("world"))
    assert ray.get([one.read.remote(), two.read.remote()]) == ["world"] * 2


def test_a_composite_channel_is_read_once_by_each_actor(ray_session, actor):
    ray = ray_session
    one = actor()
    ray.get(one.make.remote("CompositeChannel", readers_of(ray, one, one), 10))
    ray.get(one.write.remote("once"))
    assert ray.get(one.read.remote()) == "once"
    with pytest.raises(ray.exceptions.RayTaskError):
        ray.get(one.read.remote())


def test_a_composite_channel_reaches_the_driver(ray_session, actor):
    ray = ray_session
    one = actor()
    channel = ray.get(one.make.remote("CompositeChannel", readers_of(ray, actor()), 10))
    ray.get(one.write.remote("driver"))
    assert channel.read(LONG) == "driver"


# -------------------------------------------------------------------------------------- accelerators
@pytest.fixture
def accelerators(ray):
    module = importlib.import_module(f"{ray.__name__}.experimental.channel.accelerator_context")
    yield module
    if ray.__name__ == "ray":
        module._global_custom_context = None
    else:
        importlib.import_module("mray._api.accelerator_transport")._registered = None


def test_a_process_without_gpus_has_the_cpu(ray_session, channels, accelerators):
    torch = pytest.importorskip("torch")
    context = accelerators.AcceleratorContext.get()
    assert context.module_name == "cpu"
    assert context.get_accelerator_devices() == [torch.device("cpu")]
    assert not accelerators.is_accelerator_context_registered()
    with context.get_device_context(torch.device("cpu")):
        assert torch.zeros(1).device == torch.device("cpu")
    assert channels.ChannelContext().torch_device == torch.device("cpu")


def test_an_accelerator_is_registered_with_its_communicator(ray_session, channels, accelerators):
    body = {name: (lambda self, *args: None) for name in channels.Communicator.__abstractmethods__}
    body["generate_communicator_id"] = classmethod(lambda cls: "made here")
    body["__init__"] = lambda self, *args: setattr(self, "args", args)
    group = type("Group", (channels.Communicator,), body)
    accelerators.register_accelerator_context("cpu", group)
    assert accelerators.is_accelerator_context_registered()
    context = accelerators.AcceleratorContext.get()
    assert context.communicator_cls is group
    assert context.generate_communicator_id() == "made here"
    assert context.create_communicator(2, "id").args == (2, "id")


def test_a_device_that_torch_does_not_know(accelerators, channels):
    with pytest.raises(ImportError):
        accelerators.register_accelerator_context("abacus", channels.Communicator)


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("what", [None, object, "nccl"])
def test_a_communicator_that_is_none(accelerators, what):
    with pytest.raises(TypeError, match="derived from Communicator"):
        accelerators.register_accelerator_context("cpu", what)
    assert not accelerators.is_accelerator_context_registered()


@pytest.mark.only("mray", "local")
def test_a_reader_that_could_not_open_its_end_finds_its_place_again(ray_session, channels, monkeypatch):
    channel = channels.Channel(None, [(None, ray_session.get_runtime_context().get_node_id())])

    def fail(*_arguments):
        raise OSError("no descriptors are left")

    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("mray.experimental.channel._shared_ring"), "_Reader", fail)
        with pytest.raises(OSError, match="no descriptors are left"):
            channel.ensure_registered_as_reader()
    channel.write("value", LONG)
    assert channel.read(LONG) == "value"
    channel.close()
