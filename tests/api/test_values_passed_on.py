"""A value that a graph has passed on without a copy stays what it is, whoever of those that passed it on has gone."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest

COUNT = 300_000


@pytest.fixture
def keeper(ray_session):
    @ray_session.remote
    class Keeper:
        def orphans(self):
            from mray._ipc import ring_loans

            return len(ring_loans._closed)

        def look(self, value, come, go):
            open(come, "w").close()
            while not os.path.exists(go):
                time.sleep(0.01)
            return int(value[0])

        def load(self, value):
            self.value = value

        def give(self, _index):
            return self.value

        def make(self, number):
            return np.full(COUNT, number)

        def keep(self, value):
            self.value = value
            return 0

        def span(self):
            return int(self.value.min()), int(self.value.max())

    return Keeper


def compiled(node, InputNode):
    with InputNode() as given:
        output = node(given)
    return output.experimental_compile()


@pytest.mark.only("mray")
def test_a_value_that_an_actor_keeps_outlives_the_graph_that_brought_it(ray_session, keeper):
    """Only in processes of mray's own: elsewhere nothing is passed on without a copy."""
    from mray.dag import InputNode

    maker, holder = keeper.remote(), keeper.remote()
    making = compiled(maker.make.bind, InputNode)
    keeping = compiled(holder.keep.bind, InputNode)
    value = ray_session.get(making.execute(1))
    assert ray_session.get(keeping.execute(value)) == 0
    keeping.teardown()
    del value
    gc.collect()
    for number in range(2, 30):
        ray_session.get(making.execute(number))
    assert ray_session.get(holder.span.remote()) == (1, 1)
    making.teardown()


@pytest.mark.only("mray")
def test_a_value_that_an_actor_keeps_outlives_the_actor_that_passed_it_on(ray_session, keeper, kill_and_wait):
    """Only in processes of mray's own: elsewhere nothing is passed on without a copy."""
    from mray.dag import InputNode

    giver, holder = keeper.remote(), keeper.remote()
    ref = ray_session.put(np.full(COUNT, 1))
    ray_session.get(giver.load.remote(ref))
    passing = compiled(lambda given: holder.keep.bind(giver.give.bind(given)), InputNode)
    assert ray_session.get(passing.execute(0)) == 0
    passing.teardown()
    kill_and_wait(giver)
    del ref
    gc.collect()
    others = [ray_session.put(np.full(COUNT, 5)) for _ in range(8)]
    assert ray_session.get(holder.span.remote()) == (1, 1)
    del others


@pytest.mark.only("mray")
def test_the_end_of_a_graph_gives_back_what_was_passed_on_in_it_also_when_its_reader_is_the_last_to_leave(
    ray_session, keeper, eventually, tmp_path
):
    """Only in processes of mray's own: elsewhere nothing is passed on without a copy."""
    from mray.dag import InputNode

    giver, holder = keeper.remote(), keeper.remote()
    ref = ray_session.put(np.full(COUNT, 1))
    ray_session.get(giver.load.remote(ref))
    come, go = str(tmp_path / "come"), str(tmp_path / "go")
    passing = compiled(lambda given: holder.look.bind(giver.give.bind(given), come, go), InputNode)
    passing.execute(0)
    eventually(lambda: os.path.exists(come))
    ending = threading.Thread(target=passing.teardown)
    ending.start()
    try:
        eventually(lambda: ray_session.get(giver.orphans.remote()) == 1)  # has left, and keeps it for the other
    finally:
        open(go, "w").close()
        ending.join()
    eventually(lambda: ray_session.get(giver.orphans.remote()) == 0)
    assert ray_session.get(holder.orphans.remote()) == 0
