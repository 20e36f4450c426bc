"""Which waits cannot end, and what is said of them, without a process."""

from __future__ import annotations

import pickle
from collections.abc import Collection

import pytest

from mray._common.long_waits import CallRow, WaitLink, WaitRow, describe_chain
from mray._decide.scheduler.wait_graph import WaitGraph, WaitKey
from mray.exceptions import DeadlockError


class Places:
    """Actors are in the processes of their names; all requests lack the holders of one call."""

    def __init__(self, constructing: str = "", lacking: dict[str, list[str]] | None = None, actors: dict[bytes, str] | None = None) -> None:
        self._constructing = constructing
        self._holders = next(iter((lacking or {}).values()), [])
        self._actors = actors

    def of_actor(self, actor_id: bytes) -> tuple[str, bool]:
        process = actor_id.decode() if self._actors is None else self._actors.get(actor_id, "")
        return process, process == self._constructing != ""

    def lacking(self, owner: str, request: int, actor_id: bytes) -> tuple[str, list[str]]:
        assert owner == "driver"
        return ("CPU", self._holders) if request or actor_id else ("", [])


def graph_of(
    waits: dict[WaitKey, tuple[str, list[str], int]],
    calls: dict[str, list[WaitKey]],
    needs: dict[str, list[str]] | None = None,
    constructing: str = "",
    lacking: dict[str, list[str]] | None = None,
    mains: Collection[str] = (),
) -> WaitGraph:
    """`waits`: the call that waits, those that it waits for, and how many it can spare; `calls`: what holds each."""
    graph = WaitGraph(Places(constructing, lacking or {}))
    for (process, number), (task, targets, spare) in waits.items():
        row = WaitRow(
            number, task.encode(), task, ("f.py", number, "f", f"get({targets})"), [(t.encode(), process) for t in targets], spare
        )
        main = number if process == constructing or process in mains else 0
        graph.learn(process, [row], [], main)
    for task, held_by in calls.items():
        known = [(need.encode(), "driver") for need in (needs or {}).get(task, ())]
        graph.learn("driver", [], [CallRow(task.encode(), task, "", constructing.encode(), known, [], task in (lacking or {}))], 0)
        for process in dict.fromkeys(process for process, _number in held_by):
            numbers = [number for each, number in held_by if each == process]
            graph.learn(process, [], [CallRow(task.encode(), "", "", b"", [], numbers)], 0)
    return graph


RING = {("a", 1): ("A.ping", ["B.pong"], 0), ("b", 1): ("B.pong", ["A.pong2"], 0)}
RING_CALLS: dict[str, list[WaitKey]] = {"B.pong": [("b", 1)], "A.pong2": [("a", 1)]}


def test_two_that_wait_for_each_other_cannot_end() -> None:
    assert graph_of(RING, RING_CALLS).stuck() == {("a", 1), ("b", 1)}


def test_one_that_waits_for_itself_cannot_end() -> None:
    graph = graph_of({("a", 1): ("A.go", ["A.other"], 0)}, {"A.other": [("a", 1)]})
    assert graph.stuck() == {("a", 1)}
    assert graph.chain(("a", 1), {("a", 1)}) == ([], [(("a", 1), b"A.other", b"A.other", ("a", 1))])


def test_a_chain_that_ends_at_a_call_which_runs_may_end() -> None:
    graph = graph_of({("a", 1): ("A.ping", ["B.pong"], 0), ("b", 1): ("B.pong", ["C.slow"], 0)}, {"B.pong": [("b", 1)], "C.slow": []})
    assert graph.stuck() == set()


def test_a_call_of_which_no_process_knows_may_end() -> None:
    assert graph_of({("a", 1): ("A.ping", ["B.pong"], 0)}, {}).stuck() == set()


