"""The options of an actor decide where its calls run: no processes."""

from __future__ import annotations

import pytest

from mray._common.concurrency import MOST_COROUTINES, SYSTEM_GROUP, concurrency_of, no_group, runs_out_of_order
from mray._common.options import complete_actor_options


def options(**given):
    return complete_actor_options(given)


def test_an_actor_that_runs_one_call_after_the_other_has_no_lanes():
    assert concurrency_of(False, options(), []) is None
    assert concurrency_of(False, options(max_concurrency=1), []) is None
    assert concurrency_of(False, options(max_concurrency=0), []) is None


def test_others_have_the_system_groups_besides_their_own():
    is_async, most, groups = concurrency_of(False, options(max_concurrency=3, concurrency_groups={"io": 2}), ["io"])
    assert (is_async, most, groups["io"], groups[SYSTEM_GROUP]) == (False, 3, 2, 1)
    assert concurrency_of(True, options(), [])[:2] == (True, MOST_COROUTINES)
    assert concurrency_of(True, options(max_concurrency=1), [])[:2] == (True, 1)
    assert concurrency_of(False, options(concurrency_groups={"io": 2}), [])[1] == 1


def test_methods_are_in_declared_groups():
    with pytest.raises(AssertionError, match="'elsewhere'"):
        concurrency_of(False, options(concurrency_groups={"io": 2}), ["elsewhere"])
    assert "declares ['io']" in str(no_group("x", {"": 1, "io": 2, SYSTEM_GROUP: 1}))


@pytest.mark.parametrize(
    ("is_async", "given", "expected"),
    [
        (False, {}, False),
        (True, {}, True),
        (False, {"max_concurrency": 2}, True),
        (False, {"allow_out_of_order_execution": True}, True),
        (False, {"allow_out_of_order_execution": False}, False),
    ],
)
def test_where_a_call_may_overtake_another(is_async, given, expected):
    assert runs_out_of_order(is_async, options(**given)) is expected


@pytest.mark.parametrize(("is_async", "given"), [(True, {}), (False, {"max_concurrency": 2})])
def test_order_and_concurrency_exclude_each_other(is_async, given):
    with pytest.raises(ValueError, match="can't execute actor tasks in order"):
        concurrency_of(is_async, options(allow_out_of_order_execution=False, **given), [])
