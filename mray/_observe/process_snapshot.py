"""The answers of a driver or worker to observers: the sections of its parts, and the stacks and numbers of the whole process.

In the reading thread, so that a process answers while its main thread computes.

    observer ──ASK (number, sections)──▶ client ──TOLD (number, section -> (ok, rows))──▶ observer

Rejected: events of every call to a collector, as Ray does; they cost more than a call does here.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from mray._common import measured
from mray._common import messages as m
from mray._common.ids import first_number
from mray._common.uncollected import uncollected
from mray._inside.client import Client, Connection, own_clients, reading_frame

#: Sections of an answer, each with its arguments by name.
Sections = Mapping[str, Mapping[str, Any]]


def on_ask(client: Client, connection: Connection, number: int, sections: Sections) -> None:
    """Answer ASK. Client's lock held."""
    if not connection.role:
        # Its disconnection concerns no process.
        connection.role, connection.on_hangup = m.ROLE_OBSERVER, _nothing
    connection.send((m.TOLD, number, answer(client, sections)))


def _nothing(_connection: Connection) -> None:
    pass


def answer(client: Client, sections: Sections) -> dict[str, tuple[bool, Any]]:
    """Section -> (True, its rows) or (False, why there are none). Client's lock held."""
    told: dict[str, tuple[bool, Any]] = {}
    for section, arguments in sections.items():
        find = client.sections.get(section) or _SECTIONS.get(section)
        try:
            # A driver runs no tasks, and a process without graphs has none.
            told[section] = (True, None if find is None else find(**arguments))
        except Exception as error:  # other sections are still answered
            told[section] = (False, f"{type(error).__name__}: {error}")
    return told


def answer_here(process: str, session_dir: str, sections: Sections) -> dict[str, tuple[bool, Any]] | None:
    """As `answer`, if this process is that one of the session; else None."""
    for client in own_clients():
        if client.process == process and client.session_dir == session_dir:
            with client.lock:
                return answer(client, sections)
    return None


def client_here(session_dir: str) -> Client | None:
    """This process's client in a running session that it has joined; else None."""
    for client in own_clients():
        if client.session_dir == session_dir and client.info and client.fatal is None:
            return client
    return None


def own_section(session_dir: str, section: str) -> Any:
    """One section of this process's own client in a session; None if `client_here` is None."""
    client = client_here(session_dir)
    if client is None:
        return None
    with client.lock:
        return client.sections[section]()


def _stacks() -> list[tuple[str, str]]:
    """(name, stack) of every Python thread, innermost frame last; for the answering thread, the stack from which it reads messages."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = []
    with uncollected:
        for ident, innermost in sys._current_frames().items():
            frame = reading_frame(innermost) if ident == threading.get_ident() else innermost
            stacks.append((names.get(ident, str(ident)), "".join(traceback.format_stack(frame))))
    stacks.sort(key=lambda stack: stack[0] != "MainThread")
    return stacks


_SECTIONS: dict[str, Callable[..., Any]] = {
    "ids": first_number,
    "metrics": measured.rows,
    "stacks": _stacks,
}