def test_a_wait_that_leads_into_a_cycle_cannot_end_either_and_its_chain_says_where_the_cycle_begins() -> None:
    waits = {("driver", 3): ("The driver", ["A.ping"], 0), **RING}
    graph = graph_of(waits, {"A.ping": [("a", 1)], **RING_CALLS})
    stuck = graph.stuck()
    assert stuck == {("driver", 3), ("a", 1), ("b", 1)}
    before, cycle = graph.chain(("driver", 3), stuck)
    assert [step.wait for step in before] == [("driver", 3)]
    assert [step.wait for step in cycle] == [("a", 1), ("b", 1)]
    assert set(graph.tasks(stuck, stuck)) == {b"A.ping", b"B.pong", b"A.pong2"}
    assert graph.tasks([("driver", 3)], stuck) == [b"A.ping"]


def test_of_several_threads_one_that_may_go_on_saves_what_is_queued() -> None:
    two = {("a", 1): ("A.x", ["A.z"], 0), ("a", 2): ("A.y", ["B.slow"], 0)}
    assert graph_of(two, {"A.z": [("a", 1), ("a", 2)], "B.slow": []}).stuck() == set()
    both = {("a", 1): ("A.x", ["A.z"], 0), ("a", 2): ("A.y", ["A.z"], 0)}
    assert graph_of(both, {"A.z": [("a", 1), ("a", 2)]}).stuck() == {("a", 1), ("a", 2)}


def test_a_wait_for_several_calls_ends_while_it_can_spare_those_that_do_not() -> None:
    calls: dict[str, list[WaitKey]] = {"A.x": [("a", 1)], "B.slow": []}
    assert graph_of({("a", 1): ("A.go", ["A.x", "B.slow"], 1)}, calls).stuck() == set()
    assert graph_of({("a", 1): ("A.go", ["A.x", "B.slow"], 0)}, calls).stuck() == {("a", 1)}


def test_a_wait_whose_values_have_just_come_may_end() -> None:
    assert graph_of({("a", 1): ("A.go", [], -1)}, {}).stuck() == set()


def test_a_call_whose_argument_cannot_come_cannot_end() -> None:
    graph = graph_of({("a", 1): ("A.go", ["f"], 0)}, {"f": [], "A.x": [("a", 1)]}, needs={"f": ["A.x"]})
    assert graph.stuck() == {("a", 1)}
    (link,) = graph.links(graph.chain(("a", 1), graph.stuck())[1], {"a": 11})
    assert str(link).splitlines()[0] == "A.go (pid 11) waits for f, which needs A.x, which is queued behind A.go (pid 11)"


def test_arguments_that_need_each_other_are_no_reason() -> None:
    assert graph_of({("a", 1): ("A.go", ["f"], 0)}, {"f": [], "g": []}, needs={"f": ["g"], "g": ["f"]}).stuck() == set()


def test_a_call_to_an_actor_whose_constructor_waits_for_it_cannot_end() -> None:
    waits = {("p", 1): ("A.__init__", ["A.f"], 0)}
    assert graph_of(waits, {"A.f": []}, constructing="p").stuck() == {("p", 1)}
    assert graph_of(waits, {"A.f": []}).stuck() == set()


def test_a_task_that_needs_the_resources_of_waits_that_cannot_end_cannot_begin() -> None:
    waits = {("a", 1): ("A.go", ["f"], 0)}
    graph = graph_of(waits, {"f": []}, lacking={"f": ["a"]}, mains="a")
    assert graph.stuck() == {("a", 1)}
    (link,) = graph.links(graph.chain(("a", 1), graph.stuck())[1], {"a": 11})
    assert str(link).splitlines()[0] == "A.go (pid 11) waits for f, which waits for the CPU of A.go (pid 11)"
    assert graph_of(waits, {"f": []}, lacking={"f": ["a", "b"]}, mains="a").stuck() == set()  # the other one may end
    assert graph_of(waits, {"f": []}, lacking={"f": ["a", ""]}, mains="a").stuck() == set()  # a placement group
    assert graph_of(waits, {"f": []}, lacking={"f": []}, mains="a").stuck() == set()
    assert graph_of(waits, {"f": []}, lacking={"f": ["a"]}).stuck() == set()  # an actor with other threads


