"""Where there is no shared memory, or none can be made, whatever needs it says so in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crash import small_places

PROGRAM = Path(__file__).with_name("no_memory_program.py")
READ_ONLY = "mray needs shared memory, and /dev/shm is mounted read-only. As root: mount -o remount,rw /dev/shm."
FULL = "shared memory is full: "
SHORT = "File too large: process "


def said(scene: str) -> list[tuple[str, str]]:
    """(demand, what came of it) as the program prints them."""
    lines = small_places.run(PROGRAM, scene, places={"/dev/shm": "32m"})
    return [(what, text) for what, _colon, text in (line.partition(": ") for line in lines)]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("missing", "and /dev/shm does not exist (No such file or directory). As root: mount one: "),
        ("read_only", READ_ONLY),
        ("full", FULL),
    ],
)
def test_a_session_does_not_start_and_says_why(scene: str, expected: str) -> None:
    ((what, text),) = said(scene)
    assert what == "init"
    assert text.startswith("RaySystemError: System error: a session cannot start: ")
    assert expected in text
    assert "Traceback" not in text and "log ends" not in text


def test_shared_memory_that_becomes_read_only_is_named() -> None:
    found = said("read_only_later")
    assert [what for what, _text in found] == ["init", "put", "result", "compile", "compile"]
    assert found[0][1] == "well"
    assert all(READ_ONLY in text for _what, text in found[1:])
    assert found[1][1].startswith("OSError: ")
    assert all("the channels of the graph: " in text for what, text in found if what == "compile")


def test_a_limit_on_files_is_named_where_it_is_reached() -> None:
    found = dict(said("short_files"))
    assert [what for what, text in found.items() if text == "well"] == ["init", "compile", "small result", "small input"]
    assert all(SHORT in text and "Raise the limit (ulimit -f)" in text for text in found.values() if text != "well")
    assert "the edge from actor " in found["large result"] and ".make to the driver: " in found["large result"]
    assert "the edge from the driver to actor " in found["large input"]


def test_an_edge_of_a_graph_without_room_is_named_and_nothing_that_is_not_so() -> None:
    found = dict(said("filled"))
    assert [what for what, text in found.items() if text == "well"] == [
        *("init", "put", "result", "compile", "small result", "small input")
    ], "objects go to disk"
    for what in ("large result", "large input"):
        assert FULL in found[what]
        assert "in scope and cannot be evicted" not in found[what]
        assert "Traceback" not in found[what] or "No space left" not in found[what], "one error, not two"
    assert ".make to the driver: shared memory is full" in found["large result"]
    assert found["large input"].startswith("ObjectStoreFullError: the edge from the driver to actor ")
