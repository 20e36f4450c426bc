"""A process that asks for more shared memory than there is gets an error: no SIGBUS, no wait, nothing lost, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.crash import small_places
from tests.faults.crash.full_memory_program import SCENES, WITH_TORCH
from tests.full import full

PROGRAM = Path(__file__).with_name("full_memory_program.py")
ROOM = {small_places.SHM: "48m"}
pytestmark = pytest.mark.timeout(400)  # many attempts in one program


def failures(lines: list[str]) -> dict[str, int]:
    """How often each scene failed before it succeeded."""
    return {name: int(count) for word, name, count in (line.split() for line in lines if line.startswith("failed "))}


def check(lines: list[str], names: list[str]) -> None:
    assert lines[-1] == "nothing left"
    assert sorted(failures(lines)) == sorted(names)
    # A value of some 70 pages has no room until there are so many, or one that a process has kept from the scene before to use it again.
    assert sum(count >= 5 for count in failures(lines).values()) >= max(1, len(names) - 2), lines


def test_every_demand_for_shared_memory_that_is_full_is_refused_and_granted_once_there_is_room() -> None:
    names = [scene.__name__ for scene in SCENES if scene.__name__ not in WITH_TORCH]
    check(small_places.run(PROGRAM, "refuse", "quick", *names, places=ROOM), names)


@full  # every number of free pages
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scene", [scene.__name__ for scene in SCENES])
def test_with_every_number_of_free_pages_a_demand_is_refused_or_granted(scene: str) -> None:
    if scene in WITH_TORCH:
        pytest.importorskip("torch")
    lines = small_places.run(PROGRAM, "refuse", "full", scene, places=ROOM, seconds=1400)
    assert lines[-1] == "nothing left"
    # How often depends on what processes let go of meanwhile.
    assert failures(lines).keys() == {scene} and failures(lines)[scene] > 0, lines


def test_objects_go_to_disk_whatever_room_is_left_in_memory() -> None:
    names = ["put", "two_results_of_a_task", "result_of_an_actor", "stream"]
    lines = small_places.run(PROGRAM, "spill", "quick", *names, places=ROOM)
    assert lines[-1] == "nothing left"
    assert failures(lines) == dict.fromkeys(names, 0)


def test_a_session_cannot_start_without_shared_memory_and_says_so() -> None:
    lines = small_places.run(PROGRAM, "start", "quick", places=ROOM)
    assert lines[-1] == "nothing left"
    assert lines.count("refused") >= 3
    assert lines[-2] == "started"
