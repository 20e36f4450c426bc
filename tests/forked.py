"""Programs that are forked from an interpreter which has imported what they begin with: most of them would import for longer than they run.

    test ── words, folder, variables, files for what it prints ──▶ this file as a program ──▶ fork: becomes the program
         ◀── its pid, then its exit status ───────────────────────      └─fork──▶ template ──▶ nodes of the program's sessions

A line of JSON each way. A program whose interpreter has flags, a prompt or a terminal needs one of its own. Its sessions begin as those of
`mray run --libraries`: in a process that was forked from the program's before it has run a line of it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mray._ipc.process import show_variable
from tests.checkout import python_path

#: Modules of programs that start sessions, and of the processes of these.
OF_SESSIONS = (
    "numpy",
    "mray.dag",
    "mray._backends.native",
    "mray._backends.native_start",
    "mray._api.log_handlers",
    "mray._backends.entry",
    "mray._backends.graph_host",
    "mray._runtime.node.node",
    "mray._runtime.processes.zygote",
    "mray._runtime.session.session",
    "mray._backends.worker_main",
)


#: Characters of a variable that other processes see.
MARK_SIZE = 16
#: Points at which nothing happens.
NO_POINTS = '{"rules": []}'


class Program:
    """A program that was forked, for the process that has asked for it: as a `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], hear: Callable[[float | None], int]) -> None:
        self.returncode: int | None = None
        self._words = words
        self._hear = hear
        self.pid = hear(150)

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        if self.returncode is None:
            try:
                self.returncode = self._hear(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(list(self._words), timeout or 0) from None
        return self.returncode


class Interpreter:
    """The interpreter that programs are forked from."""

    def __init__(self, *imports: str, sessions: bool = True, shown: str = "", points: bool = False) -> None:
        """`sessions`: the programs start some. `shown`: a variable, as long as a mark, of which other processes see a program's own value.
        `points`: the modules stop at the points of each program.
        """
        environ = {**os.environ, "PYTHONPATH": python_path()}
        environ.update({shown: "-" * MARK_SIZE} if shown else {})
        environ.update({"MRAY_POINTS": NO_POINTS} if points else {})
        command = [sys.executable, __file__, *(OF_SESSIONS if sessions else ()), *imports]
        self._shown = shown
        # Without a buffer: a line in one would not be seen by who waits for the pipe.
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, start_new_session=True
        )

    def run(
        self,
        *words: str,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        timeout: float = 150,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of an interpreter with these words, a path or ``-m`` first, in a folder, with these variables."""
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            program = self.start(*words, folder=folder or Path.cwd(), environ=environ or os.environ, out=out.name, err=err.name)
            try:
                status = program.wait(timeout)
            except subprocess.TimeoutExpired:
                os.kill(program.pid, signal.SIGKILL)
                program.wait(timeout)
                raise subprocess.TimeoutExpired(list(words), timeout, out.read(), err.read()) from None
            done = subprocess.CompletedProcess(list(words), status, out.read(), err.read())
        if check:
            done.check_returncode()
        return done

    def start(self, *words: str, folder: Path, environ: Mapping[str, str], out: str, err: str) -> Program:
        """As `subprocess.Popen`, with files for what the program prints. The one before must have been waited for."""
        assert self._process.stdin is not None
        request = {"words": words, "folder": str(folder), "environ": dict(environ), "out": out, "err": err, "shown": self._shown}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        return Program(words, self.hear)

    def hear(self, timeout: float | None) -> int:
        """A line of the interpreter, which writes no other before it is asked again."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            raise TimeoutError
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and a program whose test has ended before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()


def become(words: list[str], folder: str, environ: dict[str, str], out: str, err: str, shown: str) -> None:
    """Be the program; does not return."""
    status: int | str | None = 1
    try:
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
            end = os.open(path, flags)
            os.dup2(end, number)
            os.close(end)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        if shown:
            show_variable(shown, environ[shown])
        is_module = words[0] == "-m"
        sys.path[0] = folder if is_module else os.path.dirname(os.path.abspath(words[0]))
        if points := sys.modules.get("mray.testing.points"):
            points._points = points._Points(json.loads(environ.get("MRAY_POINTS", NO_POINTS)))
        if OF_SESSIONS[-1] in sys.modules:
            split_off_template(with_points=points is not None)
        sys.argv = words[is_module:]
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    except BaseException:
        traceback.print_exc()
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    # As an interpreter ends, but for freeing all that it has imported.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))


def split_off_template(with_points: bool) -> None:
    """Have a process that nodes are forked from: an interpreter that begins to be one imports for most of what a session costs.

    There is none for sessions that are elsewhere, nor where processes of sessions begin with settings that this one began without.
    """
    from mray._backends import entry
    from mray._common import settings
    from mray._runtime.processes import line_coverage, template

    elsewhere = settings.BACKEND.get() != "native" or settings.ADDRESS.is_set()
    begin_otherwise = settings.AS_RAY.get() or settings.LIBRARIES.get() or (settings.POINTS.is_set() and not with_points)
    if not elsewhere and not begin_otherwise and line_coverage.request({}) is None:
        template.current = template.HeadStart()
        template.current.split_off(lambda options: entry.main("template", "-", "-", options))


def main() -> None:
    """Serve until there are no more requests."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(**json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
