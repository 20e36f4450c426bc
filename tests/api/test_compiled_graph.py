"""Compiled graphs: shapes, results, limits, errors, death, teardown."""

from __future__ import annotations

import copy
import functools
import gc
import logging
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def actor(ray_session):
    """Makes an actor with the methods that the tests call."""
    ray = ray_session

    class Actor:
        def __init__(self, start=0):
            self.sum = start
            self.seen = []

        def echo(self, value):
            self.seen.append(str(value)[:8])
            return value

        def inc(self, value):
            self.sum += value
            return self.sum

        def add(self, left, right):
            return left + right

        def weigh(self, first, second, factor=1):
            return first * factor + second

        @ray.method(num_returns=2)
        def split(self, value):
            return value, value + 1

        @ray.method(num_returns=2)
        def split_badly(self, value):
            return (value,)

        def fail(self, value):
            raise ValueError(f"cannot take {value}")

        def fail_on(self, value, bad):
            if value == bad:
                raise KeyError(value)
            return value

        def sleep(self, value):
            time.sleep(value)
            return value

        def wait_for(self, path):
            while not os.path.exists(path):
                time.sleep(0.001)
            return path

        def make(self, size):
            return np.full(size, 7, dtype=np.uint8)

        def total(self, array):
            return int(array.sum())

        def is_writable(self, array):
            return array.flags.writeable

        def unpicklable(self, value):
            return threading.Lock()

        def die(self, value):
            os._exit(1)

        def history(self):
            return self.seen

        def pid(self):
            return os.getpid()

    cls = ray.remote(num_cpus=0)(Actor)
    return cls.remote


# ------------------------------------------------------------------------------------------- shapes
def test_one_actor_echoes(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    for value in ("text", b"bytes", 1, 2.5, None, True, {"a": [1, (2, 3)]}, "\ud800", "x" * 100_000, b"y" * 3_000_000, "ä" * 70_000):
        assert ray_session.get(graph.execute(value)) == value


def test_state_is_kept_between_executions(ray_session, actor, compiled):
    a = actor(10)
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp))
    assert [ray_session.get(graph.execute(1)) for _ in range(3)] == [11, 12, 13]


def test_a_chain_of_actors(ray_session, actor, compiled):
    actors = [actor(i) for i in range(4)]
    with ray_session.dag.InputNode() as inp:
        node = inp
        for a in actors:
            node = a.inc.bind(node)
    graph = compiled(node)
    assert ray_session.get(graph.execute(1)) == 1 + 0 + 1 + 2 + 3


def test_fan_out_gives_a_list_of_refs(ray_session, actor, compiled):
    actors = [actor(10 * i) for i in range(4)]
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.inc.bind(inp) for a in actors]))
    refs = graph.execute(1)
    assert isinstance(refs, list)
    assert ray_session.get(refs) == [1, 11, 21, 31]


def test_fan_in(ray_session, actor, compiled):
    a, b, c = actor(1), actor(2), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(c.add.bind(a.inc.bind(inp), b.inc.bind(inp)))
    assert ray_session.get(graph.execute(10)) == 23


def test_several_inputs_by_position_and_name(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.weigh.bind(inp[0], inp[1], inp.factor))
    assert ray_session.get(graph.execute(2, 3, factor=10)) == 23


def test_inputs_go_to_different_actors(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.echo.bind(inp[0]), b.echo.bind(inp["x"])]))
    assert ray_session.get(graph.execute(1, x=2)) == [1, 2]


def test_constants_are_bound(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.weigh.bind(inp, 5, factor=3))
    assert ray_session.get(graph.execute(2)) == 11


