"""Ids: sizes, parts, and new ones."""

from __future__ import annotations

import copy
import os
import pickle
import threading

import pytest

from mray._api.object_ref import ObjectRef
from mray._common import ids

SIZES = [
    (ids.JobID, 4),
    (ids.ActorID, 16),
    (ids.TaskID, 24),
    (ObjectRef, 28),
    (ids.NodeID, 28),
    (ids.WorkerID, 28),
    (ids.UniqueID, 28),
    (ids.ClusterID, 28),
    (ids.FunctionID, 28),
    (ids.ActorClassID, 28),
    (ids.PlacementGroupID, 18),
]


@pytest.mark.parametrize(("kind", "size"), SIZES)
class TestEveryClass:
    def test_has_rays_size(self, kind: type[ids.BaseID], size: int) -> None:
        assert kind.size() == size
        assert len(kind.from_random().binary()) == size

    def test_goes_through_hex_and_binary(self, kind: type[ids.BaseID], size: int) -> None:
        one = kind.from_random()
        assert kind.from_hex(one.hex()) == one == kind.from_binary(one.binary()) == kind(one.binary())
        assert hash(kind.from_hex(one.hex())) == hash(one)
        assert bytes(one) == one.binary()
        assert one != kind.from_random()

    def test_nil_has_all_bits_set(self, kind: type[ids.BaseID], size: int) -> None:
        assert kind.nil().is_nil()
        assert kind.nil().binary() == b"\xff" * size
        assert not kind.from_random().is_nil()

    def test_repr_names_class_and_digits(self, kind: type[ids.BaseID], size: int) -> None:
        assert repr(kind.nil()) == str(kind.nil()) == f"{kind.__name__}({'ff' * size})"

    def test_pickles_and_copies(self, kind: type[ids.BaseID], size: int) -> None:
        one = kind.from_random()
        assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)

    def test_refuses_another_length(self, kind: type[ids.BaseID], size: int) -> None:
        with pytest.raises(ValueError, match=f"needs to have length {size}, got 1"):
            kind(b"1")


def test_text_is_no_id() -> None:
    with pytest.raises(TypeError, match="expected bytes"):
        ids.JobID("abcd")  # type: ignore[arg-type]


def test_processes_and_actors_of_another_session_are_known_for_ones() -> None:
    mark, other = ids.session_mark("/tmp/mray/session_1"), ids.session_mark("session_2")
    assert mark != other
    mine, second, foreign = ids.new_process_id(mark), ids.new_process_id(mark), ids.new_process_id(other)
    assert len(mine) == 16
    assert ids.is_of_session_of(second, mine)
    assert not ids.is_of_session_of(foreign, mine)
    assert ids.is_actor_of_session_of(ids.new_actor_id(second), mine)
    assert not ids.is_actor_of_session_of(ids.new_actor_id(foreign), mine)


def test_ids_of_different_classes_differ() -> None:
    assert ids.NodeID.nil() != ids.WorkerID.nil()


def test_parts_of_a_task_id() -> None:
    actor = ids.new_actor_id(ids.new_process_id(ids.session_mark("/tmp/session_1")))
    task = ids.TaskID(ids.new_task_id(actor))
    assert task.actor_id() == ids.ActorID(actor)
    assert task.job_id() == ids.ActorID(actor).job_id == ids.JobID.from_int(1)
    assert ids.JobID.from_int(7).int() == 7


def test_parts_of_a_ref() -> None:
    task = ids.new_task_id()
    ref = ObjectRef(ids.return_id(task, 2))
    assert ref.task_id() == ids.TaskID(task)
    assert ref.job_id() == ids.JobID.from_int(1)
    assert ids.return_id(task, 1) == task + ids.FIRST


def test_new_ids_are_new_in_every_thread() -> None:
    made: list[bytes] = []

    def make() -> None:
        made.extend([ids.new_task_id() for _ in range(2000)] + [ids.new_object_id() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one[:8] for one in made}) == len(made) == 16000
    assert {len(one) for one in made} == {24, 28}


def test_a_forked_process_starts_elsewhere() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, ids.new_task_id())
        os._exit(0)
    os.waitpid(pid, 0)
    of_child = int.from_bytes(os.read(read, 24)[:8], "little")
    os.close(read)
    os.close(write)
    assert abs(of_child - int.from_bytes(ids.new_task_id()[:8], "little")) > 1_000_000


def test_worker_id_shows_the_process() -> None:
    assert ids.WorkerID(ids.worker_id_of("0123456789abcdef")).hex().startswith("0123456789abcdef")
