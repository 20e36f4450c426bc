"""Files that processes of a session leave for each other, damaged: nobody fails over them."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mray._ipc.process import start_of
from mray._ipc.reaper import ADDRESS, remove_leftovers
from mray._runtime.joining import address
from mray._runtime.session import breakpoints
from tests.full import examples

odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def texts(facts: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """The file, cut off, with other values, with other bytes, or something else altogether."""
    whole = json.dumps(facts).encode()
    changed = st.fixed_dictionaries({}, optional=dict.fromkeys(facts, odd)).map(lambda values: json.dumps({**facts, **values}).encode())
    cut_off = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
    return changed | cut_off | st.binary() | odd.map(lambda value: json.dumps(value).encode())


ADDRESS_FACTS = {"session_dir": "/nowhere/session_x", "node_pid": 1, "node_start": 5, "versions": ["3.11", "1"]}


@settings(max_examples=examples(100), deadline=None)
@given(texts(ADDRESS_FACTS))
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