def test_the_same_actor_several_times_in_the_order_of_binding(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        first = a.inc.bind(inp)
        second = a.inc.bind(inp)
        third = a.inc.bind(first)
        graph = compiled(ray_session.dag.MultiOutputNode([third, second, first]))
    # first: 0 + 1, second: 1 + 1, third: 2 + first
    assert ray_session.get(graph.execute(1)) == [3, 2, 1]


def test_a_value_returns_to_an_actor_by_way_of_another(ray_session, actor, compiled):
    a, b = actor(), actor(100)
    with ray_session.dag.InputNode() as inp:
        there = a.inc.bind(inp)
        graph = compiled(a.inc.bind(b.inc.bind(there)))
    assert ray_session.get(graph.execute(1)) == 1 + 101


def test_a_value_is_read_by_several_methods_of_an_actor(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        value = a.echo.bind(inp)
        graph = compiled(ray_session.dag.MultiOutputNode([b.echo.bind(value), b.inc.bind(value), b.add.bind(value, value)]))
    assert ray_session.get(graph.execute(4)) == [4, 4, 8]


def test_a_method_with_two_returns(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        low, high = a.split.bind(inp)
        graph = compiled(ray_session.dag.MultiOutputNode([b.echo.bind(low), high]))
    assert ray_session.get(graph.execute(1)) == [1, 2]


def test_two_returns_and_one_actor(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        low, high = a.split.bind(inp)
        graph = compiled(a.add.bind(low, high))
    assert ray_session.get(graph.execute(1)) == 3


def test_an_actor_in_a_graph_answers_ordinary_calls(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp))
    for turn in range(1, 20):
        assert ray_session.get(graph.execute(1)) == turn
        assert ray_session.get(a.add.remote(turn, 1)) == turn + 1


@pytest.mark.only("mray", "local")
def test_two_graphs_share_an_actor(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        one = compiled(a.inc.bind(inp))
    with ray_session.dag.InputNode() as inp:
        two = compiled(b.echo.bind(a.inc.bind(inp)))
    refs = []
    for _ in range(4):
        refs += [one.execute(1), two.execute(1)]
    assert sorted(ray_session.get(refs)) == list(range(1, 9))
    one.teardown()
    assert ray_session.get(two.execute(1)) == 9


# --------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("size", [10, 5_000, 1 << 20, 20 << 20])
def test_arrays_of_any_size_arrive_whole_and_read_only(ray_session, actor, compiled, size):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.total.bind(inp), b.is_writable.bind(inp)]))
    array = np.full(size, 3, dtype=np.uint8)
    back, total, writable = ray_session.get(graph.execute(array))
    np.testing.assert_array_equal(back, array)
    assert total == 3 * size
    assert not writable
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


def test_sizes_may_change_with_every_execution(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.make.bind(inp)))
    for size in (10, 3_000_000, 100, 9_000_000, 70_000, 5_000, 0, 12_000_000):
        assert ray_session.get(graph.execute(size)).nbytes == size


@pytest.mark.only("mray", "local")
def test_arrays_that_are_kept_never_change_and_block_nobody(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    kept = [ray_session.get(graph.execute(np.full(200_000, number % 250, dtype=np.uint8))) for number in range(100)]
    for number, array in enumerate(kept):
        assert array[0] == array[-1] == number % 250
        assert array.sum() == 200_000 * (number % 250)


@pytest.mark.only("mray", "local")
def test_an_array_outlives_its_graph(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.make.bind(inp))
    array = ray_session.get(graph.execute(1_000_000))
    graph.teardown()
    del graph
    gc.collect()
    assert array.sum() == 7_000_000


# -------------------------------------------------------------------------------------------- results
def test_results_can_be_got_in_any_order(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp))
    refs = [graph.execute(1) for _ in range(6)]
    assert [ray_session.get(refs[i]) for i in (5, 0, 3, 1, 2, 4)] == [6, 1, 4, 2, 3, 5]


def test_outputs_can_be_got_one_by_one(ray_session, actor, compiled):
    a, b = actor(), actor(10)
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.inc.bind(inp), b.inc.bind(inp)]))
    first, second = graph.execute(1), graph.execute(1)
    assert ray_session.get(second[1]) == 12
    assert ray_session.get(first[0]) == 1
    assert ray_session.get(second[0]) == 2
    assert ray_session.get(first[1]) == 11
    assert graph._result_buffer == {}
    assert graph._got_ref_idxs == {}


