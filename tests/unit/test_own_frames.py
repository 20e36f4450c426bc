"""mray's own frames are hidden where they only disturb: in `mray stack`, in interrupts; never the user's."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import Any

import pytest

import mray
from mray._common.own_frames import LIBRARY, OWN, USERS, cut_below_user, kind_of, span_of_user
from mray.cli.commands.stack import of_user

PACKAGE = os.path.dirname(mray.__file__)
VERBS, ENTRY = f"{PACKAGE}/_api/verbs.py", f"{PACKAGE}/_backends/entry.py"


@pytest.mark.parametrize(
    ("filename", "kind"),
    [
        (VERBS, OWN), ("mray/_api/verbs.py", OWN), (f"{PACKAGE}/examples/pipeline.py", USERS), ("/home/me/mray/train.py", USERS),
        (threading.__file__, LIBRARY), ("threading.py", LIBRARY), ("concurrent/futures/thread.py", LIBRARY), ("<frozen runpy>", LIBRARY),
        (__file__, USERS), ("<dynamic-code>", USERS), (pytest.__file__, USERS), ("<stdin>", USERS), ("train.py", USERS),
    ],
)  # fmt: skip
def test_a_frame_is_mrays_the_librarys_or_the_users(filename: str, kind: str) -> None:
    assert kind_of(filename) == kind


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


def test_an_interrupted_traceback_ends_in_the_users_line() -> None:
    def told(callback: Any) -> list[str]:
        try:
            mray.remote(callback)  # mray's own frame, which raises
        except AssertionError:
            found = sys.exc_info()[2]
            cut_below_user(found)
            return [each.name for each in traceback.extract_tb(found)]
        return []

    assert told("no function") == ["told"]


def test_a_traceback_that_ends_in_the_users_code_stays() -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    try:
        fails()
    except KeyboardInterrupt:
        found = sys.exc_info()[2]
        cut_below_user(found)
        assert [each.name for each in traceback.extract_tb(found)][-1] == "fails"
