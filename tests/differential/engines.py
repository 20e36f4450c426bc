"""Processes that play programs, one for each engine; they live until they are ill."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a session may take to start, and a program to end.
START, PROGRAM = 120.0, 150.0


class Engine:
    """One engine's player, started when it is needed."""

    def __init__(self, name: str, python: Path | str = sys.executable) -> None:
        self.name = name
        self.python = str(python)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        #: How many sessions it took so far.
        self.sessions = 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [self.python, "-m", "tests.differential.player"],
            cwd=ROOT,
            env={
                **os.environ,
                "DIFFERENTIAL_ENGINE": self.name,
                "PYTHONPATH": path,
                # Ray tells its state of tasks once a second.
                "RAY_task_events_report_interval_ms": "100",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.sessions += 1
        self._unread = b""
        if self._read_line(START) != b"ready":
            self.stop(hard=True)
            raise RuntimeError(f"no session of {self.name} started")

    def send(self, program: Any) -> None:
        """Have a program played; `receive` has what came out."""
        if self._process is None:
            self.start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(program).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # `receive` sees that it is over

    def receive(self) -> Any:
        """The outcomes of the program that was sent, or a word for why there are none."""
        line = self._read_line(PROGRAM)
        if not line:
            over = self._is_over()
            self.stop(hard=True)
            return "its driver died" if over else "it hung"
        answer = json.loads(line)
        if not answer["is_at_rest"]:
            self.stop()
        return answer["outcomes"]

    def _is_over(self) -> bool:
        assert self._process is not None
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            return False
        return True

    def play(self, program: Any) -> Any:
        self.send(program)
        return self.receive()

    def _read_line(self, patience: float) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        deadline = time.monotonic() + patience
        file = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([file], [], [], left)[0]:
                return b""
            read = os.read(file, 1 << 20)
            if not read:
                return b""
            self._unread += read
        line, _newline, self._unread = self._unread.partition(b"\n")
        return line

    def stop(self, *, hard: bool = False) -> None:
        """End its session."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        if not hard:
            try:
                process.stdin.close()
                process.wait(30)
            except (OSError, subprocess.TimeoutExpired):
                hard = True
        if hard:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        for pipe in (process.stdin, process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
