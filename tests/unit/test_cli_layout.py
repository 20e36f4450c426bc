"""The output of commands fits the terminal: numbers, ids and states stay whole, names give way and can be asked for as they are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mray.cli.columns import Column, begins, cut, fit, is_meant, lines
from mray.cli.commands.top import Screen, named_key, render, short_bytes
from mray.cli.samples import Sample
from mray.cli.terminal import table
from mray.util.state.common import GraphState, NodeState, WorkerState

LONG = "the-name-of-an-actor-{}-that-is-much-longer-than-any-column-of-a-terminal"


# ------------------------------------------------------------------------------------------------ columns
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), min_size=1, max_size=8), st.integers(1, 300))
def test_columns_shrink_as_far_as_needed_and_no_further(sizes: list[tuple[int, int]], room: int) -> None:
    natural, least = [wide for wide, _least in sizes], [min(wide, small) for wide, small in sizes]
    widths = fit(natural, least, room)
    assert all(small <= width <= wide for small, width, wide in zip(least, widths, natural, strict=True))
    if sum(natural) <= room:
        assert widths == natural
    elif sum(least) >= room:
        assert widths == least
    else:
        assert room - len(natural) < sum(widths) <= room
        # Columns that have shrunk are as wide as the widest, or nearly.
        assert all(width + len(natural) >= max(widths) for width, wide in zip(widths, natural, strict=True) if width < wide and width > 30)


@given(st.text("abcdef-", max_size=40), st.integers(0, 40))
def test_a_name_is_meant_by_what_is_shown_of_it(name: str, width: int) -> None:
    shown = cut(name, width)
    assert len(shown) <= max(width, 0)
    if len(shown) > 1:
        assert is_meant(shown, name)
    assert not is_meant(f"{shown}x", name)


def test_an_id_keeps_its_beginning() -> None:
    actor = "0123456789abcdef" * 2
    assert cut(actor, 13) == "0123456789ab…"
    assert begins("0123456789ab…", actor)
    assert not begins("012", actor)


def test_numbers_stand_below_each_other_and_long_texts_do_not_move_them() -> None:
    made = lines([Column("PID", True), Column("NAME", least=8), Column("SIZE", True)], [["7", LONG, "1 B"], ["12345", "b", "20.5 MiB"]], 40)
    assert [len(line) for line in made] == [40, 40, 40]
    assert [line[:5] for line in made] == ["  PID", "    7", "12345"]
    assert [line[-8:] for line in made] == ["    SIZE", "     1 B", "20.5 MiB"]


# ------------------------------------------------------------------------------------------------ tables
def rows(count: int = 3) -> list[dict[str, Any]]:
    return [
        {
            "task_id": f"{number:04x}" * 12, "name": LONG.format(number), "state": "PENDING_NODE_ASSIGNMENT", "type": "NORMAL_TASK",
            "func_or_class_name": "a" * 70, "object_size": "-" if not number else f"{number}.5 MiB", "worker_pid": 100 * number or None,
        }
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 132])
def test_a_table_fits_the_terminal_with_states_and_numbers_whole(width: int) -> None:
    made = table(rows(), "task_id", width).splitlines()
    assert max(map(len, made)) <= width
    assert all("PENDING_NODE_ASSIGNMENT" in line for line in made[1:4])
    assert "2.5 MiB" in made[3]
    assert "200" in made[3]
    assert made[1].startswith("0000")
    assert {line[:4] for line in made[1:4]} == {"0000", "0001", "0002"}


def test_a_table_says_which_columns_have_no_room() -> None:
    assert "(no room for " in table(rows(), "task_id", 80)
    assert "(no room for " not in table(rows(), "task_id", 300)


def test_through_a_pipe_names_are_whole() -> None:
    made = table(rows(), "task_id")
    assert all(LONG.format(number) in made for number in range(3))
    assert "0002" * 12 in made


def test_sizes_are_numbers_also_where_one_is_not_known() -> None:
    made = table(rows(), "task_id").splitlines()
    at = made[0].index("OBJECT_SIZE") + len("OBJECT_SIZE")
    assert [line[at - 7 : at] for line in made[1:]] == ["      -", "1.5 MiB", "2.5 MiB"]


# ------------------------------------------------------------------------------------------------ top
def sample(processes: int, graphs: int = 1, moment: float = 1.0) -> Sample:
    told = {"demands": [], "object_store_memory": 1 << 30, "jobs": [{"pid": 1, "end": None}]}
    view: Any = SimpleNamespace(node=told, directory=f"/tmp/session_{'x' * 100}", missing=[])
    node = NodeState(resources_total={"CPU": 4.0}, resources_available={"CPU": 4.0}, object_store_bytes=0)
    made = [WorkerState(worker_id="0", worker_type="DRIVER", pid=1, state="")]
    made += [
        WorkerState(
            worker_id=str(number), worker_type="WORKER", pid=4_000_000 + number, occupant="A" * 90,
            state="restarting" if number % 2 else "busy", name=LONG.format(number), current_task="A" * 80 + ".method",
            num_queued=12345, num_finished=int(1e6 * moment), cpu_seconds=3.0 * moment * number, rss_bytes=number << 21,
            pss_bytes=number << 20, object_store_bytes=number << 30,
        )
        for number in range(1, processes)
    ]  # fmt: skip
    row = GraphState(
        graph_id="c96e8f6feff24e18bfd0aece0e871e04", actors={"a": "Stage" * 20, "b": "Other"}, finished=int(1e6 * moment),
        in_flight=3, max_in_flight=10, state="ALIVE", waits="driver for " + "Stage" * 40, computing=["Stage.step"],
    )  # fmt: skip
    return Sample(moment, view, node, made, [row] * graphs)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_top_shows_pids_states_and_numbers_whole_at_any_width(width: int) -> None:
    made = [line for line, _style in render(sample(12, moment=2.0), sample(12), Screen(), width, None)]
    assert max(map(len, made)) <= width
    shown = [line.split() for line in made if line.startswith("40000")]
    assert len(shown) == 11
    assert [line[0] for line in shown] == [str(4_000_000 + number) for number in range(11, 0, -1)]
    assert {line[1] for line in shown} == {"restarting", "busy"}
    busiest = shown[0]
    rss = ["22.0M"] if width > 80 else []  # beside the memory where there is room
    assert busiest[2 : 7 + len(rss)] == ["3300", "11.0M", *rss, "11.0G", "1,000,000", "12345"]
    (graph,) = (line for line in made if line.startswith("c96e8f6f") and "ALIVE" in line)
    assert "1,000,000" in graph


def test_top_names_the_method_that_computed_at_most_looks() -> None:
    screen = Screen()
    now = sample(2)
    for computing in (["Stage.step"], ["Other.step"], ["Stage.step"], []):
        now.graphs[0]["computing"] = computing
        screen.note(now)
    assert screen.bottleneck(now.graphs[0]["graph_id"]) == "Stage.step 67%"
    assert screen.bottleneck("another") == ""


@pytest.mark.parametrize("height", [12, 24, 50])
def test_top_fits_the_window_and_scrolls_through_all_processes(height: int) -> None:
    now, before, screen = sample(60, moment=2.0), sample(60), Screen()
    seen: set[str] = set()
    for _ in range(60):
        made = [line for line, _style in render(now, before, screen, 80, height)]
        assert len(made) <= height
        assert made[-1].startswith(f"{screen.top + 1}-{screen.top + screen.shown} of 60 by CPU%")
        seen |= {line.split()[0] for line in made if line.startswith("40000")}
        assert screen.take_key("down") is False
    assert len(seen) == 59
    assert screen.top == 60 - screen.shown
    screen.take_key("home")
    assert screen.top == 0


def test_top_is_ordered_by_the_key_that_was_pressed() -> None:
    now, before, screen = sample(5, moment=2.0), sample(5), Screen()
    pids = {}
    for key in ("p", "m"):
        screen.take_key(key)
        pids[key] = [line.split()[0] for line, _style in render(now, before, screen, 80, 24) if line.startswith("40000")]
    assert pids["p"] == sorted(pids["m"]) == pids["m"][::-1]


@pytest.mark.parametrize(
    ("sent", "key"), [(b"q", "q"), (b"\x1b", "\x1b"), (b"\x1b[A", "up"), (b"\x1bOB", "down"), (b"\x1b[6~", "page down"), (b"\x1b[Z", "?")]
)
def test_keys_are_told_apart_from_the_key_that_ends(sent: bytes, key: str) -> None:
    assert named_key(sent) == key
    assert Screen().take_key(key) is (key in ("q", "\x1b"))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0B"), (999, "999B"), (1023, "1.0K"), (66 << 20, "66.0M"), (1000 << 20, "1.0G"), (250 << 30, "250G")]
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert short_bytes(count) == text
