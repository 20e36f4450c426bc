"""The runner of the crash matrix: brings a row about, does from outside what is to be done from outside, and sees what is left.

In the process of the tests, which never has a session itself. Drivers are forked from a nursery, so that none pays for its imports
(see `tests.faults.crash.matrix_program`). One driver's session serves many rows: that a worker's death leaves it usable is the very point.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import python_path
from tests.faults.crash.harm import GO, OBEYED, ORDERS, WAITING

#: Seconds after which what should come about counts as never coming about.
PATIENCE = 60.0
#: Manners that end a process at once, and those that leave a process alive and of no use.
DEADLY = ("os._exit", "exec", "SIGSEGV", "SIGKILL", "SIGTERM", "stopped")
SPOILS = ("memory", "files")


def _memory_in_use(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


#: By manner, the limit that makes another process feel it.
LIMITS: dict[str, Callable[[int], tuple[int, tuple[int, int]]]] = {
    "memory": lambda pid: (resource.RLIMIT_AS, (_memory_in_use(pid), resource.RLIM_INFINITY)),
    "files": lambda pid: (resource.RLIMIT_NOFILE, (3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1])),
}


def until(condition: Callable[[], Any], what: str, event_log: Callable[[], str] = str) -> Any:
    """Wait for the world."""
    deadline = time.monotonic() + PATIENCE
    pause = 0.0005
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"did not come about: {what}\n{event_log()}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
    return found


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process, "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_gone(pid: int) -> bool:
    return state_of(pid) in ("", "Z", "X")


def _title_of(pid: int) -> str:
    """The title of a process, "" when there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class Gate:
    """Where a process says that it has come into the phase."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(where)
        self._listener.listen(8)
        self._late = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._late.bind(where + ".late")
        self._late.listen(8)
        self._inside: socket.socket | None = None

    def wait(self, driver: Drive, *, afterwards: bool = False) -> dict[str, Any]:
        """The process in the phase: its pid, and its name in the session.

        Fails when the row is over without, unless the phase comes `afterwards`.
        """
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if not afterwards:
            poll.register(driver.socket, select.POLLIN)
        ready = dict(poll.poll(PATIENCE * 1000))
        if self._listener.fileno() not in ready:
            pytest.fail(f"nobody came into the phase; {driver.event_log(answer=bool(ready))}")
        self._inside, _ = self._listener.accept()
        self._listener.close()
        return json.loads(self._inside.makefile("r").readline())  # type: ignore[no-any-return]

    def order(self, word: str) -> None:
        """Tell who is in the phase what to do; it may be dead."""
        assert self._inside is not None
        try:
            self._inside.sendall(word.encode())
        except OSError:
            pass

    def open(self) -> None:
        """Nobody waits here any more."""
        self._listener.close()
        self._late.close()
        for path in (self.where, self.where + ".late", self.where + OBEYED, self.where + ".late" + WAITING):
            Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        self.open()
        if self._inside is not None:
            self._inside.close()


class Nursery:
    """The process that drivers are forked from."""

    def __init__(self, environment: dict[str, str]) -> None:
        variables = {**os.environ, **environment}
        variables["PYTHONPATH"] = python_path()
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.faults.crash.matrix_program import main; main()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables, cwd="/",
        )  # fmt: skip

    def ask(self, *words: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery has ended"
        return int(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


class Drive:
    """One driver, and what can be seen of its session."""

    def __init__(self, nursery: Nursery, *preload: str) -> None:
        self._nursery = nursery
        self.folder = Path(tempfile.mkdtemp(prefix="mm", dir="/tmp"))
        self.sessions = self.folder / "s"
        self.sessions.mkdir(0o700)
        self.status: int | None = None
        self.tokens: set[str] = set()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self.folder / "control"))
            listener.listen(1)
            self.pid = nursery.ask("fork", str(self.folder), str(self.sessions))
            self.socket, _ = listener.accept()
        self._lines = self.socket.makefile("r")
        self._numbers = 0
        self.pids = {"driver": self.pid}
        self.started = self.ask("start", *preload)
        if "error" not in self.started:
            self.pids |= self.ask("pids")["pids"]
            self.note_sessions()

    # -- talking -------------------------------------------------------------------------------
    def tell(self, verb: str, *words: Any) -> None:
        self.socket.sendall(json.dumps([verb, *words]).encode() + b"\n")

    def answer(self) -> dict[str, Any] | None:
        """The driver's next line; None when it has ended."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if not poll.poll(PATIENCE * 1000):
            pytest.fail(f"the driver hangs; {self.event_log()}")
        try:
            line = self._lines.readline()
        except ConnectionError:
            return None
        if not line:
            return None
        answer: dict[str, Any] = json.loads(line)
        if "broken" in answer:
            pytest.fail(f"{answer['broken']}\n{self.event_log()}")
        return answer

    def ask(self, verb: str, *words: Any) -> dict[str, Any]:
        self.tell(verb, *words)
        answer = self.answer()
        if answer is None:
            pytest.fail(f"the driver has ended at {verb!r}; {self.event_log()}")
        return answer

    def gate(self) -> Gate:
        self._numbers += 1
        return Gate(str(self.folder / f"gate{self._numbers}"))

    def event_log(self, *, answer: bool = False) -> str:
        said = self._lines.readline() if answer else ""
        texts = [f"--- {name}\n{(self.folder / name).read_text()}" for name in ("stdout", "stderr")]
        return f"living processes: {self.processes()}\n{said}\n" + "\n".join(texts)

    # -- looking -------------------------------------------------------------------------------
    def zygote(self) -> int:
        """The zygote as it is now: it is another one when the first has died."""

        def find() -> int:
            for children in Path(f"/proc/{self.pids['node']}/task").glob("*/children"):
                for pid in children.read_text().split():
                    if _title_of(int(pid)).startswith("ray::zygote") and not is_gone(int(pid)):
                        return int(pid)
            return 0

        return int(until(find, "a zygote", self.event_log))

    def paths(self) -> list[Path]:
        """Everything below the folder of its sessions; what goes while this looks is passed over."""
        return [Path(folder, name) for folder, names, files in os.walk(self.sessions) for name in (*names, *files)]

    def note_sessions(self) -> None:
        self.tokens |= {path.name.rpartition("_")[2] for path in self.paths() if path.name.startswith("session_")}

    def processes(self) -> dict[int, str]:
        """Living processes of the session, and the driver: pid to title."""
        needle = f"MRAY_TMPDIR={self.sessions}\0".encode()
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                if int(entry) != self.pid and needle not in Path(f"/proc/{entry}/environ").read_bytes():
                    continue
                if not is_gone(int(entry)):
                    found[int(entry)] = _title_of(int(entry))
            except OSError:
                continue
        return found

    def names(self) -> list[str]:
        """The session's names in shared memory."""
        return [name for name in os.listdir("/dev/shm") if any(token in name for token in self.tokens)]

    def left_of(self, process: str) -> list[str]:
        """Leftovers of a dead process of the session: names of segments that it owned."""
        return [name for name in self.names() if f"-{process}-" in name]

    def left(self) -> list[str]:
        """A description of all that is left of the scene."""
        left = [f"process {pid} {title}" for pid, title in self.processes().items() if pid != self.pid]
        left += [f"shared memory {name}" for name in self.names()]
        left += [f"file {path}" for path in self.paths() if path.name.startswith("session_") or path.suffix == ".sock"]
        return left

    def wait(self) -> int:
        """The driver's exit status; it is ending."""
        if self.status is None:
            until(lambda: is_gone(self.pid), "the end of the driver", self.event_log)
            self.status = self._nursery.ask("wait", self.pid)
        return self.status

    def assert_nothing_left(self) -> None:
        until(lambda: not self.left(), "nothing of the session is left", lambda: "\n".join(self.left()))

    def end(self, *, ends: bool = True) -> dict[str, Any]:
        """End the session in order, and the driver if it `ends` by itself then; what it had left."""
        left = self.ask("end")
        self.assert_nothing_left()
        if ends:
            self.socket.shutdown(socket.SHUT_RDWR)
            assert self.wait() == 0
        return left

    def close(self) -> None:
        """Nothing survives, in any case."""
        for pid in [*self.processes()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.socket.close()
        self._lines.close()
        self.wait()
        for name in self.names():
            Path("/dev/shm", name).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- rows ----------------------------------------------------------------------------------
    def play(self, seat: str, phase: str, manner: str, victims: tuple[str, ...], *, opens: bool) -> tuple[dict[str, Any], Any]:
        """Bring the seat into the phase and harm the victims, of which it may be one; who it was, and what the driver says afterwards.

        `opens`: what was begun beside it goes on; else it waits until whoever waits for it has been told.
        """
        gate = self.gate()
        pids = {**self.pids, "zygote": self.zygote()}
        stops = phase == "shutdown" and seat == "driver"
        asleep = stops or phase == "get" or (phase == "teardown" and seat != "actor")
        try:
            if stops:  # the driver is to wait for it
                os.kill(pids["node"], signal.SIGSTOP)
                until(lambda: state_of(pids["node"]) == "T", "the stop of the node")
            self.tell("play", seat, phase, gate.where, manner in SPOILS)
            info = gate.wait(self, afterwards=phase == "shutdown")
            pids["seat"] = pids[seat] = info["pid"]
            if manner in ORDERS and seat in victims and len(victims) == 1:
                gate.order(manner)
                if asleep:  # else what it waits for might come before it has seen the signal
                    until(Path(gate.where + OBEYED).exists, "the order to be carried out", self.event_log)
            else:
                harm_from_outside(manner, [pids[victim] for victim in victims])
                if stops and manner in ("SIGSEGV", "SIGTERM"):  # which a stopped process takes when it goes on
                    os.kill(pids["node"], signal.SIGCONT)
                if manner not in DEADLY or {seat, "node", "driver"}.isdisjoint(victims):
                    gate.order(GO)
            if stops and not ("node" in victims and manner in DEADLY):
                os.kill(pids["node"], signal.SIGCONT)
            if manner in DEADLY:
                for victim in victims:
                    until(lambda pid=pids[victim]: is_gone(pid), f"the end of the {victim}", self.event_log)  # type: ignore[misc]
            if opens or phase == "collective":
                gate.open()
            answer = self.answer()
        finally:
            gate.close()
        return {**info, "pids": pids}, answer


def harm_from_outside(manner: str, pids: list[int]) -> None:
    """Do to these processes what others can do to them; all of them before any of them can look at another one's end."""
    if manner == "stopped":
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            until(lambda pid=pid: state_of(pid) in ("T", "Z", ""), f"the stop of {pid}")  # type: ignore[misc]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    elif manner in LIMITS:
        for pid in pids:
            resource.prlimit(pid, *LIMITS[manner](pid))
    else:
        for pid in pids:
            os.kill(pid, getattr(signal, manner))
