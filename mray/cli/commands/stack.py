"""``mray stack``: the Python stacks of the processes of a session.

py-spy, if installed and permitted, reads them from outside, also of a process that is stopped or whose interpreter is held by C code,
and of the zygote. Otherwise the reading thread of each process answers; a worker whose interpreter is held by C code writes them through
faulthandler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mray._common import messages as m
from mray._common.ids import worker_id_of
from mray._common.own_frames import span_of_user
from mray._common.whose_code import OWN, kind_of_file
from mray._inside.processes import stacks_by_signal
from mray._observe.observer import SessionGoneError, ask_node
from mray.cli.columns import begins, counted, is_meant
from mray.cli.terminal import DONE, NOT_FOUND, add_format, add_session, parser, run_command, show
from mray.util.state.api import SessionView, look
from mray.util.state.common import WorkerState

SUMMARY = "print the Python stacks of the driver, the workers, the node"

_PATIENCE = 20.0


def main(words: list[str]) -> int:
    arguments = parser("stack", SUMMARY, "WHICH is all (the default), driver, node, zygote, a pid, or an actor by its id or name.")
    arguments.add_argument("which", nargs="*", default=["all"], metavar="WHICH", help="whose stacks")
    arguments.add_argument("--no-py-spy", action="store_true", help="ask the processes, even if py-spy is there")
    arguments.add_argument("--all", action="store_true", help="mray's own frames and threads, too (JSON and YAML always have them)")
    arguments.add_argument("--locals", action="store_true", help="local variables too (py-spy only)")
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _stack)


def _stack(given: argparse.Namespace) -> int:
    view = look(given.session, given.timeout)
    everyone = processes_of(view)
    chosen: dict[int, dict[str, Any]] = {}
    unknown = []
    for word in given.which:
        found = [row for row in everyone if word == "all" or word in (str(row["pid"]), row["role"]) or _is_actor(row, word)]
        chosen.update({row["pid"]: row for row in found})
        if not found:
            unknown.append(word)
    program = None if given.no_py_spy else find_py_spy()
    stacks = [stacks_of(view, row, program, given.locals) for row in chosen.values()]
    if given.format != "table":
        show(stacks, given.format)
    else:
        print("\n".join(_in_words(row if given.all else of_user(row)) for row in stacks))
    if unknown:
        print(f"mray: no process or actor {', '.join(unknown)} in this session", file=sys.stderr)
    return NOT_FOUND if unknown or any(row["error"] for row in stacks) else DONE


def processes_of(view: SessionView) -> list[dict[str, Any]]:
    """Role, pid, actor, and the waits of the threads of each process."""
    columns = ("pid", "worker_id", "occupant", "actor_id", "name", "waits_for", "waits_in_graphs")
    living = [row for row in view.records(WorkerState) if row.is_alive and row.pid]
    rows = [{"role": row.worker_type.lower(), **{column: row[column] for column in columns}} for row in living]
    nobody = {**dict.fromkeys(columns[1:-2], ""), **{column: [] for column in columns[-2:]}}
    return [*rows, *({"role": role, **nobody, "pid": view.node[f"{role}_pid"]} for role in (m.ROLE_NODE, m.ROLE_ZYGOTE))]


def _is_actor(row: dict[str, Any], word: str) -> bool:
    return bool(row["actor_id"]) and (is_meant(word, row["name"] or "") or begins(word, row["actor_id"]))


def find_py_spy() -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return shutil.which("py-spy") or (beside if os.access(beside, os.X_OK) else None)


def stacks_of(view: SessionView, row: dict[str, Any], program: str | None, variables: bool = False) -> dict[str, Any]:
    """The stacks of one process, or why they are not available."""
    result = {**row, "through": "", "stacks": [], "error": ""}
    reasons = []
    if program is not None:
        text, reason = _spy(program, row["pid"], variables)
        if text:
            return {**result, "through": "py-spy", "stacks": [["", text]]}
        reasons.append(reason)
    if row["worker_id"]:
        process = next(process for process in view.pids if worker_id_of(process).hex() == row["worker_id"])
        answers = view.ask_one(process, "stacks")
        if not isinstance(answers, str):
            return {**result, "through": "itself", "stacks": [list(stack) for stack in answers]}
        reasons.insert(0, answers)
        if row["role"] == m.ROLE_WORKER and (text := stacks_by_signal(view.directory, row["pid"], view.timeout)):
            return {**result, "through": "faulthandler", "stacks": [["", text]]}
    elif row["role"] == m.ROLE_NODE:
        try:
            return {**result, "through": "itself", "stacks": [list(stack) for stack in ask_node(view.directory, "stacks", view.timeout)]}
        except (SessionGoneError, OSError) as error:
            reasons.insert(0, str(error))
    else:
        reasons.insert(0, "only py-spy can look at it (pip install py-spy)")
    # A zygote whose stacks cannot be read is no error.
    return {**result, "error" if row["role"] != m.ROLE_ZYGOTE else "through": "; ".join(reasons)}


def _spy(program: str, pid: int, variables: bool) -> tuple[str, str]:
    words = [program, "dump", "--pid", str(pid), *(["--locals"] if variables else [])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"py-spy: {error}"
    if done.returncode or not done.stdout.strip():
        return "", f"py-spy: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}"
    return done.stdout.rstrip(), ""


# ------------------------------------------------------------------------------------------------ what the user wants to see
#: The beginning of a frame as Python prints it, oldest first, and as py-spy does, newest first.
_FRAME = re.compile(r'^(?=  File ")', re.MULTILINE)
_FILE = re.compile(r'  File "([^"]*)"')
_SPIED = re.compile(r"^    \S.* \((.*?)(?::\d+)?\)$")
#: the code that starts a node, from which workers are forked
_START = "<string>"
#: It runs threads of mray's own in a driver, below which there is no code of the user's.
_SERVER = "mray/cli/loopback.py"


def of_user(row: dict[str, Any]) -> dict[str, Any]:
    """The stacks from the user's first frame on, down to mray's first frame; threads without one are counted."""
    shown, hidden = [], 0
    for name, text in row["stacks"]:
        if row["through"] == "py-spy":
            kept, without = _of_user_spied(text, row["role"])
        elif row["through"] == "faulthandler":  # newest first; used when nothing else works
            kept, without = text, 0
        else:
            kept = _of_user(text, row["role"])
            without = int(not kept)
        hidden += without
        if kept:
            shown.append([name, kept])
    if not hidden:
        return {**row, "stacks": shown}
    what = f"{counted(hidden, 'thread')} of mray's own"
    if not shown:
        what = f"no code of the user's runs: {what}"
    return {**row, "stacks": [*shown, ["", f"({what}: --all)"]]}


def _of_user(text: str, role: str) -> str:
    """A stack as Python prints it; "" when no frame is the user's."""
    head, *frames = _FRAME.split(text)
    files = [found.group(1) if (found := _FILE.match(frame)) else "" for frame in frames]
    first, end = span_of_user(_kinds(files, role))
    if not frames:  # of another form
        return text
    return head + "".join(frames[first:end]) if end else ""