def test_the_holders_of_what_a_task_lacks_are_asked() -> None:
    graph = WaitGraph(Places(lacking={"f": ["a", "b", ""]}))
    graph.learn("driver", [WaitRow(1, b"", "The driver", ("", 0, "", ""), [(b"f", "driver")], 0)], [], 0)
    assert graph.questions() == {"driver": [b"f"]}
    graph.learn("driver", [], [CallRow(b"f", "f", "", b"", [], [], 7)], 0)
    assert graph.questions() == {"a": [b"f"], "b": [b"f"]}


def test_only_what_was_stuck_before_is_stuck_in_a_second_look() -> None:
    graph = graph_of(RING, RING_CALLS)
    assert graph.stuck({("a", 1)}) == set()
    assert graph.stuck({("a", 1), ("b", 1), ("c", 9)}) == {("a", 1), ("b", 1)}


def test_a_long_chain_is_decided_in_linear_time() -> None:
    waits = {(f"p{each}", 1): (f"f{each}", [f"f{each + 1}"], 0) for each in range(3000)}
    calls: dict[str, list[WaitKey]] = {f"f{each}": [(f"p{each}", 1)] for each in range(1, 3000)}
    assert graph_of(waits, calls).stuck() == set()
    assert len(graph_of(waits, {**calls, "f3000": [("p0", 1)]}).stuck()) == 3000


def test_the_owner_of_a_call_is_asked_first_then_the_process_that_runs_it_and_each_once() -> None:
    graph = WaitGraph(Places(actors={b"B": "b"}))
    graph.learn("a", [WaitRow(1, b"t", "A.ping", ("", 0, "", ""), [(b"u", "owner")], 0)], [], 1)
    assert graph.questions() == {"owner": [b"u"]}
    assert graph.questions() == {}
    graph.learn("owner", [], [CallRow(b"u", "B.pong", "", b"B", [(b"v", "third")], [])], 0)
    assert graph.questions() == {"b": [b"u"], "third": [b"v"]}
    graph.learn("third", [], [CallRow(b"v", "f", "w", b"", [], [])], 0)
    assert graph.questions() == {"w": [b"v"]}
    assert graph.questions() == {}


LINKS = (
    WaitLink("A.ping", 11, "B.pong", "", "", "", 12, "/p.py", 6, "ping", "return get(b.pong.remote())"),
    WaitLink("B.pong", 12, "A.pong2", "", "A.ping", "", 11, "", 0, "", ""),
)


def test_the_text_of_a_chain_has_the_calls_the_processes_and_the_lines() -> None:
    graph = graph_of(RING, RING_CALLS)
    links = graph.links(graph.chain(("a", 1), graph.stuck())[1], {"a": 11, "b": 12})
    assert links[0]._replace(file="", line=0, function="", source="") == LINKS[0]._replace(file="", line=0, function="", source="")
    assert describe_chain(LINKS) == (
        "A.ping (pid 11) waits for B.pong (pid 12)\n"
        '  File "/p.py", line 6, in ping\n'
        "    return get(b.pong.remote())\n"
        "B.pong (pid 12) waits for A.pong2, which is queued behind A.ping (pid 11)"
    )


def test_the_error_pickles_with_its_chain() -> None:
    error = pickle.loads(pickle.dumps(DeadlockError(LINKS)))
    assert error.chain == LINKS
    assert [link.awaits for link in error.chain] == ["B.pong", "A.pong2"]
    assert str(error).startswith("This wait cannot end: these calls wait for each other.\nA.ping (pid 11) waits for B.pong (pid 12)")


@pytest.mark.parametrize("missing", [("a", 1), ("b", 1)])
def test_a_cycle_with_a_member_that_has_ended_meanwhile_is_none(missing: WaitKey) -> None:
    graph = graph_of({key: wait for key, wait in RING.items() if key != missing}, RING_CALLS)
    assert graph.stuck() == set()
