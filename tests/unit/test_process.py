"""Processes as the kernel has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mray._ipc import process, reaper
from mray.pytest_plugin import leaks


def test_variables_are_expanded():
    assert process.expand("a:${X}:${NO}:${no}:$X:${", {"X": "1"}) == "a:1::${no}:$X:${"


def test_variables_may_refer_to_each_other_and_to_what_they_were():
    given = {"B": "${A}b", "A": "${A}a", "C": "c", "D": "${E}", "E": "${D}e"}
    assert process.expand_all(given, {"A": "0"}) == {"B": "0ab", "A": "0a", "C": "c", "D": "", "E": "e"}


def test_a_process_ends_with_the_last_writer_whatever_it_does(eventually):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write_end)
        process.die_with(read_end)
        while True:
            pass
    os.close(read_end)
    os.close(write_end)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_process_that_comes_too_late_ends_as_well():
    read_end, write_end = os.pipe()
    os.close(write_end)
    pid = os.fork()
    if not pid:
        process.die_with(read_end)
        os._exit(0)
    os.close(read_end)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_the_title_is_shown_and_may_be_long():
    code = "import sys; from mray._ipc.process import Title as T; T().set(input()); print('set', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, " " * 300], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin
    assert child.stdout
    with child:
        child.stdin.write("f" * 400 + "\n")
        child.stdin.flush()
        assert child.stdout.readline() == "set\n"
        shown = Path(f"/proc/{child.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert shown == b"ray::" + b"f" * (process.TITLE_ROOM - 6)
        assert Path(f"/proc/{child.pid}/comm").read_text() == "ray::ffffffffff\n"
        assert process.with_variable("MRAY_TEST_MARK", os.environ["MRAY_TEST_MARK"]).count(child.pid) == 1
        child.stdin.close()


FORKED = """
import os, sys
from mray._ipc import process
pid = os.fork()
if not pid:
    process.make_room("MRAY_TEST_PLACE", 40)
    process.Title().set("short")
    print(os.popen("echo $MRAY_TEST_OWN $MRAY_TEST_PLACE").read().strip(), flush=True)
    sys.stdin.readline()
    process.show_variable("MRAY_TEST_PLACE", "/here")
    process.Title().set("f" * 400)
    print("set", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_forked_process_has_room_for_a_title_and_a_variable():
    own = {**os.environ, "MRAY_TEST_OWN": "own", "MRAY_TEST_LONG": "x" * 600}
    child = subprocess.Popen([sys.executable, "-c", FORKED], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin
    assert child.stdout
    with child:
        assert child.stdout.readline() == f"own {'-' * 40}\n"  # a child of the process has the variables
        (pid,) = process.with_variable("MRAY_TEST_PLACE", "-" * 40)
        assert process.shown_title(pid) == "short"
        assert pid in process.with_variable("MRAY_TEST_OWN", "own")
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "set\n"
        assert process.with_variable("MRAY_TEST_PLACE", "/here") == [pid]
        assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == b"ray::" + b"f" * (process.TITLE_ROOM - 6)
        child.stdin.close()


def test_a_forked_process_with_few_variables_has_no_room():
    code = "from mray._ipc import process; process.check_room('MRAY_TEST_PLACE', 256)"
    done = subprocess.run([sys.executable, "-c", code], env={"A": "1"}, capture_output=True, text=True, check=False)
    assert "OSError: there is no room for a title and the variable MRAY_TEST_PLACE" in done.stderr


def test_processes_that_have_just_begun_a_program_are_found():
    """In the middle of an exec the kernel shows no environment."""
    for number in range(300):
        with subprocess.Popen(["sleep", "1000"], env={**os.environ, "MRAY_TEST_NUMBER": str(number)}) as child:
            try:
                assert process.with_variable("MRAY_TEST_NUMBER", str(number)) == [child.pid]
            finally:
                child.kill()


def test_nobody_waits_for_the_environment_of_a_process_that_has_none(monkeypatch):
    monkeypatch.setattr(process, "sleep", lambda seconds: pytest.fail(f"it sleeps for {seconds} s"))
    start = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": {}}
    with subprocess.Popen([sys.executable, "-S", "-c", "print(flush=True); input()"], **start) as bare, subprocess.Popen(["true"]) as dead:
        assert bare.stdout.readline() == b"\n"
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert process.carrying("MRAY_TEST_NUMBER", "0", [bare.pid, dead.pid]) == []
        bare.stdin.write(b"\n")


def test_a_session_is_swept_only_when_its_lock_is_free(tmp_path: Path):
    dead = tmp_path / "session_x_1_0badcafe"
    alive = tmp_path / "session_x_2_0badcaff"
    for directory in (dead, alive):
        (directory / "logs").mkdir(parents=True)
        (directory / "logs" / "node.log").touch()
    segment = Path("/dev/shm/mray-0badcafe-x")
    segment.touch()
    lock = reaper.take_lock(str(alive))
    assert lock is not None
    assert reaper.take_lock(str(alive)) is None
    reaper.sweep(str(tmp_path))
    assert not dead.exists()
    assert not segment.exists()
    assert alive.exists()
    reaper.release(lock)
    reaper.sweep(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_child_of_a_fork_has_none_of_its_parents_locks(tmp_path: Path):
    lock = reaper.take_lock(str(tmp_path))
    assert lock is not None
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"there")
        signal.pause()
    assert os.read(read, 5) == b"there"
    assert reaper.take_lock(str(tmp_path)) is None
    reaper.release(lock)
    again = reaper.take_lock(str(tmp_path))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert again is not None
    reaper.release(again)


def test_of_a_session_in_another_namespace_of_pids_nothing_is_judged_by_its_pids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    here = f"/tmp/session_x_1_{reaper.new_session_mark()}"
    monkeypatch.setattr(reaper, "sees_all", lambda: False)
    assert reaper.is_of_this_namespace(here) and reaper.can_be_seen(reaper.session_of(here))
    mark = reaper.namespace_mark()
    monkeypatch.setattr(reaper, "namespace_mark", lambda: mark ^ 1)
    assert not reaper.is_of_this_namespace(here) and not reaper.can_be_seen(reaper.session_of(here))
    assert leaks.is_foreign(f"mray-{reaper.session_of(here)}-object")
    monkeypatch.setattr(reaper, "sees_all", lambda: True)
    assert reaper.can_be_seen(reaper.session_of(here))
    # The objects on disk of a session whose directory is not there for this process.
    elsewhere = tmp_path / "mray_spilled_objects_0badcafe"
    elsewhere.mkdir()
    (elsewhere / ".session").symlink_to(tmp_path / "session_x_1_0badcafe")
    session = tmp_path / f"session_x_2_{reaper.new_session_mark()}"
    session.mkdir()
    held = reaper.hold(str(elsewhere))
    reaper.spill_elsewhere(str(session), str(tmp_path))
    assert elsewhere.exists()
    (lock,) = held
    reaper.release(lock)
    (session / "spilled").unlink()
    (tmp_path / f"mray_spilled_objects_{reaper.session_of(str(session))}" / ".session").unlink()
    (tmp_path / f"mray_spilled_objects_{reaper.session_of(str(session))}").rmdir()
    reaper.spill_elsewhere(str(session), str(tmp_path))
    assert not elsewhere.exists()