def _of_user_spied(text: str, role: str) -> tuple[str, int]:
    """Stacks as py-spy prints them, and the number without a frame of the user. Lines that are no frames stay."""
    made, hidden = [], 0
    head, *threads = re.split(r"^(?=Thread )", text, flags=re.MULTILINE)
    for thread in threads:
        title, *rest = thread.rstrip("\n").split("\n")
        places = [place for place, line in enumerate(rest) if _SPIED.match(line)]
        # Lines of local variables belong to the frame above them.
        frames = ["\n".join(rest[place:after]) for place, after in pairwise([*places, len(rest)])][::-1]
        files = [found.group(1) if (found := _SPIED.match(frame.split("\n")[0])) else "" for frame in frames]
        first, end = span_of_user(_kinds(files, role))
        if not files:  # it is starting, or of another form
            made.append(thread.rstrip("\n"))
        elif end:
            made.append("\n".join([title, *frames[first:end][::-1]]))
        else:
            hidden += 1
    return (head + "\n".join(made) if made or not hidden else ""), hidden


def _kinds(files: Sequence[str], role: str) -> list[str]:
    if any(file.endswith(_SERVER) for file in files):
        return [OWN] * len(files)
    return [OWN if file == _START and role != m.ROLE_DRIVER and not place else kind_of_file(file) for place, file in enumerate(files)]


def _in_words(row: dict[str, Any]) -> str:
    what = " ".join(filter(None, (row["occupant"], row["name"] and f"named {row['name']!r}", row["actor_id"])))
    lines = [f"=== {row['role']} pid {row['pid']}{f' ({what})' if what else ''}"]
    if waits := [*(row["waits_for"] or ()), *(row["waits_in_graphs"] or ())]:
        lines.append(f"waits for {'; '.join(waits)}")
    for name, text in row["stacks"]:
        lines.append(f"{f'--- {name}' if name else ''}\n{text.rstrip()}".lstrip("\n"))
    if not row["stacks"]:
        lines.append(row["error"] or row["through"])
    return "\n".join(lines)
