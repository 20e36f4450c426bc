"""A disk that is full, gone or tampered with: what needs it fails and says why, the rest goes on, and nothing half-written stays."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.crash import small_places

PROGRAM = Path(__file__).with_name("full_disk_program.py")
pytestmark = pytest.mark.timeout(400)  # many attempts in one program


@pytest.fixture
def check_scene() -> Iterator[Callable[..., list[str]]]:
    """Runs a scene of the program, whose last line says that nothing is left."""
    folder = Path(tempfile.mkdtemp(prefix="md", dir="/tmp"))
    objects, sessions = folder / "o", folder / "s"
    objects.mkdir()
    sessions.mkdir()

    def run(name: str, **variables: str) -> list[str]:
        places = {small_places.SHM: "5m", str(objects): "16m", str(sessions): "16m"}
        lines = small_places.run(PROGRAM, name, str(objects), str(sessions), places=places, MRAY_TMPDIR=str(sessions), **variables)
        assert lines[-1] == "nothing left"
        return lines

    yield run
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("capacity", ["0.95", "1e9"], ids=["seen before", "told by the kernel"])
def test_an_object_that_neither_memory_nor_disk_has_room_for_is_an_error_until_there_is_room(check_scene, capacity: str) -> None:
    check_scene("full", MRAY_LOCAL_FS_CAPACITY_THRESHOLD=capacity)


def test_objects_in_a_directory_that_somebody_removes_are_lost_and_no_others(check_scene) -> None:
    check_scene("removed")


def test_on_a_disk_that_may_not_be_written_to_objects_stay_readable_and_new_ones_are_refused(check_scene) -> None:
    check_scene("read_only")


def test_a_file_that_somebody_cuts_short_is_an_object_lost_and_never_sigbus(check_scene) -> None:
    check_scene("cut_short")


def test_a_session_goes_on_where_its_logs_cannot(check_scene) -> None:
    check_scene("sessions")


def test_a_session_that_cannot_start_for_want_of_room_on_disk_says_so_and_leaves_nothing(check_scene) -> None:
    lines = check_scene("starting")
    assert lines.count("refused") >= 5
