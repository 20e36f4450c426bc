"""`get` and `wait`: order, duplicates, time limits, what is an error, who wins."""

from __future__ import annotations

import threading
import time

import pytest


@pytest.fixture
def gated(ray_session, signal):
    """A task that ends when its gate is opened: ``f.remote(gate)`` and the maker of gates."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    def f(gate, value=None):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.003)
        return value

    return f


def test_get_keeps_order_and_duplicates(ray_session):
    ray = ray_session
    a, b = ray.put("a"), ray.put("b")
    assert ray.get([b, a, b, b, a]) == ["b", "a", "b", "b", "a"]


def test_get_of_nothing_is_nothing(ray_session):
    assert ray_session.get([]) == []


@pytest.mark.parametrize("wrong", [3, "ref", None, {}, (1,)])
def test_get_of_no_ref_is_an_error(ray_session, wrong):
    with pytest.raises((ValueError, TypeError)):
        ray_session.get(wrong)


def test_get_of_a_list_with_no_ref_in_it_is_an_error(ray_session):
    with pytest.raises((ValueError, TypeError)):
        ray_session.get([ray_session.put(1), 3])


def test_get_of_a_tuple_is_an_error(ray_session):
    ray = ray_session
    with pytest.raises(ValueError, match="Invalid type of object refs"):
        ray.get((ray.put(1), ray.put(2)))


def test_get_in_time_or_not_at_all(ray_session, signal, gated):
    ray = ray_session
    gate = signal()
    ref = gated.remote(gate, 5)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(ref, timeout=0.05)
    with pytest.raises(TimeoutError):
        ray.get([ray.put(1), ref], timeout=0.05)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(ref, timeout=0)
    ray.get(gate.send.remote())
    assert ray.get(ref, timeout=100) == 5
    assert ray.get(ref, timeout=0) == 5


def test_a_get_timeout_is_a_ray_error(ray):
    assert issubclass(ray.exceptions.GetTimeoutError, ray.exceptions.RayError)
    assert issubclass(ray.exceptions.GetTimeoutError, TimeoutError)


def test_a_negative_timeout_other_than_minus_one_is_an_error(ray_session):
    with pytest.raises((ValueError, TypeError)):
        ray_session.wait([ray_session.put(1)], timeout=-2)


def test_the_first_error_wins_although_others_hang(ray_session, signal, gated):
    ray = ray_session
    gate = signal()

    @ray.remote
    def fails():
        raise ValueError("first")

    hangs = gated.remote(gate)
    with pytest.raises(ValueError, match="first"):
        ray.get([hangs, fails.remote()])
    ray.get(gate.send.remote())


def test_wait_returns_at_most_what_was_asked(ray_session):
    ray = ray_session
    refs = [ray.put(i) for i in range(5)]
    for asked in range(1, 6):
        ready, rest = ray.wait(refs, num_returns=asked)
        assert len(ready) == asked
        assert ready == [ref for ref in refs if ref in ready]
        assert rest == [ref for ref in refs if ref not in ready]
    assert len(ray.wait(refs)[0]) == 1


def test_wait_keeps_order(ray_session, signal, gated):
    ray = ray_session
    gate = signal()
    hangs = gated.remote(gate)
    refs = [ray.put(0), hangs, ray.put(1), ray.put(2)]
    ready, rest = ray.wait(refs, num_returns=3)
    assert ready == [refs[0], refs[2], refs[3]]
    assert rest == [hangs]
    ray.get(gate.send.remote())
    assert ray.wait(refs, num_returns=4)[0] == refs


def test_wait_returns_what_there_is_when_time_is_up(ray_session, signal, gated):
    ray = ray_session
    gate = signal()
    hangs = gated.remote(gate)
    done = ray.put(1)
    assert ray.wait([hangs, done], num_returns=2, timeout=0.05) == ([done], [hangs])
    assert ray.wait([hangs], timeout=0) == ([], [hangs])
    start = time.monotonic()
    ray.wait([hangs], timeout=0.2)
    assert time.monotonic() - start >= 0.19
    ray.get(gate.send.remote())


def test_wait_of_nothing_is_fine(ray_session):
    assert ray_session.wait([]) == ([], [])


def test_wait_reports_failed_tasks_as_ready(ray_session):
    ray = ray_session

    @ray.remote
    def fails():
        raise ValueError

    ref = fails.remote()
    assert ray.wait([ref]) == ([ref], [])


def test_refs_of_a_long_list_come_one_by_one_each_once(ray_session, signal, gated):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def one(number):
        if number % 50 == 7:
            raise ValueError(number)
        return number

    gate = signal()
    late = gated.remote(gate, "late")
    refs = [late, *[one.remote(number) for number in range(400)]]
    seen = []
    while len(refs) > 300:
        done, refs = ray.wait(refs, num_returns=1)
        seen += done
        if len(seen) % 10 == 0:
            refs.append(one.remote(8))
    assert ray.wait(refs, num_returns=2, timeout=0)[1][0] == late
    with pytest.raises(ValueError, match="unique"):
        ray.wait([*refs, refs[-1]], num_returns=1)
    with pytest.raises(ValueError, match="unique"):
        ray.wait([*refs[:-1], refs[0]], num_returns=1)
    with pytest.raises(TypeError, match="got list containing"):
        ray.wait([*refs[:-1], 3], num_returns=1)
    ray.get(gate.send.remote())
    while refs:
        done, refs = ray.wait(refs, num_returns=1)
        seen += done
    assert len(seen) == len(set(seen))
    assert late in seen
    failed = 0
    for ref in seen:
        try:
            ray.get(ref)
        except ValueError:
            failed += 1
    assert failed == 8


def test_a_task_can_wait_for_a_long_list_that_another_process_owns(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def one(number):
        return number

    @ray.remote(num_cpus=0)
    def collect(given):
        (refs,) = given
        values = []
        while refs:
            done, refs = ray.wait(refs, num_returns=1)
            values.append(ray.get(done[0]))
        return sorted(values)

    assert ray.get(collect.remote([[one.remote(number) for number in range(400)]])) == list(range(400))


def test_wait_wants_a_list_of_refs(ray_session):
    ray = ray_session
    with pytest.raises(TypeError, match=r"wait\(\) expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got"):
        ray.wait(ray.put(1))
    with pytest.raises(
        TypeError, match=r"wait\(\) expected a list of ray.ObjectRef or ray.ObjectRefGenerator, got list containing <class 'int'>"
    ):
        ray.wait([1])


def test_wait_wants_each_ref_once(ray_session):
    ref = ray_session.put(1)
    with pytest.raises(ValueError, match="(?i)unique|duplicate"):
        ray_session.wait([ref, ref])


@pytest.mark.parametrize("number", [0, -1, 3])
def test_num_returns_of_wait_is_checked(ray_session, number):
    ray = ray_session
    with pytest.raises((ValueError, TypeError)):
        ray.wait([ray.put(1), ray.put(2)], num_returns=number)


def test_wait_without_fetching(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return b"x" * 1_000_000

    ref = f.remote()
    assert ray.wait([ref], fetch_local=False) == ([ref], [])


def test_get_from_many_threads_of_the_same_ref(ray_session, signal, gated):
    ray = ray_session
    gate = signal()
    ref = gated.remote(gate, "value")
    results = []
    threads = [threading.Thread(target=lambda: results.append(ray.get(ref))) for _ in range(10)]
    for thread in threads:
        thread.start()
    ray.get(gate.send.remote())
    for thread in threads:
        thread.join()
    assert results == ["value"] * 10


def test_get_in_one_thread_does_not_hold_up_another(ray_session, signal, gated):
    ray = ray_session
    gate = signal()
    ref = gated.remote(gate, "late")
    late = []
    thread = threading.Thread(target=lambda: late.append(ray.get(ref)))
    thread.start()
    assert ray.get([ray.put(i) for i in range(10)]) == list(range(10))
    ray.get(gate.send.remote())
    thread.join()
    assert late == ["late"]


def test_wait_wakes_up_as_tasks_finish(ray_session, signal, gated):
    ray = ray_session
    gates = [signal() for _ in range(3)]
    refs = [gated.remote(gate, i) for i, gate in enumerate(gates)]
    pending = list(refs)
    for number in (2, 0, 1):
        gates[number].send.remote()
        ready, pending = ray.wait(pending)
        assert ready == [refs[number]]
    assert pending == []


def test_a_task_can_wait_for_what_the_driver_submitted(ray_session, signal, gated):
    ray = ray_session
    gate = signal()

    @ray.remote
    def waits(refs):
        ready, rest = ray.wait(refs, timeout=None)
        return len(ready), len(rest)

    ref = gated.remote(gate, 1)
    result = waits.remote([ref])
    ray.get(gate.send.remote())
    assert ray.get(result) == (1, 0)