def test_a_result_is_got_once(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ref = graph.execute(1)
    assert ray_session.get(ref) == 1
    with pytest.raises(ValueError, match=r"ray\.get\(\) can only be called once on a CompiledDAGRef, and it was already called\."):
        ray_session.get(ref)


def test_a_ref_is_not_copied_pickled_or_passed_on(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ref = graph.execute(1)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be copied\."):
        copy.copy(ref)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be deep copied\."):
        copy.deepcopy(ref)
    with pytest.raises(ValueError, match=r"CompiledDAGRef cannot be pickled\."):
        pickle.dumps(ref)
    with pytest.raises(TypeError, match="CompiledDAGRef"):
        a.echo.remote(ref)
    assert ray_session.get(ref) == 1


def test_a_list_of_refs_is_not_mixed(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ref = graph.execute(1)
    with pytest.raises(ValueError, match="'object_refs' must be a list of CompiledDAGRefs if there is any CompiledDAGRef within it"):
        ray_session.get([ref, ray_session.put(1)])
    assert ray_session.get([ref]) == [1]


def test_the_text_of_a_ref(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ref = graph.execute(1)
    assert str(ref) == f"CompiledDAGRef({graph.get_id()}, execution_index=0, channel_index=None)"
    ref.get()


def test_dropped_refs_free_their_results(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp), _max_inflight_executions=3)
    for _ in range(10):
        graph.execute(1)
    assert ray_session.get(graph.execute(1)) == 11
    assert graph._result_buffer == {}
    assert graph._destructed_ref_idxs == {}
    assert graph._got_ref_idxs == {}


def test_refs_dropped_between_others_disturb_nobody(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp))
    refs = [graph.execute(1) for _ in range(6)]
    del refs[4], refs[1]
    assert [ray_session.get(ref) for ref in reversed(refs)] == [6, 4, 3, 1]


# ------------------------------------------------------------------------------------------- limits
def test_too_many_in_flight_are_refused(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp), _max_inflight_executions=2)
    refs = [graph.execute(1), graph.execute(1)]
    with pytest.raises(
        ray_session.exceptions.RayCgraphCapacityExceeded,
        match="The compiled graph can't have more than 2 in-flight executions, and you currently have 2 in-flight executions. "
        "Retrieve an output using ray.get before submitting more requests or increase `_max_inflight_executions`. ",
    ):
        graph.execute(1)
    assert ray_session.get(refs) == [1, 2]
    assert ray_session.get(graph.execute(1)) == 3


def test_too_many_buffered_results_are_refused(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.inc.bind(inp), _max_buffered_results=1)
    refs = [graph.execute(1) for _ in range(3)]
    with pytest.raises(
        ray_session.exceptions.RayCgraphCapacityExceeded,
        match="The compiled graph can't have more than 1 buffered results, and you currently have 1 buffered results",
    ):
        ray_session.get(refs[2])
    assert ray_session.get(refs[0]) == 1


def test_get_with_timeout(ray_session, actor, compiled, tmp_path):
    a, gate = actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    ref = graph.execute(str(gate))
    began = time.monotonic()
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        ray_session.get(ref, timeout=0.2)
    assert time.monotonic() - began > 0.1
    with pytest.raises(TimeoutError):
        ray_session.get(graph.execute(str(gate)), timeout=0)
    gate.touch()


@pytest.mark.only("mray", "local")
def test_a_ref_can_be_got_after_a_timeout(ray_session, actor, compiled, tmp_path):
    a, gate = actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    ref = graph.execute(str(gate))
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        ref.get(timeout=0.01)
    gate.touch()
    assert ref.get() == str(gate)


def test_timeout_zero_takes_what_is_there(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    refs = [graph.execute(1), graph.execute(2)]
    assert ray_session.get(refs[1]) == 2
    assert ray_session.get(refs[0], timeout=0) == 1


def test_inputs_are_counted(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        one = compiled(a.add.bind(inp[0], inp[1]))
    with pytest.raises(ValueError, match=r"dag.execute\(\) or dag.execute_async\(\) must be called with 2 positional args, got 1"):
        one.execute(1)
    with ray_session.dag.InputNode() as inp:
        two = compiled(b.echo.bind(inp.x))
    with pytest.raises(ValueError, match="must be called with kwarg `x`"):
        two.execute(y=1)
    assert ray_session.get(two.execute(x=1)) == 1


# -------------------------------------------------------------------------------------------- errors
def test_an_error_reaches_the_caller_and_the_graph_lives_on(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.fail_on.bind(inp, 3)))
    for value in (1, 3, 2, 3, 4):
        ref = graph.execute(value)
        if value == 3:
            with pytest.raises(KeyError) as caught:
                ray_session.get(ref)
            assert isinstance(caught.value, ray_session.exceptions.RayTaskError)
            assert "fail_on" in str(caught.value)
        else:
            assert ray_session.get(ref) == value


def test_methods_after_an_error_are_skipped(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.fail.bind(inp)))
    with pytest.raises(ValueError, match="cannot take 1"):
        ray_session.get(graph.execute(1))
    assert ray_session.get(b.history.remote()) == []


own_outputs = pytest.mark.only("mray", "local", reason="on Ray an output waits for the others, and an error of one is raised for all")


@pytest.fixture
def halves(ray_session, actor, compiled):
    """A graph that returns its input twice; the first output comes once the file that it names exists. Takes options of compiling."""

    def make(**options):
        a, b = actor(), actor()
        with ray_session.dag.InputNode() as inp:
            return compiled(ray_session.dag.MultiOutputNode([a.wait_for.bind(inp), b.echo.bind(inp)]), **options)

    return make


@own_outputs
def test_an_error_of_one_output_belongs_to_its_ref(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.fail_on.bind(inp, 1), b.echo.bind(inp)]))
    for number in (0, 1), (1, 0):
        refs = graph.execute(1)
        for output in number:
            if output:
                assert ray_session.get(refs[1]) == 1
            else:
                with pytest.raises(KeyError):
                    ray_session.get(refs[0])
    assert ray_session.get(graph.execute(2)) == [2, 2]


