"""Hides mray's own frames in stacks that users read to find a line of their program.

Frames are hidden where a stack is shown, never where it is created: successful calls pay nothing, and a program that examines an error
finds all of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from opcode import opmap
from types import TracebackType
from typing import Any

from mray._common.kept import os
from mray._common.settings import FULL_TRACEBACKS
from mray._common.whose_code import LIBRARY, OWN, USERS, kind_of

#: The folder whose functions check calls.
_API = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/_api/"


def span_of_user(kinds: Sequence[str]) -> tuple[int, int]:
    """The part of a stack, oldest frame first, for users: from the first user frame to mray's first after the last user frame, which shows
    the awaited operation. (0, 0) without user frames.
    """
    users = [place for place, kind in enumerate(kinds) if kind == USERS]
    if not users:
        return 0, 0
    end = next((place + 1 for place in range(users[-1] + 1, len(kinds)) if kinds[place] == OWN), len(kinds))
    return users[0], end


def hide(error: BaseException, found: TracebackType | None) -> TracebackType | None:
    """`found`, a traceback of `error`, without the frames of mray and of library functions that it calls; changes links in place, in causes
    too.

    Unchanged if no frame is the user's, if the error may be a bug of mray, or with MRAY_FULL_TRACEBACKS.
    """
    kept = None if FULL_TRACEBACKS.get() else _of_user(error, found)
    if kept is None:
        return found
    error.__traceback__ = kept
    pending, seen = [error], {id(error)}
    while pending:
        each = pending.pop()
        for other in (each.__cause__, each.__context__, *getattr(each, "exceptions", ())):
            if not isinstance(other, BaseException) or id(other) in seen:
                continue
            seen.add(id(other))
            pending.append(other)
            kinds = {kind for _link, kind in _links(other.__traceback__)}
            if OWN not in kinds or USERS in kinds:
                other.__traceback__ = _of_user(other, other.__traceback__) or other.__traceback__
            elif str(other) in str(each) if other is each.__cause__ else other is each.__context__:
                each.__cause__ = None  # and no context is shown
            else:
                other.__traceback__ = None
    return kept


def _links(found: TracebackType | None) -> Iterator[tuple[TracebackType, str]]:
    while found is not None:
        yield found, kind_of(found.tb_frame)
        found = found.tb_next


def _of_user(error: BaseException, found: TracebackType | None) -> TracebackType | None:
    """A traceback without mray's frames; None if nothing else is left, or if they may be of use."""
    links = list(_links(found))
    if not any(kind == OWN for _link, kind in links):
        return found
    users = [place for place, (_link, kind) in enumerate(links) if kind == USERS]
    if not users or not _is_told(error, links[users[-1] + 1 :]):
        return None
    shown, inside = [], False
    for link, kind in links:
        inside = kind == OWN if kind != LIBRARY else inside
        if not inside:
            shown.append(link)
    for link, below in zip(shown, [*shown[1:], None], strict=True):
        link.tb_next = below
    return shown[0]


def _is_told(error: BaseException, below: list[tuple[TracebackType, str]]) -> bool:
    """Whether an error that left the frames `below` the last user frame is meant for the user: raised by a statement, a refusal by mray's
    API, or of mray's own classes.
    """
    own = [link.tb_frame.f_code.co_filename for link, kind in below if kind == OWN]
    if not own or isinstance(error, KeyboardInterrupt) or _is_mrays(error):
        return True
    if isinstance(error, (TypeError, ValueError)) and all(path.startswith(_API) for path in own):
        return True
    last, kind = below[-1]
    return kind == OWN and last.tb_frame.f_code.co_code[last.tb_lasti] == opmap["RAISE_VARARGS"]


def _is_mrays(error: BaseException | None) -> bool:
    return any(kind.__module__ == "mray.exceptions" for kind in type(error).__mro__)


_hooked = False


def hide_from_now_on() -> None:
    """Hide mray's frames in tracebacks of errors that end the program, a thread, or a line or cell of IPython. Idempotent."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    shown, shown_of_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, found: TracebackType | None) -> None:
        shown(kind, value, hide(value, found))

    def excepthook_of_thread(given: threading.ExceptHookArgs) -> None:
        kind, value, found, thread = given
        if thread is not None and thread.daemon and not threading.main_thread().is_alive() and _is_mrays(value):
            return  # it waited while the program's session ended
        if value is not None:
            given = threading.ExceptHookArgs((kind, value, hide(value, found), thread))
        shown_of_thread(given)

    sys.excepthook, threading.excepthook = excepthook, excepthook_of_thread
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    formatted = shell.InteractiveTB.structured_traceback

    def structured_traceback(kind: Any, value: Any, found: Any, *args: Any, **kwargs: Any) -> Any:
        return formatted(kind, value, hide(value, found) if isinstance(value, BaseException) else found, *args, **kwargs)

    shell.InteractiveTB.structured_traceback = structured_traceback
