"""Another user of the machine can do nothing to a session. With a second user, so as root only."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mray
from mray._common import messages as m
from mray._ipc.connection import connect, encode
from mray._ipc.introductions import NODE_SOCKET
from mray._ipc.process import with_variable
from mray._ipc.reaper import SESSION_VARIABLE, session_of
from mray._ipc.segment import Segment, open_read_only
from mray._ipc.sessions import all_sessions
from mray.cli import checks
from tests.checkout import python_path
from tests.faults.surroundings.users import ATTACKER_ID, NOBODY, as_root_beside_nobody, attacked, needs_root

PROGRAM = Path(__file__).with_name("program.py")
SHM = Path("/dev/shm")
#: The first message of an observer of our own to a node; and a query that any process answers.
QUESTION = encode((m.HELLO, m.ROLE_OBSERVER, "", 1)) + encode((m.QUERY, 1, "snapshot", []))

pytestmark = needs_root


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder where everybody may make something, as in /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="mu", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def kinds(path: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """The folders, files and sockets at and below a path."""
    folders, files, sockets = [path], [], []
    for each in path.rglob("*"):
        mode = each.lstat().st_mode
        (folders if stat.S_ISDIR(mode) else sockets if stat.S_ISSOCK(mode) else files).append(each)
    return folders, files, sockets


@pytest.mark.parametrize("whose", ["root's", "nobody's"])
def test_another_user_gets_nowhere(place: Path, whose: str, eventually: Callable[..., None]) -> None:
    before = as_root_beside_nobody() if whose == "root's" else (*as_root_beside_nobody(), *NOBODY)
    secret = secrets.token_hex(16)
    environment = {**os.environ, "MRAY_TMPDIR": str(place), "PYTHONPATH": python_path(), "MEETING": str(place), "SECRET": secret}
    words = [*before, sys.executable, str(PROGRAM), "under_attack", str(place / "result")]
    with subprocess.Popen(words, env=environment, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
        try:
            eventually(lambda: (place / "there").exists() or program.poll() is not None)
            assert program.poll() is None, program.stderr and program.stderr.read()
            session = Path((place / "there").read_text())
            folders, files, sockets = kinds(session)
            memory = [each for each in SHM.iterdir() if session_of(str(session)) in each.name]
            assert [each.name for each in sockets] == [NODE_SOCKET], "its other sockets have no names"
            assert len(memory) >= 2, "an object and a graph"
            named = [each for each in (*folders, *files, *sockets, *memory) if not each.is_symlink()]  # a link's mode means nothing
            modes = {str(each): oct(each.lstat().st_mode & 0o777) for each in named}
            assert not {each: mode for each, mode in modes.items() if int(mode, 8) & 0o077}

            uid = session.stat().st_uid
            processes = [str(pid) for pid in _processes_of(session, uid)] + [str(program.pid)]
            assert len(processes) >= 5, "driver, node, zygote and workers"
            tries: list[tuple[str, object]] = [("rename", session.parent), ("rename", session)]
            tries += [(what, folder) for folder in (session.parent, *folders) for what in ("look", "rename", "create")]
            tries += [(what, each) for each in (*files, *memory) for what in ("read", "write", "truncate", "rename", "unlink")]
            tries += [("connect", each) for each in sockets]
            hidden = [("read", "environ"), ("look", "fd"), ("read", "mem")]
            tries += [(what, f"/proc/{pid}/{each}") for pid in processes for what, each in hidden]
            tries += [("end", pid) for pid in processes]
            shown = [("read", f"/proc/{pid}/{each}") for pid in processes for each in ("cmdline", "comm", "status")]
            taken = [(how, each) for each in memory for how in ("succeed", "squat")]
            with attacked([*tries, *shown, *taken]) as worked:
                gave = {where: text for _what, where, text in worked if where.startswith("/proc/")}
                assert len([each for each in worked if each[0] in ("succeed", "squat")]) == len(taken)
                worked = [each for each in worked if each[0] not in ("succeed", "squat")]
                assert [each for each in worked if each[1] not in {where for _what, where in shown}] == []
                assert len(gave) == len(shown)
                assert not [where for where, text in gave.items() if secret in text]

                # Even if the folders were open to all.
                for each in (session.parent, *folders):
                    each.chmod(0o755)
                for each in sockets:
                    each.chmod(0o777)
                with attacked(("connect", each) for each in sockets) as could:
                    assert len(could) == len(sockets)
                said = QUESTION.hex()
                with attacked(("converse", f"{each} {said}") for each in sockets) as answered:
                    assert answered == []
                for each in (*folders, session.parent):
                    each.chmod(0o700)
                (place / "over").touch()
                eventually((place / "result").exists)
                assert (place / "result").read_text() == "well"
        finally:
            (place / "over").touch()
            _out, errors = program.communicate()
    assert program.returncode == 0, errors
    assert not session.exists()


def _processes_of(session: Path, uid: int) -> list[int]:
    if uid == os.getuid():
        return with_variable(SESSION_VARIABLE, str(session))
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{SESSION_VARIABLE}={session}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("trap", ["make_folder", "make_open_folder", "make_link", "create", "listen"])
def test_a_folder_that_another_user_has_made_is_not_used(place: Path, trap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_TMPDIR", str(place))
    folder = place / f"mray-{os.getuid()}"
    with attacked([(trap, folder)]) as worked:
        assert worked
        was = sorted(os.listdir(folder)) if folder.is_dir() else []
        with pytest.raises(PermissionError, match="must be a directory of this user"):
            mray.init()
        assert (sorted(os.listdir(folder)) if folder.is_dir() else []) == was


def test_what_lies_in_a_folder_of_another_user_is_not_looked_at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_TMPDIR", str(place))
    folder = place / f"mray-{os.getuid()}"
    with attacked([("make_open_folder", folder), ("make_open_folder", folder / "session_x"), ("create", folder / "address")]) as worked:
        assert len(worked) == 3
        assert all_sessions() == []
        with pytest.raises(ConnectionError):
            mray.init(address="auto")
        assert sorted(os.listdir(folder)) == ["address", "session_x"]


def test_a_place_where_every_user_may_rename_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_TMPDIR", str(place / "below"))
    place.chmod(0o777)
    with pytest.raises(PermissionError, match="every user may rename the entries of"):
        mray.init()


def test_memory_that_another_user_has_put_in_the_place_of_ours_is_not_opened() -> None:
    name = f"/mray-{secrets.token_hex(4)}-q"
    with attacked([("create", f"{SHM}{name}")]) as worked:
        assert worked
        try:
            for open_it in (Segment.open, open_read_only, lambda name: Segment.open(name, writable=True)):
                with pytest.raises(FileNotFoundError, match="belongs to another user"):
                    open_it(name)
        finally:
            os.unlink(f"{SHM}{name}")


def test_memory_of_another_user_is_no_left_over() -> None:
    name = f"mray-{secrets.token_hex(4)}-table"
    with attacked([("create", SHM / name)]) as worked:
        assert worked
        try:
            assert name not in checks.left_over().segments
            os.chown(SHM / name, 0, 0)
            assert name in checks.left_over().segments
        finally:
            (SHM / name).unlink()


def test_a_socket_of_another_user_is_not_spoken_to(place: Path) -> None:
    with attacked([("listen", place / "node.sock")]) as worked:
        assert worked
        assert (place / "node.sock").stat().st_uid == ATTACKER_ID
        with pytest.raises(PermissionError, match="belongs to another user"):
            connect(str(place / "node.sock"))