@own_outputs
def test_a_list_of_outputs_raises_before_the_slow_ones_have_come(ray_session, actor, compiled, tmp_path):
    a, b, gate = actor(), actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode([a.wait_for.bind(inp), b.fail.bind(inp)]))
    refs = graph.execute(str(gate))
    with pytest.raises(ValueError, match="cannot take"):
        ray_session.get(refs)
    gate.touch()
    assert ray_session.get(refs[0]) == str(gate)


@own_outputs
def test_an_output_is_read_before_the_others_of_its_execution_have_come(ray_session, halves, tmp_path):
    graph, gates = halves(), [str(tmp_path / f"{number}") for number in range(3)]
    refs = [graph.execute(gate) for gate in gates]
    assert [ray_session.get(both[1]) for both in refs[1:]] == gates[1:]
    assert ray_session.wait([*refs[0], refs[1][0]], timeout=0)[0] == [refs[0][1]]
    assert ray_session.get(refs[0][1]) == gates[0]
    for gate in gates:
        Path(gate).touch()
    assert [ray_session.get(both[0]) for both in reversed(refs)] == gates[::-1]


@own_outputs
def test_an_execution_is_in_flight_until_all_of_its_outputs_have_come(ray_session, halves, tmp_path):
    graph, gates = halves(_max_inflight_executions=2), [str(tmp_path / f"{number}") for number in range(2)]
    refs = [graph.execute(gate) for gate in gates]
    assert [ray_session.get(both[1]) for both in refs] == gates
    with pytest.raises(ray_session.exceptions.RayCgraphCapacityExceeded, match="2 in-flight"):
        graph.execute(gates[0])
    for gate in gates:
        Path(gate).touch()
    assert [ray_session.get(both[0]) for both in refs] == gates
    assert ray_session.get(graph.execute(gates[0])) == [gates[0], gates[0]]


@own_outputs
@pytest.mark.parametrize("kept", [0, 1])
def test_one_output_is_read_of_many_executions_whose_others_are_dropped(ray_session, actor, compiled, kept):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(
            ray_session.dag.MultiOutputNode([a.echo.bind(inp), b.echo.bind(inp)]), _max_inflight_executions=3, _max_buffered_results=2
        )
    assert [ray_session.get(graph.execute(number)[kept]) for number in range(30)] == list(range(30))


@own_outputs
def test_an_output_that_was_put_back_by_a_failed_get_is_got_again(ray_session, halves, tmp_path):
    graph, gate = halves(), str(tmp_path / "gate")
    refs = graph.execute(gate)
    with pytest.raises(ray_session.exceptions.RayChannelTimeoutError):
        ray_session.get(refs[::-1], timeout=0.05)
    Path(gate).touch()
    assert ray_session.get(refs) == [gate, gate]


def test_a_value_that_cannot_be_pickled_is_an_error_of_the_method(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.unpicklable.bind(inp))
    with pytest.raises(Exception, match="cannot pickle"):
        ray_session.get(graph.execute(1))


