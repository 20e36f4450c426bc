"""Resources are counted exactly, and GPUs per device."""

from __future__ import annotations

import pytest

from mray._common.amounts import readable
from mray._decide.scheduler.resources import FREE, UNIT, ResourcePool, to_amounts


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


# ---------------------------------------------------------------------------------------- by topology
def of_islands(*islands: str) -> ResourcePool:
    """GPUs named by letters; those of one island are linked."""

    def apart(one, other):
        return 0 if any({one, other} <= set(island) for island in islands) else 4

    return ResourcePool({}, sorted("".join(islands)), apart)


def test_gpus_of_one_claimant_are_of_one_island():
    pool = of_islands("ac", "bd")
    assert pool.ids_of(take(pool, GPU=2)) == ("a", "c")
    assert pool.ids_of(take(pool, GPU=2)) == ("b", "d")


def test_one_gpu_comes_out_of_the_smallest_island_that_serves():
    pool = of_islands("abc", "d", "ef")
    assert [pool.ids_of(take(pool, GPU=number)) for number in (1, 2, 3)] == [("d",), ("e", "f"), ("a", "b", "c")]


def test_a_gpu_is_close_to_its_companions():
    pool = of_islands("abc", "def")
    held = [take(pool, GPU=2) for _ in range(2)]
    assert [pool.ids_of(holding) for holding in held] == [("a", "b"), ("d", "e")]
    companions = [index for index, _units in held[1].devices["GPU"]]
    assert pool.ids_of(pool.take(to_amounts({"GPU": 1}), companions)) == ("f",)


def test_bundles_of_a_group_share_an_island():
    pool = of_islands("ab", "cdef")
    wanted = [to_amounts({"GPU": count}) for count in (1, 2, 1, 0.5)]
    taken = pool.try_take_all(wanted)
    assert not isinstance(taken, str)
    assert {each for holding in taken[:3] for each in pool.ids_of(holding)} == set("cdef")
    assert pool.ids_of(taken[3]) == ("a",)


def test_bundles_that_no_island_holds_are_as_close_as_can_be():
    pool = of_islands("ab", "cd", "ef")
    taken = pool.try_take_all([to_amounts({"GPU": 2})] * 2)
    assert not isinstance(taken, str)
    assert [set(pool.ids_of(holding)) for holding in taken] == [set("ab"), set("cd")]


def test_the_topology_is_not_asked_for_where_there_is_no_choice():
    def apart(one, other):
        raise AssertionError((one, other))

    pool = ResourcePool({}, [0, 1], apart)
    assert pool.ids_of(take(pool, GPU=2)) == (0, 1)
    alone = ResourcePool({}, [0], apart)
    assert alone.ids_of(take(alone, GPU=0.5)) == (0,)


def test_amounts_of_memory_have_units_and_others_no_exponent():
    pool = ResourcePool({"CPU": 2, "memory": 15_000_000_000, "tokens": 12_345_678})
    why = pool.shortage(to_amounts({"memory": 2e13}))
    assert why == "it has {'CPU': 2.0, 'memory': 13.970 GiB, 'tokens': 12345678.0}, and of 'memory' only 13.970 GiB"
    assert (readable("memory", 2e13), readable("tokens", 12_345_678), readable("GPU", 0.1)) == ("18.190 TiB", "12345678", "0.1")
