"""Arrays that are made in shared memory: sent without a copy, and what was sent stays what it was."""

from __future__ import annotations

import ctypes
import gc
import os
import signal as signals
import threading

import numpy as np
import pytest

pytestmark = [
    pytest.mark.only("mray"),  # Ray has none
    pytest.mark.processes("memory of one process is not shared"),
]

COUNT = 200_000  # of eight bytes


@pytest.fixture
def shared():
    from mray.util import shared

    return shared


@pytest.fixture
def counted(shared):
    """Counts of arrays that were sent without a copy, and with one, since the last call."""
    last = [shared.statistics()]

    def since():
        now, before = shared.statistics(), last[0]
        last[0] = now
        return now.sent - before.sent, now.copied - before.copied

    return since


@pytest.fixture
def holder(ray_session):
    @ray_session.remote
    class Holder:
        def keep(self, value):
            self.value = value

        def give(self):
            return self.value

        def look(self, value=None):
            value = self.value if value is None else value
            return float(value.min()), float(value.max())

        def make(self, number, count=COUNT):
            from mray.util import shared

            self.value = shared.full(count, float(number))
            return self.value

        def make_many(self, numbers):
            for number in numbers:
                yield self.make(number)

        def fill(self, number):
            self.value[...] = number

        def copied(self):
            from mray.util import shared

            return shared.statistics().copied

        def echo(self, value):
            return value

        def pid(self):
            return os.getpid()

        def die(self):
            os.kill(os.getpid(), signals.SIGKILL)

    return Holder.remote()


