"""`breakpoint()` in tasks and actors: at the driver's terminal, through `mray debug`, or an error where nobody could come."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.checkout import python_path

pytestmark = pytest.mark.only("mray")


PROGRAM = """
import sys
import mray

mray.init(num_cpus=2, logging_level="ERROR")

@mray.remote(max_retries=0)
def task():
    value = 41
    breakpoint()
    value += 1
    return value

@mray.remote
class Actor:
    def method(self):
        mine = "of the actor"
        mray.util.pdb.set_trace()
        return mine
"""


def environment_of(changes):
    return {**os.environ, "PYTHONPATH": python_path(), "PYTHON_COLORS": "0", **changes}


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, eventually, words, folder, env=None):
        self._eventually = eventually
        self.text = ""
        environment = environment_of(env or {})
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.chdir(folder)
            os.execve(words[0], words, environment)

    def expect(self, pattern):
        """Read until the text holds this; returns what stood before it, and forgets both."""

        def there():
            ready, _, _ = select.select([self._fd], [], [], 0)
            if ready:
                try:
                    self.text += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:
                    assert re.search(pattern, self.text), f"ended without {pattern!r}: {self.text}"
            return re.search(pattern, self.text)

        self._eventually(there, what=f"{pattern!r} in {self.text!r}")
        match = re.search(pattern, self.text)
        before, self.text = self.text[: match.end()], self.text[match.end() :]
        return before

    def type(self, line):
        os.write(self._fd, line.encode() + b"\n")

    def interrupt(self):
        os.write(self._fd, b"\x03")

    def end(self):
        """The exit code."""
        try:
            while os.read(self._fd, 65536):
                pass
        except OSError:
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def program(tmp_path):
    """Writes a program and gives its words."""

    def program(body):
        (tmp_path / "program.py").write_text(PROGRAM + textwrap.dedent(body))
        return [sys.executable, "program.py"]

    return program


@pytest.fixture
def terminal(eventually, tmp_path):
    """Starts a program in a terminal: ``terminal(words, env)``."""
    return lambda words, env=None: Terminal(eventually, words, tmp_path, env)


# ---------------------------------------------------------------------------------- the driver's terminal
def test_a_task_is_debugged_in_the_drivers_terminal(program, terminal):
    screen = terminal(program("print('result', mray.get(task.remote()))"))
    assert re.search(r"\(task pid=\d+\) breakpoint at .*program.py:10", screen.expect(r"\(Pdb\) "))
    screen.type("p value")
    assert "41" in screen.expect(r"\(Pdb\) ")
    screen.type("value = 1000")
    screen.expect(r"\(Pdb\) ")
    screen.type("next")
    screen.expect(r"\(Pdb\) ")
    screen.type("continue")
    screen.expect("result 1001")
    assert screen.end() == 0


def test_breakpoints_of_several_workers_come_one_after_the_other(program, terminal):
    screen = terminal(program("print('result', mray.get([task.remote(), Actor.remote().method.remote()]))"))
    for _ in range(2):
        screen.expect(r"\(Pdb\) ")
        screen.type("c")
    screen.expect(re.escape("result [42, 'of the actor']"))
    assert screen.end() == 0


def test_stepping_out_of_the_users_code_ends_the_debugging(program, terminal):
    # Unbuffered, print writes word by word: the debugger's last words must not come between two of them.
    screen = terminal(program("print('result', mray.get(task.remote()))"), {"PYTHONUNBUFFERED": "1"})
    screen.expect(r"\(Pdb\) ")
    for _ in range(4):  # since Python 3.13 the first one leaves the line of the breakpoint itself
        screen.type("next")
    assert "_runtime" not in screen.expect("result 42")
    assert screen.end() == 0


def test_quit_ends_the_task_with_an_exception(program, terminal):
    body = """
    try:
        mray.get(task.remote())
    except mray.exceptions.RayTaskError as error:
        print("raised", type(error.cause).__name__)
    """
    screen = terminal(program(body))
    screen.expect(r"\(Pdb\) ")
    screen.type("quit")
    screen.expect("raised BdbQuit")
    assert screen.end() == 0


def test_other_output_waits_until_the_debugging_is_over(program, terminal):
    body = """
    @mray.remote
    def speaks():
        print("from another", flush=True)

    ref = task.remote()
    mray.wait([speaks.remote() for _ in range(3)], num_returns=3)
    print(f"result {mray.get(ref)}")  # at once: lines of workers are printed beside it
    """
    screen = terminal(program(body))
    screen.expect(r"\(Pdb\) ")
    screen.type("p 6 * 7")
    screen.expect(r"\(Pdb\) ")
    screen.type("c")
    screen.expect("result 42")
    assert screen.end() == 0


def test_an_interrupt_ends_driver_and_worker(program, terminal, eventually):
    screen = terminal(program("mray.get(task.remote())"))
    before = screen.expect(r"\(Pdb\) ")
    worker = int(re.search(r"pid=(\d+)", before)[1])
    screen.interrupt()
    screen.expect("KeyboardInterrupt")
    assert screen.end() in (1, -signal.SIGINT)
    eventually(lambda: not Path(f"/proc/{worker}").exists())


def test_a_killed_worker_gives_the_terminal_back(program, terminal):
    body = """
    try:
        mray.get(task.remote())
    except mray.exceptions.WorkerCrashedError:
        print("crashed")
    """
    screen = terminal(program(body))
    worker = int(re.search(r"pid=(\d+)", screen.expect(r"\(Pdb\) "))[1])
    os.kill(worker, signal.SIGKILL)
    screen.expect("crashed")
    assert screen.end() == 0


# -------------------------------------------------------------------------------------- nobody could come
def test_without_a_terminal_it_raises(run_program):
    done = run_program(PROGRAM + "mray.get(task.remote())\n", check=False)
    assert done.returncode == 1
    assert re.search(r"RuntimeError: breakpoint\(\) at .*program.py:10 in a worker: the driver has no terminal", done.stderr)
    done = run_program(PROGRAM + "mray.get(Actor.remote().method.remote())\n", check=False)
    assert "the driver has no terminal" in done.stderr


def test_it_raises_in_a_terminal_too_when_the_setting_says_so(program, terminal):
    screen = terminal(program("mray.get(task.remote())"), {"MRAY_BREAKPOINT": "raise"})
    screen.expect("RuntimeError: breakpoint")
    assert screen.end() == 1


def test_an_unknown_word_in_the_setting_is_an_error(run_program):
    done = run_program(PROGRAM + "mray.get(task.remote())\n", check=False, env={"MRAY_BREAKPOINT": "sometimes"})
    assert "MRAY_BREAKPOINT='sometimes'" in done.stderr


def test_another_debugger_that_the_user_has_chosen_is_left_alone(run_program):
    done = run_program(PROGRAM + "print('result', mray.get(task.remote()))\n", env={"PYTHONBREAKPOINT": "0"})
    assert "result 42" in done.stdout


# ------------------------------------------------------------------------------------------- `mray debug`
@pytest.fixture
def waiting(program, tmp_path, eventually):
    """A driver without a terminal whose task waits at a breakpoint; its standard error says so."""
    with open(tmp_path / "err", "w") as err:
        child = subprocess.Popen(
            program("print('result', mray.get(task.remote()), flush=True)"),
            cwd=tmp_path,
            env=environment_of({"MRAY_BREAKPOINT": "wait"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    eventually(lambda: "breakpoint at" in (tmp_path / "err").read_text())
    yield child
    child.kill()
    child.communicate()


def debug(*words, **options):
    command = [sys.executable, "-m", "mray", "debug", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment_of({}), **options)


def test_the_command_lists_who_waits(waiting, tmp_path):
    assert "attach with `mray debug`" in (tmp_path / "err").read_text()
    (row,) = json.loads(debug("--format", "json", stdin=subprocess.DEVNULL).stdout)
    assert row["name"] == row["function"] == "task"
    assert row["at"].endswith("program.py:10")
    assert "program.py:10" in debug(stdin=subprocess.DEVNULL).stdout


def test_the_command_debugs_from_a_pipe_and_its_end_lets_the_worker_go_on(waiting):
    done = debug("1", input="value = 7\np value * 2\n")
    assert "14" in done.stdout
    assert done.returncode == 0
    assert waiting.stdout.readline() == "result 8\n"
    assert json.loads(debug("--format", "json", stdin=subprocess.DEVNULL).stdout) == []


def test_the_command_asks_in_a_terminal(waiting, terminal):
    screen = terminal([sys.executable, "-m", "mray", "debug"])
    screen.expect("Debug which")
    screen.type("1")
    screen.expect(r"\(Pdb\) ")
    screen.type("c")
    assert screen.end() == 0
    assert waiting.stdout.readline() == "result 42\n"


def test_a_worker_that_does_not_wait_is_not_found(waiting):
    done = debug("2", stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "no worker 2 waits" in done.stderr


def test_only_its_user_reaches_the_socket_and_nothing_listens_on_a_network(waiting):
    sockets = list(Path(os.environ["MRAY_TMPDIR"]).glob("mray-*/session_*/debug/*"))
    paths = [path for path in sockets if stat.S_ISSOCK(path.stat().st_mode)]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600]
    assert stat.S_IMODE(paths[0].parent.stat().st_mode) == 0o700
    pid = int(paths[0].name.partition("-")[0])
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(os.readlink(fd))
    assert inodes
    for table in ("tcp", "tcp6", "udp", "udp6"):
        rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        assert not [row for row in rows if f"socket:[{row.split()[9]}]" in inodes]


def test_the_end_of_the_driver_ends_a_worker_that_waits(waiting, eventually):
    (row,) = json.loads(debug("--format", "json", stdin=subprocess.DEVNULL).stdout)
    waiting.kill()
    eventually(lambda: not Path(f"/proc/{row['pid']}").exists())
