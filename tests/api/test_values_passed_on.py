"""A value that a graph has passed on without a copy stays what it is, whoever of those that passed it on has gone."""

from __future__ import annotations

import gc

import numpy as np
import pytest

COUNT = 300_000


@pytest.fixture
def keeper(ray_session):
    @ray_session.remote
    class Keeper:
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
def test_a_value_that_an_actor_keeps_outlives_the_actor_that_passed_it_on(ray_session, keeper, eventually):
    """Only in processes of mray's own: elsewhere nothing is passed on without a copy."""
    from mray.dag import InputNode

    giver, holder = keeper.remote(), keeper.remote()
    ref = ray_session.put(np.full(COUNT, 1))
    ray_session.get(giver.load.remote(ref))
    passing = compiled(lambda given: holder.keep.bind(giver.give.bind(given)), InputNode)
    assert ray_session.get(passing.execute(0)) == 0
    passing.teardown()
    ray_session.kill(giver)
    with pytest.raises(ray_session.exceptions.RayActorError):
        ray_session.get(giver.span.remote())
    del ref
    gc.collect()
    others = [ray_session.put(np.full(COUNT, 5)) for _ in range(8)]
    assert ray_session.get(holder.span.remote()) == (1, 1)
    del others