@pytest.mark.only("mray", "local")
def test_an_input_that_cannot_be_pickled_is_refused_and_the_graph_lives_on(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    with pytest.raises(TypeError, match="cannot pickle"):
        graph.execute(threading.Lock())
    assert ray_session.get(graph.execute(1)) == 1


class Explosive:
    """Pickles, and raises when it is unpickled."""

    def __reduce__(self):
        return _explode, ()


def _explode():
    raise RuntimeError("not again")


@pytest.mark.only("mray", "local")
def test_a_value_that_cannot_be_unpickled_is_an_error_and_the_graph_lives_on(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    with pytest.raises(Exception, match="not again|No module named"):
        ray_session.get(graph.execute(Explosive()))
    assert ray_session.get(graph.execute(1)) == 1


@pytest.mark.only("mray", "local")
def test_a_wrong_number_of_returns_is_an_error(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(ray_session.dag.MultiOutputNode(list(a.split_badly.bind(inp))))
    with pytest.raises(ValueError, match="num_returns=2"):
        ray_session.get(graph.execute(1))


# --------------------------------------------------------------------------------------------- death
def test_death_of_an_actor_is_told_at_once_and_spares_the_others(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.die.bind(inp)))
    with pytest.raises(ray_session.exceptions.ActorDiedError, match="The actor died unexpectedly before finishing this task"):
        ray_session.get(graph.execute(1))
    assert ray_session.get(b.add.remote(1, 2)) == 3
    with pytest.raises(ray_session.exceptions.RayError):
        for _ in range(20):
            ray_session.get(graph.execute(1))


def test_a_survivor_joins_a_new_graph(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.inc.bind(a.echo.bind(inp)))
    assert ray_session.get(graph.execute(1)) == 1
    os.kill(ray_session.get(a.pid.remote()), signal.SIGKILL)
    with pytest.raises(ray_session.exceptions.RayError):
        for _ in range(1000):
            ray_session.get(graph.execute(1))
    graph.teardown()
    before = ray_session.get(b.inc.remote(0))
    with ray_session.dag.InputNode() as inp:
        other = compiled(b.inc.bind(inp))
    assert ray_session.get(other.execute(1)) == before + 1


@pytest.mark.only("mray", "local")
def test_every_thread_that_waits_learns_of_a_death(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.sleep.bind(inp)))
    refs = [graph.execute(10_000) for _ in range(3)]
    told = []

    def wait(ref):
        try:
            ref.get()
        except ray_session.exceptions.ActorDiedError as error:
            told.append(error)

    threads = [threading.Thread(target=wait, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    ray_session.kill(a)
    for thread in threads:
        thread.join()
    assert len(told) == 3


@pytest.mark.only("mray", "local")
def test_threads_execute_and_get_at_once(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.echo.bind(inp)), _max_inflight_executions=8)
    wrong = []

    def work(number):
        for turn in range(200):
            value = (number, turn)
            if graph.execute(value).get() != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert graph._result_buffer == {}


@pytest.mark.only("mray", "local")
def test_an_interrupt_ends_the_wait_and_not_the_graph(ray_session, actor, compiled, tmp_path):
    a, gate = actor(), tmp_path / "gate"
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.wait_for.bind(inp))
    ref = graph.execute(str(gate))
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        ref.get()
    gate.touch()
    assert ref.get() == str(gate)
    assert graph.execute(str(gate)).get() == str(gate)


# ------------------------------------------------------------------------------------------ teardown
def test_teardown_twice_and_what_follows(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    ref = graph.execute(1)
    graph.teardown()
    graph.teardown()
    assert graph.is_teardown
    with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
        ray_session.get(ref)
    with pytest.raises(ray_session.exceptions.RayChannelError, match="Channel closed"):
        graph.execute(1)
    assert ray_session.get(a.add.remote(1, 2)) == 3


def test_teardown_can_kill_the_actors(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(a.echo.bind(inp))
    assert ray_session.get(graph.execute(1)) == 1
    graph.teardown(kill_actors=True)
    with pytest.raises(ray_session.exceptions.RayActorError):
        ray_session.get(a.echo.remote(1))


@pytest.mark.only("mray", "local")
def test_a_dropped_graph_frees_its_actors(ray_session, actor, segments, eventually):
    a = actor()
    before = segments()
    with ray_session.dag.InputNode() as inp:
        graph = a.echo.bind(inp).experimental_compile()
    assert graph.execute(np.zeros(100_000)).get().nbytes == 800_000
    del graph
    gc.collect()
    ray_session.get(a.pid.remote())
    eventually(lambda: segments() <= before)
    with ray_session.dag.InputNode() as inp:
        other = a.echo.bind(inp).experimental_compile()
    assert other.execute(1).get() == 1
    other.teardown()


@pytest.mark.only("mray", "local")
def test_teardown_while_executions_are_in_flight(ray_session, actor, compiled):
    a, b = actor(), actor()
    with ray_session.dag.InputNode() as inp:
        graph = compiled(b.echo.bind(a.sleep.bind(inp)))
    refs = [graph.execute(0.05) for _ in range(5)]
    graph.teardown()
    with pytest.raises(ray_session.exceptions.RayChannelError):
        refs[0].get()
    assert ray_session.get(b.add.remote(1, 2)) == 3


# ---------------------------------------------------------------------------------- graphs in an actor
@pytest.mark.only("mray", "local")
def test_a_graph_is_compiled_and_run_inside_an_actor(ray_session, actor):
    ray = ray_session

    @ray.remote
    class Driver:
        def run(self, worker):
            with ray.dag.InputNode() as inp:
                graph = worker.echo.bind(inp).experimental_compile()
            values = [ray.get(graph.execute(number)) for number in range(10)]
            graph.teardown()
            return values

    assert ray.get(Driver.remote().run.remote(actor())) == list(range(10))


@pytest.mark.only("mray", "local")
def test_an_actor_runs_a_graph_over_itself(ray_session, actor):
    ray = ray_session

    @ray.remote
    class Both:
        def own(self, value):
            return value + 1

        def run(self, myself, other):
            with ray.dag.InputNode() as inp:
                graph = myself.own.bind(other.echo.bind(myself.own.bind(inp))).experimental_compile()
            values = [ray.get(graph.execute(number)) for number in range(10)]
            graph.teardown()
            return values

    both = Both.remote()
    assert ray.get(both.run.remote(both, actor())) == list(range(2, 12))


# --------------------------------------------------------------------------------------- at compile time


def test_unused_inputs_are_refused(ray_session, actor):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        _ = inp[1]
        with pytest.raises(ValueError, match="Compiled Graph expects input to be accessed using all of attributes .*, but 1 is unused"):
            a.add.bind(inp[0], inp[2]).experimental_compile()


def test_a_dag_is_compiled_once(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        dag = a.echo.bind(inp)
    graph = compiled(dag)
    with pytest.raises(ValueError, match="It is not allowed to call `experimental_compile` on the same DAG object multiple times"):
        dag.experimental_compile()
    graph.teardown()


def test_two_nodes_of_one_dag_are_not_both_compiled(ray_session, actor, compiled):
    a = actor()
    with ray_session.dag.InputNode() as inp:
        dag = a.echo.bind(inp)
        compiled(dag)
        with pytest.raises(ValueError, match="The DAG was compiled more than once. The following two nodes call `experimental_compile`: "):
            ray_session.dag.MultiOutputNode([dag]).experimental_compile()


def test_bind_checks_the_signature(ray_session, actor):
    a = actor()
    with (
        ray_session.dag.InputNode() as inp,
        pytest.raises(
            TypeError,
            match=r"argument 'y'. The function `echo` has a signature `\(value\)`, but the given arguments to `bind` doesn't match",
        ),
    ):
        a.echo.bind(inp, y=1)


@pytest.mark.only("mray", "local")
def test_a_failed_compilation_leaves_nothing_behind(ray_session, actor, segments, kill_and_wait):
    a, b = actor(), actor()
    before = segments()
    kill_and_wait(b)
    with ray_session.dag.InputNode() as inp, pytest.raises(ray_session.exceptions.ActorDiedError):
        b.echo.bind(a.echo.bind(inp)).experimental_compile()
    assert segments() <= before
    with ray_session.dag.InputNode() as inp:
        graph = a.echo.bind(inp).experimental_compile()
    assert graph.execute(1).get() == 1
    graph.teardown()


# -------------------------------------------------------------------------------------------- endings
@pytest.mark.only("mray", "local")
def test_shutdown_ends_graphs(init, fresh):
    init(num_cpus=1)

    @fresh.remote
    class Echo:
        def echo(self, value):
            return value

    a = Echo.remote()
    with fresh.dag.InputNode() as inp:
        graph = a.echo.bind(inp).experimental_compile()
    array = graph.execute(np.ones(100_000)).get()
    ref = graph.execute(1)
    fresh.shutdown()
    assert graph.is_teardown
    with pytest.raises(fresh.exceptions.RayChannelError):
        ref.get()
    assert array.sum() == 100_000


@pytest.mark.only("mray", "local")
def test_an_actor_leaves_the_graph_of_an_actor_that_died(ray_session, actor, eventually):
    ray = ray_session

    @ray.remote
    class Driver:
        def compile(self, worker):
            with ray.dag.InputNode() as inp:
                self.graph = worker.echo.bind(inp).experimental_compile()
            return self.graph.execute(1).get()

    a = actor()
    driver = Driver.remote()
    assert ray.get(driver.compile.remote(a)) == 1
    assert ray.get(a.__ray_call__.remote(_graphs_here)) == 1
    ray.kill(driver)
    eventually(lambda: ray.get(a.__ray_call__.remote(_graphs_here)) == 0)


def _graphs_here(_actor):
    from mray._api.current import current_backend

    return len(current_backend().host().service.statistics())


@pytest.mark.only("mray", "local")
@pytest.mark.parametrize("where", ["here", "in another actor"])
def test_an_execution_after_kill_has_no_value(ray_session, where):
    """Nearly so on Ray, where `execute` may tell of a closed channel."""
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        def echo(self, value):
            return value

        def kill(self, actors):
            ray.kill(actors[0])

    killer = A.remote()
    for _ in range(30):
        actor = A.remote()
        with ray.dag.InputNode() as value:
            graph = actor.echo.bind(value).experimental_compile()
        assert ray.get(graph.execute(1)) == 1
        if where == "here":
            ray.kill(actor)
        else:
            ray.get(killer.kill.remote([actor]))
        with pytest.raises(ray.exceptions.ActorDiedError):
            ray.get(graph.execute(2))
        graph.teardown()


@pytest.mark.differs("Ray's graphs take the attribute for the method, its calls do not")
def test_an_attribute_of_the_instance_does_not_hide_a_method(ray_session, engine):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class A:
        def __init__(self):
            self.method = 1

        def method(self, value):
            return "method", value

    with ray.dag.InputNode() as value:
        graph = A.remote().method.bind(value).experimental_compile()
    if engine == "mray":
        assert ray.get(graph.execute(2)) == ("method", 2)
    else:
        with pytest.raises(TypeError, match="not callable"):
            ray.get(graph.execute(2))
    graph.teardown()


@pytest.mark.only("mray")
@pytest.mark.processes("the local engine is never slow")
@pytest.mark.parametrize("in_constructor", [True, False])
def test_a_long_compilation_says_whom_it_waits_for(ray_session, signal, monkeypatch, caplog, in_constructor):
    from mray._api import dag_node
    from mray._common.slow import told_when_slow

    ray, gate = ray_session, signal()
    monkeypatch.setattr(dag_node, "told_when_slow", functools.partial(told_when_slow, long=0.01, again=0.01))
    said = "until the actor Loader has started" if in_constructor else "until actors have finished what they run: Loader("

    @ray.remote(num_cpus=0)
    class Loader:
        def __init__(self, gate):
            if gate is not None:
                self.hold(gate)

        def hold(self, gate):
            while not ray.get(gate.is_set.remote()):
                time.sleep(0.01)

        def step(self, value):
            return value

    class Opens(logging.Handler):
        def emit(self, record):
            if said in record.getMessage():
                gate.send.remote()

    loader = Loader.remote(gate if in_constructor else None)
    if not in_constructor:
        ray.get(loader.__ray_ready__.remote())
        loader.hold.remote(gate)
    handler, logger = Opens(), logging.getLogger("mray")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "mray"), ray.dag.InputNode() as inp:
            graph = loader.step.bind(inp).experimental_compile()
    finally:
        logger.removeHandler(handler)
    assert said in caplog.text
    assert ray.get(graph.execute(3)) == 3
    graph.teardown()
