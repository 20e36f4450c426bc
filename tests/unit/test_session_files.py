"""Files that processes of a session leave for each other, damaged: nobody fails over them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mray._ipc import sessions
from mray._ipc.process import start_of
from mray._ipc.reaper import ADDRESS, forget_port, new_lock, remove_leftovers, sweep
from mray._joining import address
from mray._runtime.session import breakpoints
from tests.full import examples

odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def texts(info: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """The file, cut off, with other values, with other bytes, or something else altogether."""
    whole = json.dumps(info).encode()
    changed = st.fixed_dictionaries({}, optional=dict.fromkeys(info, odd)).map(lambda values: json.dumps({**info, **values}).encode())
    cut_off = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
    return changed | cut_off | st.binary() | odd.map(lambda value: json.dumps(value).encode())


ADDRESS_INFO = {"session_dir": "/nowhere/session_x", "node_pid": 1, "node_start": 5, "versions": ["3.11", "1"]}


@settings(max_examples=examples(100), deadline=None)
@given(texts(ADDRESS_INFO))
def test_a_damaged_address_names_no_session(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ADDRESS).write_bytes(content)
        assert address.running_in(folder) is None


@settings(max_examples=examples(100), deadline=None)
@given(texts({"start": start_of(os.getpid()), "pid": os.getpid()}))
@example(b'{"start": null, "pid": ""}')
def test_a_damaged_note_of_a_breakpoint_is_passed_over(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as session:
        notes = Path(session, breakpoints.FOLDER)
        notes.mkdir()
        (notes / "stop.json").write_bytes(content)
        assert list(breakpoints.stops(session)) == []


def test_what_a_dead_process_owned_goes_and_what_it_made_for_others_is_named(tmp_path: Path) -> None:
    dead, owner, session = "d" * 16, "a" * 16, f"unit{os.getpid()}"
    prefix = f"mray-{session}-"
    own, made_for_owner = f"{prefix}{dead}-{owner}1", f"{prefix}{owner}-{dead}2"
    others = [f"{prefix}{owner}-{owner}3", f"mray-other-{dead}-4"]
    spilled = tmp_path / f"session_{session}" / "spilled"
    spilled.mkdir(parents=True)
    on_disk = [spilled / f"{dead}-{dead}5", spilled / f"{owner}-{dead}6"]
    files = [*(Path("/dev/shm", name) for name in (own, made_for_owner, *others)), *on_disk]
    try:
        for file in files:
            file.touch()
        made = remove_leftovers(str(spilled.parent), dead)
        assert made == {owner: [f"/{made_for_owner}", str(on_disk[1])]}
        assert [file.exists() for file in files] == [False, True, True, True, False, True]
    finally:
        for file in files:
            file.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------ host:port
def a_session(parent: Path, name: str) -> tuple[str, int]:
    """A session's directory, and the lock that says that it lives."""
    directory = parent / f"session_{name}"
    directory.mkdir()
    return str(directory), new_lock(str(directory))


def test_a_port_names_one_living_session_and_that_of_a_dead_one_may_be_taken_again(tmp_path: Path, monkeypatch: Any) -> None:
    parent = tmp_path / f"mray-{os.getuid()}"
    parent.mkdir(mode=0o700)
    monkeypatch.setenv("MRAY_TMPDIR", str(tmp_path))
    (first, lock), (second, other), (third, another) = (a_session(parent, name) for name in "abc")
    assert sessions.take_port(str(parent), first, "127.0.0.1", 6379)
    assert not sessions.take_port(str(parent), second, "127.0.0.2", 6379)
    assert sessions.take_port(str(parent), second, "fd00::2")
    assert sessions.directory_at("127.0.0.1:6379") == sessions.directory_at("localhost:6379") == first
    assert sessions.directory_at("198.51.100.7:6379") is sessions.directory_at("127.0.0.1:6380") is sessions.directory_at("auto") is None
    assert sessions.address_of(first) == "127.0.0.1:6379"
    assert sessions.address_of(second).startswith("[fd00::2]:") and sessions.directory_at(sessions.address_of(second)) == second
    os.close(lock)  # it has died
    assert sessions.directory_at("127.0.0.1:6379") is None
    assert sessions.take_port(str(parent), third, "127.0.0.1", 6379)
    assert sessions.directory_at("127.0.0.1:6379") == third
    forget_port(first)  # late: the port is another's by now
    assert sessions.directory_at("127.0.0.1:6379") == third
    forget_port(third)
    assert sessions.directory_at("127.0.0.1:6379") is None
    os.close(other)
    os.close(another)


def test_links_of_sessions_that_are_gone_are_swept_and_those_of_the_living_stay(tmp_path: Path) -> None:
    parent, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (parent, elsewhere):
        folder.mkdir(mode=0o700)
    (living, lock), (dead, of_dead), (gone, of_gone) = a_session(elsewhere, "a"), a_session(elsewhere, "b"), a_session(elsewhere, "c")
    for port, directory in enumerate((living, dead, gone), 7000):
        assert sessions.take_port(str(parent), directory, "127.0.0.1", port)
    os.close(of_dead)
    os.close(of_gone)
    shutil.rmtree(gone)
    sweep(str(parent))
    assert os.listdir(parent) == ["port-7000-127.0.0.1"]
    os.close(lock)
