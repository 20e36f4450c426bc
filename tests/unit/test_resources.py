"""Resources are counted exactly, and GPUs per device."""

from __future__ import annotations

import pytest

from mray._scheduler.resources import FREE, UNIT, ResourcePool, to_amounts


def take(pool: ResourcePool, **quantities: float):
    amounts = to_amounts(quantities)
    assert pool.lacking(amounts) is None
    return pool.take(amounts)


def test_ten_thousand_tiny_shares_are_exactly_one():
    pool = ResourcePool({"CPU": 1})
    holdings = [take(pool, CPU=0.0001) for _ in range(10_000)]
    assert pool.lacking(to_amounts({"CPU": 0.0001})) == "CPU"
    assert pool.available() == {}
    for holding in holdings:
        pool.give(holding)
    assert pool.available() == {"CPU": 1.0}
    pool.validate([])


def test_fractions_fill_a_gpu_before_they_touch_another():
    pool = ResourcePool({"CPU": 8}, [0, 1])
    ids = [pool.ids_of(take(pool, GPU=0.4)) for _ in range(4)]
    assert ids == [(0,), (0,), (1,), (1,)]
    assert pool.free["GPU"] == 4000
    # 0.4 of a GPU are free, in two pieces that nobody can put together.
    assert pool.lacking(to_amounts({"GPU": 0.4})) == "GPU"


def test_a_fraction_prefers_the_fullest_gpu_that_has_room():
    pool = ResourcePool({}, ["a", "b"])
    take(pool, GPU=0.25)
    half = take(pool, GPU=0.75)
    take(pool, GPU=0.5)
    pool.give(half)
    assert pool.ids_of(take(pool, GPU=0.5)) == ("b",)
    assert pool.ids_of(take(pool, GPU=0.5)) == ("a",)


def test_whole_gpus_are_never_shared():
    pool = ResourcePool({}, [3, 5])
    share = take(pool, GPU=0.1)
    assert pool.lacking(to_amounts({"GPU": 2})) == "GPU"
    whole = take(pool, GPU=1)
    assert pool.ids_of(whole) == (5,)
    pool.give(share)
    pool.give(whole)
    assert pool.ids_of(take(pool, GPU=2)) == (3, 5)


@pytest.mark.parametrize("asked", [{"GPU": 3.0}, {"GPU": 1.5}, {"CPU": 3}, {"x": 0.0001}])
def test_what_can_never_be_given_is_known_at_once(asked: dict[str, float]):
    assert ResourcePool({"CPU": 2}, [0, 1]).shortage(to_amounts(asked)) is not None


def test_a_blocked_holder_lends_its_cpus_and_nothing_else():
    pool = ResourcePool({"CPU": 1, FREE: 1}, [0])
    blocked = take(pool, CPU=1, GPU=1)
    assert pool.lend(blocked) == ("CPU",)
    assert pool.lend(blocked) == ()
    other = take(pool, CPU=1)
    pool.take_back(blocked)
    assert pool.free["CPU"] == -UNIT
    assert pool.available() == {}
    pool.validate([blocked, other])
    pool.give(other)
    pool.give(blocked)
    pool.validate([])


def test_giving_back_while_lent_gives_the_cpus_once():
    pool = ResourcePool({"CPU": 2})
    holding = take(pool, CPU=2)
    pool.lend(holding)
    pool.give(holding)
    assert pool.available() == {"CPU": 2.0}
