"""Results on the caller's side: order, failures, refs that were dropped."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from mray._channel.base import NOTHING, Failed
from mray._graph.caller.results import TAKEN, Results


class Queue(deque[Any]):
    """A reader's messages."""

    def try_read(self) -> Any:
        return self.popleft() if self else NOTHING

    def ready(self) -> bool:
        return bool(self)

    def failed(self) -> bool:
        return self[0].__class__ is Failed


def make(outputs: int = 1) -> tuple[Results, list[Queue]]:
    queues = [Queue() for _ in range(outputs)]
    return Results(cast("Any", queues), [(number, None) for number in range(outputs)]), queues


def test_an_execution_is_finished_when_every_output_has_come() -> None:
    results, (one, two) = make(2)
    one.append("a")
    assert not results.advance()
    assert results.missing() == [1]
    two.append("b")
    assert results.may_finish()
    assert results.advance()
    assert results.finished == 1
    assert results.take(0, 1) == "b"
    assert results.take(0, 0) == "a"
    assert results.kept == {}


def test_an_output_is_taken_before_the_others_have_come() -> None:
    results, (one, two) = make(2)
    two.extend(["b0", "b1"])
    assert results.bring(1, 1)
    assert not results.bring(2, 1)
    assert [results.has(index, output) for index in range(2) for output in range(2)] == [False, True, False, True]
    assert (results.take(1, 1), results.peek(0, 1), results.peek(0, 0), results.finished) == ("b1", "b0", NOTHING, 0)
    one.extend(["a0", "a1"])
    assert results.advance()
    assert results.advance()
    assert results.kept == {0: ["a0", "b0"], 1: ["a1", TAKEN]}


def test_an_execution_of_which_everything_was_taken_early_is_not_kept() -> None:
    results, (one, two) = make(2)
    for queue, output in ((one, 0), (two, 1)):
        queue.append(output)
        assert results.bring(0, output)
        assert results.peek(0, output) == output
        results.take(0, output)
        assert results.finished == output
    assert results.kept == {}


def test_a_failure_is_of_the_outputs_of_its_reader_alone() -> None:
    queues = [Queue(), Queue()]
    results = Results(cast("Any", queues), [(1, None), (0, None), (1, str)])
    failed = Failed(b"")
    queues[1].extend([failed, 7])
    assert results.bring(0, 0)
    assert [results.take(0, output) is failed for output in (0, 2)] == [True, True]
    assert not results.has(0, 1)
    assert results.bring(1, 2)
    queues[0].extend(["a", "b"])
    while results.advance():
        pass
    assert results.kept == {0: [TAKEN, "a", TAKEN], 1: [7, "b", "7"]}


def test_outputs_wait_for_readers_without_one_and_have_their_failures() -> None:
    queues = [Queue(), Queue(), Queue()]
    results = Results(cast("Any", queues), [(0, None), (2, None)])
    failed = Failed(b"")
    queues[0].extend(["a0", "a1"])
    assert not results.bring(0, 0)
    assert not results.has(0, 0)
    assert not results.is_due(0, 0)
    queues[1].extend([None, failed])
    assert results.is_due(0, 0)
    assert results.bring(0, 0)
    assert (results.has(0, 0), results.has(0, 1)) == (True, False)
    assert results.bring(1, 0)
    queues[2].extend(["b0", "b1"])
    while results.advance():
        pass
    assert results.kept[0] == ["a0", "b0"]
    assert [value is failed for value in results.kept[1]] == [True, True]


def test_what_has_come_is_read_before_what_has_not_so_that_a_wait_does_not_end_again_for_it() -> None:
    queues = [Queue(), Queue()]
    results = Results(cast("Any", queues), [(0, None)])
    queues[1].append(None)
    assert results.is_due(0, 0)
    assert not results.bring(0, 0)
    assert not results.is_due(0, 0)
    queues[0].append("a")
    assert results.bring(0, 0)
    assert results.take(0, None) == "a"


def test_what_is_unwanted_is_dropped_early_too() -> None:
    results, (one, two) = make(2)
    two.append("b")
    assert results.bring(0, 1)
    results.dropped.append((0, 1))
    results.note_dropped()
    assert not results.next_is_unwanted()
    results.dropped.append((0, 0))
    results.note_dropped()
    assert results.next_is_unwanted()
    one.append("a")
    assert results.advance()
    assert (results.kept, results.unwanted) == ({}, {})


def test_several_outputs_are_due_together_or_with_a_failure_or_for_what_lies_before_them() -> None:
    results, (one, two) = make(2)
    one.append("a0")
    assert not results.are_due([(0, 0), (0, 1)])
    assert results.are_due([(1, 0), (1, 1)])
    two.append("b0")
    assert results.are_due([(0, 0), (0, 1)])
    assert results.advance()
    two.append(Failed(b""))
    assert results.are_due([(1, 0), (1, 1)])


def test_an_output_that_is_dropped_between_its_message_and_that_of_a_reader_without_one_is_not_kept() -> None:
    queues = [Queue(), Queue()]
    results = Results(cast("Any", queues), [(0, None)])
    queues[0].append("a")
    assert not results.bring(0, 0)
    results.dropped.append((0, None))
    results.note_dropped()
    assert results.next_is_unwanted()
    queues[1].append(None)
    assert results.advance()
    assert (results.kept, results.unwanted) == ({}, {})


def test_no_more_executions_are_kept_than_may_be() -> None:
    results, (queue,) = make()
    queue.extend("abc")
    assert results.bring(2, 0, most_kept=2) is None
    assert results.kept == {0: ["a"], 1: ["b"]}
    results.take(0, None)
    assert results.bring(2, 0, most_kept=2)


def test_results_that_nobody_wants_are_not_kept() -> None:
    results, (queue,) = make()
    queue.extend([0, 1, 2])
    results.dropped.append((1, None))
    while results.advance():
        pass
    assert results.kept == {0: [0], 2: [2]}
    results.dropped.append((0, None))
    results.note_dropped()
    assert results.kept == {2: [2]}
    assert results.unwanted == {}


def test_a_ref_that_died_as_its_result_came_keeps_nothing() -> None:
    results, (queue,) = make()
    queue.append("a")
    results.dropped.append((0, None))
    assert results.advance()
    assert results.kept == {}


def test_outputs_are_dropped_one_by_one() -> None:
    results, (one, two) = make(2)
    results.dropped.extend([(0, 0), (1, 1)])
    results.note_dropped()
    assert not results.next_is_unwanted()
    results.dropped.append((0, 1))
    results.note_dropped()
    assert results.next_is_unwanted()
    one.extend([1, 2])
    two.extend([1, 2])
    assert results.advance()
    assert results.kept == {}
    assert results.advance()
    assert results.kept == {1: [2, TAKEN]}
    assert results.take(1, 0) == 2
    assert results.kept == {}


def test_what_was_taken_is_put_back_and_taken_again() -> None:
    results, (one, two) = make(2)
    one.append("a")
    two.append("b")
    assert results.advance()
    for _ in range(2):
        value = results.take(0, 1)
        results.put_back(0, 1, value)
    assert results.take(0, 0) == "a"
    assert results.take(0, 1) == "b"
    results.put_back(0, 1, "b")
    assert results.kept == {0: [TAKEN, "b"]}
