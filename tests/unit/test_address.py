"""The file that names the persistent session."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mray._ipc import reaper, sessions
from mray._joining import address


@pytest.fixture
def parent(tmp_path: Path) -> str:
    """Where sessions have their directories."""
    return str(tmp_path)


def test_who_withdraws_a_session_does_not_withdraw_the_next_one(parent, monkeypatch):
    old, new = os.path.join(parent, "session_old"), os.path.join(parent, "session_new")
    address.publish(old, os.getpid())
    is_published = reaper.is_published

    def look(directory: str) -> bool:
        found = is_published(directory)
        if directory == old and found:
            address.publish(new, os.getpid())  # the moment after
        return found

    monkeypatch.setattr(reaper, "is_published", look)
    reaper.withdraw(old)
    assert is_published(new)
    reaper.withdraw(new)
    assert not is_published(new)
    assert os.listdir(parent) == []


def test_a_link_in_place_of_the_file_is_not_followed(parent, tmp_path):
    session = tmp_path / "session_x"
    session.mkdir()
    lock = reaper.take_lock(str(session))
    assert lock is not None
    address.publish(str(session), os.getpid())
    assert address.running_in(parent) is not None
    shutil.move(tmp_path / "address", tmp_path / "elsewhere")
    (tmp_path / "address").symlink_to(tmp_path / "elsewhere")
    assert address.running_in(parent) is None
    reaper.release(lock)


def test_sessions_are_looked_for_where_they_are_made(monkeypatch):
    for place in ("/somewhere", "/somewhere" * 10):
        monkeypatch.setenv("MRAY_TMPDIR", place)
        assert sessions.session_parents() == [sessions.parent_of(place)]
