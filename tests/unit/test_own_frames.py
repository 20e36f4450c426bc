"""mray's own frames are hidden where they only disturb: in `mray stack`, in interrupts; never the user's."""

from __future__ import annotations

import code
import http.server
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mray
from mray._common.own_frames import hide, span_of_user
from mray._common.whose_code import LIBRARY, OWN, USERS
from mray.cli import loopback
from mray.cli.commands import stack
from mray.cli.commands.stack import of_user

PACKAGE = os.path.dirname(mray.__file__)
VERBS, ENTRY = f"{PACKAGE}/_api/verbs.py", f"{PACKAGE}/_backends/entry.py"


@pytest.mark.parametrize(
    ("kinds", "span"),
    [
        ([USERS, USERS, OWN, OWN, OWN], (0, 3)),
        ([OWN, OWN, USERS, LIBRARY], (2, 4)),
        ([LIBRARY, LIBRARY, USERS, OWN, USERS, LIBRARY, OWN, LIBRARY], (2, 7)),
        ([OWN, LIBRARY, OWN], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_a_stack_begins_with_the_users_first_frame_and_ends_with_what_the_last_one_waits_in(kinds: list[str], span: Any) -> None:
    assert span_of_user(kinds) == span


def frames(*files: str) -> str:
    return "".join(f'  File "{file}", line {number}, in f{number}\n    code({number})\n' for number, file in enumerate(files))


def spied(*files: str) -> str:
    return "\n".join(f"    f{number} ({file}:{number})\n            x: {number} (a)" for number, file in reversed(list(enumerate(files))))


def row(through: str, *stacks: list[str], role: str = "worker") -> dict[str, Any]:
    return {"role": role, "through": through, "stacks": [list(stack) for stack in stacks]}


def test_stacks_of_a_worker_are_those_of_the_user() -> None:
    whole = frames("<string>", ENTRY, "/home/me/train.py", threading.__file__)
    (main, rest) = of_user(row("itself", ["MainThread", whole], ["mray-reader", frames(threading.__file__, ENTRY)]))["stacks"]
    assert main == ["MainThread", whole[whole.index('  File "/home') :]]
    assert rest == ["", "(1 thread of mray's own: --all)"]


def test_the_driver_may_be_a_program_on_the_command_line() -> None:
    ((_name, text),) = of_user(row("itself", ["MainThread", frames("<string>", VERBS, ENTRY)], role="driver"))["stacks"]
    assert text == frames("<string>", VERBS)


def test_a_thread_that_answers_the_live_page_is_mrays_own_though_commands_run_on_it() -> None:
    answers = frames(threading.__file__, loopback.__file__, http.server.__file__, stack.__file__)
    ((name, text), rest) = of_user(row("itself", ["MainThread", frames("/a.py", VERBS)], ["Thread-1", answers], role="driver"))["stacks"]
    assert name == "MainThread" and "/a.py" in text
    assert rest == ["", "(1 thread of mray's own: --all)"]


def test_a_process_that_runs_nothing_of_the_user_says_so() -> None:
    ((_name, text),) = of_user(row("itself", ["MainThread", frames("<string>", ENTRY)]))["stacks"]
    assert text.startswith("(no code of the user's runs: 1 thread")


def test_what_py_spy_says_is_cut_likewise_with_the_variables_of_each_frame() -> None:
    main = spied("<string>", "mray/_backends/entry.py", "train.py", "mray/_api/verbs.py", "threading.py")
    text = (
        "Process 7: x\n\n"
        f'Thread 7 (active): "MainThread"\n{main}\n'
        f'Thread 8 (idle): "mray-reader"\n{spied("threading.py", "mray/_ipc/reactor.py")}'
    )
    (kept, rest) = of_user(row("py-spy", ["", text]))["stacks"]
    assert kept[1] == (
        'Process 7: x\n\nThread 7 (active): "MainThread"\n'
        "    f3 (mray/_api/verbs.py:3)\n            x: 3 (a)\n    f2 (train.py:2)\n            x: 2 (a)"
    )
    assert rest[1] == "(1 thread of mray's own: --all)"


@pytest.mark.parametrize("through", ["py-spy", "faulthandler", "itself"])
def test_a_text_of_another_form_is_shown_whole(through: str) -> None:
    assert of_user(row(through, ["", "Thread of 7"]))["stacks"] == [["", "Thread of 7"]]


def names(error: BaseException) -> list[str]:
    """The functions of a traceback as it is shown."""
    hide(error, error.__traceback__)
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def raised(callback: Callable[[], Any]) -> Any:
    try:
        callback()
    except BaseException as error:
        return error


def test_an_interrupt_is_shown_in_the_users_line() -> None:
    def users() -> None:
        own("waits", signal.default_int_handler)(signal.SIGINT, None)

    assert names(raised(users)) == ["raised", "users"]


@pytest.mark.parametrize("program", ["mray.remote(3)", "mray.remote(num_cpu=1)(lambda: 0)", "mray.remote()", "mray.method(num_return=1)"])
def test_a_refusal_is_shown_in_the_users_line(program: str) -> None:
    assert names(raised(lambda: exec(program))) == ["raised", "<lambda>", "<module>"]


def own(name: str, inner: Any, body: str = "return inner(*args)") -> Any:
    """A function in a file of mray's."""
    scope = {"inner": inner}
    exec(compile(f"def {name}(*args):\n    {body}\n", f"{PACKAGE}/_runtime/made_up.py", "exec"), scope)
    return scope[name]


def test_an_error_that_may_be_a_bug_of_mrays_is_shown_whole() -> None:
    def users() -> None:
        own("outer", own("looks_up", None, "return {}[args]"))()

    assert names(raised(users)) == ["raised", "users", "outer", "looks_up"]


def test_an_error_of_a_function_that_mray_calls_is_shown_without_the_frames_between() -> None:
    def called() -> None:
        raise KeyError

    def users() -> None:
        own("outer", own("through", called))()

    assert names(raised(users)) == ["raised", "users", "called"]


def test_causes_are_shown_without_mrays_frames_too() -> None:
    def fails() -> None:
        raise KeyError("of the user's")

    def users() -> None:
        try:
            own("outer", fails)()
        except KeyError as error:
            own("tells", error, "raise ValueError('told') from inner")()

    error = raised(users)
    assert names(error) == ["raised", "users"]
    assert [each.name for each in traceback.extract_tb(error.__cause__.__traceback__)] == ["users", "fails"]


def test_what_the_user_raises_of_an_error_of_mrays_has_none_of_mrays_frames_either() -> None:
    def users() -> None:
        try:
            mray.remote()
        except AssertionError as error:
            raise LookupError from error

    error = raised(users)
    names(error)
    assert [each.name for each in traceback.extract_tb(error.__cause__.__traceback__)] == ["users"]


def test_what_mray_met_on_the_way_to_its_error_is_not_shown() -> None:
    def users() -> None:
        own("tells", None, "try: [].pop()\n    finally: raise ValueError('told')")()

    error = raised(users)
    assert error.__context__ is not None
    assert names(error) == ["raised", "users"]
    assert "IndexError" not in "".join(traceback.format_exception(error))


def test_all_frames_are_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRAY_FULL_TRACEBACKS", "1")
    assert "make_remote" in names(raised(lambda: mray.remote(num_cpu=1)(lambda: 0)))


def test_a_traceback_that_ends_in_the_users_code_stays() -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    assert names(raised(fails)) == ["raised", "fails"]


def test_the_interpreter_shows_the_users_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = code.InteractiveConsole()
    for line in ("import mray", "@mray.remote(num_cpu=1)", "def f(): pass", ""):
        console.push(line)
    said = capsys.readouterr().err
    assert "ValueError: Invalid option" in said
    assert [line for line in said.splitlines() if PACKAGE in line] == []


def test_a_thread_shows_the_users_line() -> None:
    program = "import threading, mray\nthreading.Thread(target=lambda: mray.remote(num_cpu=1)(lambda: 0)).start()"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment()).stderr
    assert "ValueError: Invalid option" in said
    assert [line for line in said.splitlines() if PACKAGE in line] == []


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.path.dirname(PACKAGE), **more}


def test_ipython_shows_the_users_line(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    program = "import mray\nfor _ in range(2):\n    mray.remote(num_cpu=1)(lambda: 0)\n"
    (tmp_path / "program.ipy").write_text(program)
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "program.ipy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment(IPYTHONDIR=str(tmp_path)))
    assert "ValueError: Invalid option" in done.stdout + done.stderr
    assert [line for line in (done.stdout + done.stderr).splitlines() if "_api" in line] == []
