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


def make(outputs: int = 1) -> tuple[Results, list[Queue]]:
    queues = [Queue() for _ in range(outputs)]
    picks = [lambda values, number=number: values[number] for number in range(outputs)]
    return Results(cast("Any", queues), picks), queues


def test_an_execution_is_finished_when_every_output_has_come() -> None:
    results, (one, two) = make(2)
    one.append("a")
    assert not results.advance()
    two.append("b")
    assert results.advance()
    assert results.finished == 1
    assert results.take(0, 1) == "b"
    assert results.take(0, 0) == "a"
    assert results.kept == {}


def test_a_failure_finishes_at_once_and_what_follows_of_it_is_skipped() -> None:
    results, (one, two) = make(2)
    failed = Failed(b"")
    two.append(failed)
    assert results.advance()
    assert results.take(0, 0) is failed
    two.append("b1")
    assert not results.advance()
    one.extend(["late a0", "a1"])
    assert results.advance()
    assert [results.take(1, 0), results.take(1, 1)] == ["a1", "b1"]


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
