"""The options of an actor decide where its calls run: no processes."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from mray._common.concurrency import MOST_COROUTINES, SYSTEM_GROUP, concurrency_of, no_group, runs_out_of_order
from mray._common.options import complete_actor_options
from mray._runtime.worker.main_thread import MainThread
from mray._runtime.worker.thread_group import BRIEF, COST, DEBT, ENOUGH, LONG, MOST_CREDIT, _Record


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


def noted(record: _Record, calls: int, seconds: float) -> bool:
    for _ in range(calls):
        record.note(seconds)
    return record.is_brief


def test_a_method_is_brief_once_most_of_its_calls_have_been():
    record = _Record()
    assert not noted(record, ENOUGH - 1, BRIEF)
    assert noted(record, 1, BRIEF)
    assert noted(record, 10 * MOST_CREDIT, BRIEF)
    longer = (MOST_CREDIT - ENOUGH) // COST
    assert noted(record, longer, BRIEF * 2)  # the machine was busy
    assert not noted(record, 1, BRIEF * 2)
    assert noted(record, COST, BRIEF)
    assert not noted(_Record(), 1000, BRIEF * 2)
    one_in_five = _Record()
    assert not any(noted(one_in_five, 4, BRIEF) or noted(one_in_five, 1, BRIEF * 2) for _ in range(1000))


def test_a_method_that_has_waited_is_not_brief_for_long():
    record = _Record()
    assert noted(record, 1000, BRIEF)
    assert not noted(record, 1, LONG)
    assert not noted(record, DEBT + ENOUGH - 1, BRIEF)
    assert noted(record, 1, BRIEF)


def test_the_main_thread_takes_up_work_when_it_reads_and_has_no_other():
    main = MainThread(SimpleNamespace(node=None))

    def takes_up(*messages: object, waits: bool = True, here: bool = True, service: object = None) -> bool:
        main.inbox.clear()
        main.inbox.extend(messages)
        main.waits, main.ident, main.service = waits, threading.get_ident() if here else 0, service
        return main.take_up(lambda: None)

    assert takes_up(service=SimpleNamespace(is_active=False))
    assert len(main.inbox) == 1
    assert takes_up()
    assert not takes_up(waits=False)
    assert not takes_up(here=False)
    assert not takes_up(service=SimpleNamespace(is_active=True))
    assert not takes_up(("the node", "EXIT", ()))
