"""Sessions that are made to break, seen from outside.

A driver under test is a program of its own (`program.py`). It and all that it starts carry a variable of their own in the
environment, and its sessions live in a directory of their own, so that every process, name and file of the session can be
found when whoever should have cleaned up is dead.

It is forked from an interpreter that has imported mray (`tests.forked`), and its node from a process that it has forked before its first
line. Where the file says ``ANEW = True`` both are started by exec.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mray._ipc.process import all_pids, carrying
from tests.checkout import python_path
from tests.forked import Interpreter, Program

MARK = "MRAY_CRASH_MARK"
PROGRAM = Path(__file__).with_name("program.py")
#: Seconds after which what should come about counts as never coming about.
PATIENCE = 60.0


class Run:
    """One driver program, and what can be seen of its session."""

    def __init__(self, folder: Path, patience: float = PATIENCE, anew: bool = False) -> None:
        """`anew`: by an interpreter of its own."""
        self.folder = folder
        self._anew = anew
        self.patience = patience
        self.mark = secrets.token_hex(8)
        self.sessions = Path(tempfile.mkdtemp(prefix="mc", dir="/tmp"))
        self.tokens: set[str] = set()
        self.process: subprocess.Popen[str] | Program | None = None

    # -- the program ---------------------------------------------------------------------------
    def start(self, *words: str, program: Path = PROGRAM, env: dict[str, str] | None = None, before: Sequence[str] = ()) -> None:
        """`before`: what goes before the command."""
        environment = dict(os.environ, **{MARK: self.mark, "MRAY_TMPDIR": str(self.sessions)}, **(env or {}))
        environment["PYTHONPATH"] = python_path(environment.get("PYTHONPATH"))
        if not (self._anew or before or "PYTHONPATH" in (env or {})):
            out, err = (str(self.folder / name) for name in ("stdout", "stderr"))
            for path in (out, err):
                Path(path).write_text("")
            words = (str(program), *words, str(self.folder))
            self.process = _interpreters["MRAY_POINTS" in (env or {})].start(
                *words, folder=self.folder, environ=environment, out=out, err=err
            )
            return
        with (self.folder / "stdout").open("w") as stdout, (self.folder / "stderr").open("w") as stderr:
            self.process = subprocess.Popen(
                [*before, sys.executable, str(program), *words, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
                env=environment,
                cwd=self.folder,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def output(self) -> str:
        """The output of the program, if it was started."""
        said = [(path.name, path.read_text()) for path in (self.folder / "stdout", self.folder / "stderr") if path.exists()]
        return "\n".join(f"--- {name}\n{text}" for name, text in said)

    def wait(self) -> int:
        """Exit status of the program; fails if it hangs."""
        assert self.process is not None
        try:
            return self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the driver hangs; living processes: {self.processes()}\n{self.output()}")

    def said(self) -> dict[str, str]:
        """The reports of the program: lines ``KEY text``, the last of each key."""
        lines = (self.folder / "stdout").read_text().splitlines()
        return {key: text for key, _, text in (line.partition(" ") for line in lines)}

    def wait_for(self, name: str) -> str:
        """Contents of a file that the program makes when it gets there."""
        path = self.folder / name
        deadline = time.monotonic() + self.patience
        while not path.exists():
            if self.process is not None and self.process.poll() is not None:
                pytest.fail(f"the driver ended with {self.process.returncode} before {name}\n{self.output()}")
            if time.monotonic() > deadline:
                pytest.fail(f"{name} did not come about; living processes: {self.processes()}\n{self.output()}")
            time.sleep(0.002)
        self.note_sessions()
        return path.read_text()

    def tell(self, name: str) -> None:
        """Make a file that the program waits for."""
        (self.folder / name).touch()

    # -- its session ---------------------------------------------------------------------------
    def note_sessions(self) -> None:
        for path in self.paths():
            if path.name.startswith("session_"):
                self.tokens.add(path.name.rpartition("_")[2])

    def paths(self) -> list[Path]:
        """Everything below the folder of its sessions; what goes while this looks is passed over."""
        return [Path(folder, name) for folder, names, files in os.walk(self.sessions) for name in (*names, *files)]

    def processes(self) -> dict[int, str]:
        """Living processes of the run, the program included, but for the one that its nodes are forked from: pid to title."""
        return {pid: title for pid, title in self._all_processes().items() if title != "ray::template"}

    def _all_processes(self) -> dict[int, str]:
        found = {}
        for pid in carrying(MARK, self.mark, all_pids()):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def pid_of(self, role: str) -> int:
        """The process of this role, ``node`` or ``zygote``."""
        deadline = time.monotonic() + self.patience
        while True:
            pids = [pid for pid, title in self.processes().items() if title.split(" ")[0] == f"ray::{role}"]
            if pids:
                return pids[0]
            if time.monotonic() > deadline:
                pytest.fail(f"no {role} among {self.processes()}")
            time.sleep(0.005)

    def kill(self, pid: int) -> None:
        """End a process of the run (SIGKILL). It has ended when this returns."""
        pidfd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            assert select.select([pidfd], [], [], self.patience)[0], f"{pid} does not end"
        finally:
            os.close(pidfd)

    def left(self) -> list[str]:
        """A description of all that is left of the run."""
        left = [f"process {pid} {title}" for pid, title in self._all_processes().items()]
        names = os.listdir("/dev/shm")
        left += [f"shared memory {name}" for name in names if any(token in name for token in self.tokens)]
        left += [f"file {path}" for path in self.paths() if path.name.startswith("session_") or path.suffix == ".sock"]
        return left

    def assert_nothing_left(self) -> None:
        deadline = time.monotonic() + self.patience / 2
        while left := self.left():
            if time.monotonic() > deadline:
                pytest.fail("left behind:\n  " + "\n  ".join(left) + "\n" + self.output())
            time.sleep(0.005)

    def close(self) -> None:
        """No process or file of the run survives the test, in any case."""
        for pid in self._all_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process is not None:
            self.process.wait(self.patience)
        for name in os.listdir("/dev/shm"):
            if any(token in name for token in self.tokens):
                Path("/dev/shm", name).unlink(missing_ok=True)
        shutil.rmtree(self.sessions, ignore_errors=True)


#: The interpreters that drivers are forked from, without and with points.
_interpreters: dict[bool, Interpreter] = {}


def pytest_collection_finish(session: pytest.Session) -> None:
    """They are there before a test counts its belongings."""
    here = Path(__file__).parent
    texts = [path.read_text() for path in {item.path for item in session.items} if here in path.parents]
    for points, word in ((False, "run"), (True, "MRAY_POINTS")):
        if points not in _interpreters and any(word in text for text in texts):
            _interpreters[points] = Interpreter(shown=MARK, points=points)
            session.config.add_cleanup(_interpreters[points].close)


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A driver program that is not started yet."""
    run = Run(tmp_path, anew=getattr(request.module, "ANEW", False))
    yield run
    run.close()


@pytest.fixture
def run_text(run: Run) -> Callable[..., Run]:
    """Starts a driver program given as text; its last argument is the test's folder."""

    def start(text: str, *words: str, env: dict[str, str] | None = None) -> Run:
        import textwrap

        path = run.folder / "program.py"
        path.write_text(textwrap.dedent(text))
        run.start(*words, program=path, env=env)
        return run

    return start