def test_they_are_ordinary_writable_arrays(ray_session, shared):
    array = shared.empty((COUNT // 100, 100), np.float32)
    assert type(array) is np.ndarray
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.shape == (COUNT // 100, 100)
    assert not shared.zeros(COUNT).any()
    ones = shared.full(COUNT, 1)
    assert ones.dtype == np.asarray(1).dtype
    assert ones.sum() == COUNT
    like = shared.empty_like(np.asfortranarray(np.ones((300, 400), np.int16)))
    assert (like.dtype, like.shape, like.flags.f_contiguous) == (np.int16, (300, 400), True)
    assert np.array_equal(shared.array(range(COUNT)), np.arange(COUNT))
    assert shared.empty(3).shape == (3,)
    assert shared.full(3, "a")[2] == "a"
    np.multiply(ones, 2, out=ones)
    assert ones.sum() == 2 * COUNT


def test_what_was_put_does_not_change_when_its_maker_writes_on(ray_session, shared, counted, holder):
    array = shared.full(COUNT, 1.0)
    ref = ray_session.put(array)
    early = ray_session.get(ref)
    array[...] = 2
    assert counted() == (1, 0)
    assert (early == 1).all()
    assert (ray_session.get(ref) == 1).all()
    assert ray_session.get(holder.look.remote(ref)) == (1, 1)
    assert (array == 2).all()
    assert not early.flags.writeable


def test_a_reader_that_writes_past_numpys_flag_changes_nothing_for_others(ray_session, shared):
    array = shared.full(COUNT, 1.0)
    ref = ray_session.put(array)
    value = ray_session.get(ref)
    ctypes.memset(value.ctypes.data, 7, 100)
    assert value[0] != 1
    assert array[0] == 1


def test_a_second_send_of_what_has_changed_has_the_changed_contents_and_is_a_copy(ray_session, shared, counted):
    array = shared.full(COUNT, 1.0)
    first = ray_session.put(array)
    array[COUNT // 2] = 5
    second = ray_session.put(array)
    assert counted() == (1, 1)
    assert ray_session.get(first).max() == 1
    assert ray_session.get(second)[COUNT // 2] == 5


def test_a_second_send_of_what_has_not_changed_is_none(ray_session, shared, counted, holder):
    array = shared.full(COUNT, 1.0)
    refs = [ray_session.put(array), ray_session.put([array, "more"]), ray_session.put({"half": array[: COUNT // 2]})]
    assert ray_session.get(holder.look.remote(array)) == (1, 1)
    assert counted() == (4, 0)
    assert ray_session.get(refs[1])[1] == "more"
    assert ray_session.get(refs[2])["half"].shape == (COUNT // 2,)
    del array, refs[0]
    gc.collect()
    others = [shared.full(COUNT, 9.0) for _ in range(3)]
    assert ray_session.get(refs[0])[0].max() == 1
    del others


def test_parts_are_judged_by_themselves(ray_session, shared, counted):
    array = shared.full((4, COUNT), 1.0)
    refs = [ray_session.put(part) for part in array]
    array[2] = 3
    again = [ray_session.put(part) for part in array]
    sent, copied = counted()
    assert 1 <= copied <= 3  # neighbours have a page with it
    assert sent + copied == 8
    assert [ray_session.get(ref).max() for ref in refs] == [1, 1, 1, 1]
    assert [ray_session.get(ref).max() for ref in again] == [1, 1, 3, 1]


def test_what_is_not_contiguous_or_lies_in_two_memories_arrives_as_well(ray_session, shared, counted):
    one, two = shared.full((1000, 400), 1.0), shared.full(COUNT, 2.0)
    assert (ray_session.get(ray_session.put(one[:, 3:300])) == 1).all()
    both = ray_session.get(ray_session.put((one, two, "x")))
    assert ((both[0] == 1).all(), (both[1] == 2).all(), both[2]) == (True, True, "x")
    assert counted()[1] >= 1


def test_an_array_beside_small_values_is_not_copied(ray_session, shared, counted):
    images, labels = shared.full((100, 4000), 1.0), np.arange(100)
    got = ray_session.get(ray_session.put({"images": images, "labels": labels}))
    assert counted() == (1, 0)
    assert got["images"].max() == 1
    assert np.array_equal(got["labels"], labels)


def test_a_result_does_not_change_when_its_maker_writes_on_and_outlives_it(ray_session, holder, kill_and_wait, segments):
    before = segments()
    value = ray_session.get(holder.make.remote(3))
    ref = holder.give.remote()
    ray_session.get(holder.fill.remote(4))
    changed = ray_session.get(holder.give.remote())
    assert ray_session.get(holder.copied.remote()) == 1
    kill_and_wait(holder)
    assert (value == 3).all()
    assert (ray_session.get(ref) == 3).all()
    assert (changed == 4).all()
    assert segments() - before


def test_nothing_is_left_of_a_maker_that_was_killed(ray_session, holder, segments, eventually):
    before = segments()
    ref = holder.make.remote(3)
    ray_session.wait([ref])
    with pytest.raises(ray_session.exceptions.RayActorError):
        ray_session.get(holder.die.remote())
    assert (ray_session.get(ref) == 3).all()
    del ref
    gc.collect()
    eventually(lambda: not segments() - before)


def test_items_of_a_generator_are_what_they_were_when_they_were_given(ray_session, holder):
    items = [ray_session.get(ref) for ref in holder.make_many.options(num_returns="streaming").remote(range(5))]
    assert [(item.min(), item.max()) for item in items] == [(number, number) for number in range(5)]
    assert ray_session.get(holder.copied.remote()) == 0


def test_an_array_that_is_dropped_unsent_serves_the_next(ray_session, shared, segments):
    array = shared.empty(COUNT)
    names, address = segments(), array.ctypes.data
    del array
    again = shared.zeros(COUNT)
    assert again.ctypes.data == address
    assert segments() <= names
    assert not again.any()


def test_memory_serves_again_when_array_and_objects_are_gone_and_not_before(ray_session, shared, counted):
    array = shared.full(COUNT, 1.0)
    address = array.ctypes.data
    ref = ray_session.put(array)
    value = ray_session.get(ref)
    del ref
    gc.collect()
    second = shared.full(COUNT, 2.0)
    assert (array == 1).all()
    del array
    gc.collect()
    third = shared.full(COUNT, 3.0)
    assert (value == 1).all()
    assert address not in (second.ctypes.data, third.ctypes.data)
    del value
    gc.collect()
    fourth = shared.full(COUNT, 4.0)
    assert fourth.ctypes.data == address
    assert (ray_session.get(ray_session.put(fourth)) == 4).all()
    assert counted() == (2, 0)


def edge_to(method):
    from mray.dag import InputNode

    with InputNode() as given:
        return method.bind(given)


def test_edges_of_a_graph_carry_them_and_what_has_changed_is_sent_changed(ray_session, shared, holder, compiled):
    graph = compiled(edge_to(holder.echo))
    array = shared.full(COUNT, 1.0)
    first = ray_session.get(graph.execute(array))
    second = ray_session.get(graph.execute(array[COUNT // 2 :]))
    array[...] = 2
    third = ray_session.get(graph.execute(array))
    assert (first == 1).all()
    assert (second == 1).all()
    assert (third == 2).all()
    counters = next(iter(graph.statistics()["channels"].values()))
    assert counters["passed_on"] >= 2


def test_copies_through_edges_are_counted(ray_session, shared, holder, compiled, counted):
    graph = compiled(edge_to(holder.look))
    array = shared.full(COUNT, 1.0)
    assert ray_session.get(graph.execute(array)) == (1, 1)
    assert ray_session.get(graph.execute(array[: COUNT // 2])) == (1, 1)
    assert counted() == (2, 0)
    array[...] = 2
    assert ray_session.get(graph.execute(array)) == (2, 2)
    assert counted() == (0, 1)


def test_memory_of_an_edge_serves_again_only_when_its_reader_has_let_go(ray_session, shared, holder, compiled):
    graph = compiled(edge_to(holder.keep))
    array = shared.full(COUNT, 1.0)
    ray_session.get(graph.execute(array))
    del array
    gc.collect()
    others = [shared.full(COUNT, 5.0) for _ in range(3)]
    graph.teardown()
    assert ray_session.get(holder.look.remote()) == (1, 1)
    del others


def test_tensors_are_made_there_too(ray_session, shared, counted, holder):
    torch = pytest.importorskip("torch")
    tensor = shared.full((COUNT,), 1.0, torch.float32)
    assert type(tensor) is torch.Tensor
    ref = ray_session.put(tensor)
    like = shared.empty_like(tensor)
    assert (like.dtype, like.shape) == (tensor.dtype, tensor.shape)
    copy = shared.array(tensor)
    tensor.fill_(2)
    got = ray_session.get(ref)
    assert torch.all(got == 1)
    got.fill_(3)
    assert torch.all(ray_session.get(ref) == 1)
    assert torch.all(copy == 1)
    assert counted() == (1, 0)
    assert ray_session.get(holder.look.remote(copy.view(2, -1)[1])) == (1, 1)
    assert counted() == (1, 0)


def test_a_forked_child_and_its_parent_have_memory_of_their_own(ray_session, shared):
    array, sent = shared.full(COUNT, 1.0), shared.full(COUNT, 1.0)
    ref = ray_session.put(sent)
    here, there = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(there[1])
            array[: COUNT // 2] = 2
            os.write(here[1], b"x")
            os.read(there[0], 1)
            os._exit(0 if (array[: COUNT // 2] == 2).all() and (array[COUNT // 2 :] == 1).all() and (sent == 1).all() else 1)
        finally:
            os._exit(2)
    os.read(here[0], 1)
    assert (array == 1).all()
    array[...] = 3
    assert (ray_session.get(ray_session.put(array)) == 3).all()
    del array, ref, sent
    gc.collect()
    again = [shared.full(COUNT, 9.0) for _ in range(3)]  # not in memory that the child looks at
    os.write(there[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(again) == 3
    for fd in (*here, *there):
        os.close(fd)


def test_threads_that_send_the_same_array_all_send_it_whole(ray_session, shared):
    array = shared.full(COUNT, 1.0)
    refs = []
    threads = [threading.Thread(target=lambda: refs.extend(ray_session.put(array) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    array[...] = 2
    assert len(refs) == 80
    assert all((value == 1).all() for value in ray_session.get(refs))


def test_an_array_whose_name_was_removed_is_copied(ray_session, shared, counted, segments):
    before = segments()
    array = shared.full(10 * COUNT, 1.0)  # of a size that nothing was kept for
    assert segments() - before
    for name in segments() - before:
        os.unlink(f"/dev/shm/{name}")
    assert (ray_session.get(ray_session.put(array)) == 1).all()
    assert counted() == (0, 1)


def test_arrays_that_the_store_has_no_room_for_are_made_elsewhere_and_go_to_disk(fresh, init):
    from mray.util import shared

    init(num_cpus=1, object_store_memory=80 << 20)
    before = shared.statistics()
    arrays = [shared.full(10 * COUNT, float(number)) for number in range(8)]
    now = shared.statistics()
    made, elsewhere = now.made - before.made, now.elsewhere - before.elsewhere
    assert (made + elsewhere, min(made, elsewhere) > 0) == (8, True)
    refs = [fresh.put(array) for array in arrays]
    assert [fresh.get(ref)[-1] for ref in refs] == list(range(8))


def test_an_array_outlives_its_session_and_is_copied_into_the_next(fresh, init):
    from mray.util import shared

    init(num_cpus=1)
    unsent, sent = shared.full(COUNT, 1.0), shared.full(COUNT, 2.0)
    ref = fresh.put(sent)
    fresh.shutdown()
    del ref
    unsent[0] = sent[0] = 5
    assert (unsent[1:] == 1).all()
    assert (sent[1:] == 2).all()
    init(num_cpus=1)
    assert fresh.get(fresh.put(unsent)).sum() == COUNT + 4
    assert fresh.get(fresh.put(sent)).sum() == 2 * COUNT + 3
