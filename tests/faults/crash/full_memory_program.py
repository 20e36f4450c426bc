"""A driver whose /dev/shm has so much room and no more, again and again: what asks for shared memory works, or says that there is none.

Runs in a mount namespace of its own, whose /dev/shm is a small tmpfs (`test_full_memory`). A file there takes all of the room but some
pages; with every attempt there are more of them, until the operation succeeds. So it fails at each of its allocations in turn.

    full_memory_program.py <refuse | spill | start> <quick | full> [<scene> ...]
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mray
from mray import exceptions
from mray._api.current import current_backend
from mray._common import messages
from mray._ipc.table import BYTES
from mray.util import state

SHM = Path("/dev/shm")
FILLER = SHM / "filler"
PAGE = os.sysconf("SC_PAGE_SIZE")
#: Bytes of a value that lies in shared memory.
LARGE = 300_000
#: Bytes that objects may take; more than there are.
STORE = 100 << 20
#: Seconds after which what should come about counts as never coming about.
PATIENCE = 60.0
#: An attempt, and the end of what it needs.
Scene = Iterator[Callable[[], None]]


# ------------------------------------------------------------------------------------------------ room
def leave(pages: int) -> None:
    """Take all of the room but so many pages."""
    give_back()
    info = os.statvfs(SHM)
    taken = (info.f_bfree - pages) * info.f_bsize
    assert taken > 0, "the tmpfs is too small for this"
    fd = os.open(FILLER, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, taken)
    os.close(fd)


def give_back() -> None:
    """All of the room is there again."""
    FILLER.unlink(missing_ok=True)


def rooms(every: bool, growth: int = 1) -> Iterator[int]:
    """Pages to leave, attempt by attempt: every number up to a hundred and then larger steps, or so many times as many more each time."""
    pages = 0
    while True:
        yield pages
        pages += (1 if pages < 100 else max(16, pages // 16)) if every else max(1, growth * pages)


def eventually(condition: Callable[[], object], what: Callable[[], object]) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"did not come about: {what()}")
        time.sleep(0.005)


# ----------------------------------------------------------------------------------------------- scenes
def value(number: float = 1.0, size: int = LARGE) -> Any:
    return np.full(size // 8, number)


def growing() -> Iterator[int]:
    """Sizes of which each needs new slots, by so little that the room which grows with the attempts overtakes them."""
    return iter(range(LARGE, 1 << 40, PAGE))


def check(array: Any, number: float = 1.0, size: int = LARGE) -> None:
    assert array.shape == (size // 8,), array.shape
    assert (array == number).all()


@mray.remote(num_cpus=0)
class Actor:
    """Does what scenes need an actor for."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def make(self, number: float = 1.0, size: int = LARGE) -> Any:
        return value(number, size)

    def double(self, array: Any) -> Any:
        return array * 2

    def keep(self, array: Any) -> Any:
        self.kept = [*self.kept[-3:], array]
        return array * 2

    def stream(self, count: int) -> Iterator[Any]:
        for number in range(count):
            yield value(number)

    def join(self, world_size: int, rank: int, name: str) -> None:
        from mray.util import collective

        collective.init_collective_group(world_size, rank, "gloo", name)

    def sum(self, size: int, name: str) -> Any:
        from mray.util import collective

        array = value(1.0, size)
        collective.allreduce(array, name)
        return array

    def send(self, size: int, name: str) -> None:
        from mray.util import collective

        collective.send(value(1, size), 1, name)

    def receive(self, size: int, name: str) -> Any:
        from mray.util import collective

        array = value(0, size)
        collective.recv(array, 0, name)
        return array

    def leave(self, name: str) -> None:
        from mray.util import collective

        collective.destroy_collective_group(name)

    def read(self, channel: Any) -> Any:
        return channel.read(PATIENCE)

    def tensor(self, fill: float) -> Any:
        import torch

        return torch.full((LARGE // 4,), fill)


def put() -> Scene:
    yield lambda: check(mray.get(mray.put(value())))


def result_of_a_task() -> Scene:
    @mray.remote(max_retries=0)
    def make() -> Any:
        return value()

    yield lambda: check(mray.get(make.remote()))


def two_results_of_a_task() -> Scene:
    @mray.remote(max_retries=0, num_returns=2)
    def make() -> Any:
        return value(1), value(2)

    def attempt() -> None:
        first, second = mray.get(make.remote())
        check(first, 1)
        check(second, 2)

    yield attempt


def argument_of_a_task() -> Scene:
    @mray.remote(max_retries=0)
    def double(array: Any) -> Any:
        return float(array.sum() * 2)

    def attempt() -> None:
        assert mray.get(double.remote(value())) == 2 * LARGE // 8

    yield attempt


def result_of_an_actor() -> Scene:
    actor = Actor.remote()
    yield lambda: check(mray.get(actor.double.remote(value())), 2)


def stream() -> Scene:
    actor = Actor.remote()

    def attempt() -> None:
        refs = list(actor.stream.options(num_returns="streaming").remote(3))
        for number, ref in enumerate(refs):
            check(mray.get(ref), number)
        assert len(refs) == 3

    yield attempt


def put_within_a_task() -> Scene:
    @mray.remote(max_retries=0)
    def make() -> Any:
        return [mray.put(value())]

    yield lambda: check(mray.get(mray.get(make.remote())[0]))


def compiling_a_graph() -> Scene:
    actors = [Actor.remote(), Actor.remote()]

    def attempt() -> None:
        with mray.dag.InputNode() as given:
            graph = actors[1].double.bind(actors[0].double.bind(given)).experimental_compile()
        try:
            assert mray.get(graph.execute(1)) == 4
        finally:
            graph.teardown()

    yield attempt


def executing_a_graph() -> Scene:
    actors = [Actor.remote(), Actor.remote()]
    with mray.dag.InputNode() as given:
        graph = actors[1].keep.bind(actors[0].double.bind(given)).experimental_compile()
    sizes = growing()

    def attempt() -> None:
        size = next(sizes)  # grows: no earlier slot is large enough
        check(mray.get(graph.execute(value(1, size))), 4, size)

    yield attempt
    graph.teardown()


def executing_a_graph_ahead() -> Scene:
    """Several executions in flight, whose values are all held on to."""
    actor = Actor.remote()
    with mray.dag.InputNode() as given:
        graph = actor.keep.bind(given).experimental_compile(_max_inflight_executions=4)
    sizes = growing()

    def attempt() -> None:
        size = next(sizes)
        refs: list[Any] = []
        try:
            refs.extend(graph.execute(value(number, size)) for number in range(4))
        finally:
            held = [answer_to(ref) for ref in refs]
        for number, array in enumerate(held):
            if isinstance(array, Exception):
                raise array
            check(array, 2 * number, size)

    yield attempt
    graph.teardown()


def answer_to(ref: Any) -> Any:
    try:
        return mray.get(ref)
    except Exception as error:
        return error


def reducing_in_a_graph() -> Scene:
    from mray.experimental.collective import allreduce

    actors = [Actor.remote(), Actor.remote()]

    def attempt() -> None:
        with mray.dag.InputNode() as given:
            summed = allreduce.bind([actor.tensor.bind(given) for actor in actors])
            graph = mray.dag.MultiOutputNode(summed).experimental_compile()
        try:
            for tensor in mray.get(graph.execute(2)):
                assert (tensor == 4).all()
        finally:
            graph.teardown()

    yield attempt


def joining_a_group() -> Scene:
    actors = [Actor.remote(), Actor.remote()]
    names = (f"group{number}" for number in range(1 << 30))

    def attempt() -> None:
        name = next(names)
        pending = {actor.join.remote(2, rank, name): rank for rank, actor in enumerate(actors)}
        failure = None
        while pending:
            (join,), _ = mray.wait(list(pending))
            rank = pending.pop(join)
            error = answer_to(join)
            if error is not None:
                # A member that could not join may try again, and the one that waits for it goes on.
                failure = error
                give_back()
                pending[actors[rank].join.remote(2, rank, name)] = rank
        for array in mray.get([actor.sum.remote(3 * LARGE, name) for actor in actors]):
            check(array, 2, 3 * LARGE)
        mray.get([actor.leave.remote(name) for actor in actors])
        if failure is not None:
            raise failure

    yield attempt


def sending_in_a_group() -> Scene:
    actors = [Actor.remote(), Actor.remote()]
    mray.get([actor.join.remote(2, rank, "senders") for rank, actor in enumerate(actors)])
    sizes = growing()

    def attempt() -> None:
        size = next(sizes)
        received = actors[1].receive.remote(size, "senders")
        failure = answer_to(actors[0].send.remote(size, "senders"))
        if failure is not None:
            give_back()
            mray.get(actors[0].send.remote(size, "senders"))
        check(mray.get(received), 1, size)
        if failure is not None:
            raise failure

    yield attempt
    mray.get([actor.leave.remote("senders") for actor in actors])


def tensors_that_stay_with_their_actor() -> Scene:
    @mray.remote(num_cpus=0)
    class Maker:
        @mray.method(tensor_transport="shm")
        def make(self) -> Any:
            import torch

            return torch.ones(LARGE // 4)

    maker = Maker.remote()

    def attempt() -> None:
        assert (mray.get(maker.make.remote()) == 1).all()

    yield attempt


SCENES = [
    put,
    result_of_a_task,
    two_results_of_a_task,
    argument_of_a_task,
    result_of_an_actor,
    stream,
    put_within_a_task,
    compiling_a_graph,
    executing_a_graph,
    executing_a_graph_ahead,
    reducing_in_a_graph,
    joining_a_group,
    sending_in_a_group,
    tensors_that_stay_with_their_actor,
]

#: Those that need torch.
WITH_TORCH = {"reducing_in_a_graph", "tensors_that_stay_with_their_actor"}


# ------------------------------------------------------------------------------------------------ attempts
def others() -> set[str]:
    """Names in /dev/shm that are of no object: those of objects may be kept for the next one."""
    return {name for name in os.listdir(SHM) if name.count("-") < 3}


def trim() -> None:
    """Have every process let go of the memory that it keeps for the next object. The one object that `run` holds is left."""
    client = current_backend().client  # type: ignore[attr-defined]
    store, table = client.owner.store, client.owner.store._table

    def left() -> tuple[int, list[int]]:
        return table.total(BYTES, table.rows_in_use()), [segment.size for segment in list(store._used.values())]

    def nothing_else() -> bool:
        store.trim()
        client.ask(messages.MAKE_ROOM)
        # Looked at anew each time: what an attempt put for an argument is the driver's until the reply has let go of it.
        total, held = left()
        return len(held) == 1 and [total] == held

    eventually(nothing_else, left)


def run(scene: Callable[[], Scene], every: bool) -> None:
    """Attempts with more and more room; prints how many failed."""
    steps = scene()
    attempt = next(steps)
    attempt()  # whatever is loaded, connected and kept for good is there now
    gc.collect()
    before = others()
    held = mray.put(value(7))
    failed = 0
    for pages in rooms(every):
        trim()
        leave(pages)
        try:
            attempt()
            break
        except exceptions.ObjectStoreFullError as error:
            check_text(str(error))
            failed += 1
        finally:
            gc.collect()
            check(mray.get(held), 7)
            give_back()
        eventually(lambda: others() <= before, lambda: others() - before)
    for _ in range(3):
        attempt()
    gc.collect()
    eventually(lambda: others() <= before, lambda: others() - before)
    next(steps, None)
    print("failed", scene.__name__, failed, flush=True)


def check_text(text: str) -> None:
    """An error says what was wanted, what there is, and what to do."""
    assert "bytes could not be reserved for /mray-" in text, text
    assert "bytes free. Free objects" in text, text
    assert "--shm-size" in text, text


def start(every: bool) -> None:
    """Sessions that begin with more and more room, until one can."""
    for pages in rooms(every, 9):
        leave(pages)
        try:
            mray.init(num_cpus=1, logging_level="ERROR", object_store_memory=STORE)
        except exceptions.RaySystemError as error:
            check_text(str(error))
            assert os.listdir(SHM) == [FILLER.name], os.listdir(SHM)
            print("refused")
            continue
        check(mray.get(mray.put(value())))  # on disk
        mray.shutdown()
        give_back()
        print("started")
        break


def main() -> None:
    what, extent, *names = sys.argv[1:]
    if what == "start":
        start(extent == "full")
    else:
        spilling = {"automatic_object_spilling_enabled": what == "spill"}
        mray.init(num_cpus=4, logging_level="ERROR", object_store_memory=STORE, _system_config=spilling)
        for scene in SCENES:
            if scene.__name__ in names:
                run(scene, extent == "full")
                gc.collect()
                # The memory of its actors would make room for the next one.
                eventually(lambda: {row.state for row in state.list_actors()} <= {"DEAD"}, state.list_actors)
        mray.shutdown()
    print("nothing left" if not os.listdir(SHM) else os.listdir(SHM))


if __name__ == "__main__":
    main()
