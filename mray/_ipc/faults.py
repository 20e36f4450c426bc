"""Faults: exceptions in mray's handling of a message, a timer or a kernel event, which user code did not raise.

Such an exception ends the smallest thing that can be named, and is the cause of the error that its waiters get:

    a request, a call                its caller is answered with the error
    the connection                   FAULT tells the peer why; whatever waits at either end fails (`mray._ipc.connection`)
    the process                      where no peer is concerned (`Reactor.on_fault`)
    the session                      the node's own decision: its records can no longer be trusted
"""

from __future__ import annotations

from mray._common import messages
from mray._common.kept import os

_NO_CODES = frozenset({"PICKLED", "PACKED", "SEGMENT", "FAILED", "TENSORS", "NOTE_STREAM"})
_NAMES = {code: name for name, code in vars(messages).items() if name.isupper() and code.__class__ is int and name not in _NO_CODES}


def message_name(code: object) -> str:
    return _NAMES.get(code, repr(code)) if isinstance(code, int) else repr(code)


def fault_line(what: str, error: BaseException) -> str:
    """One line for waiters."""
    return f"{what} failed in process {os.getpid()}: {_last_line(error)}"


def fault_text(what: str, error: BaseException) -> str:
    """`fault_line` with the traceback."""
    import traceback  # noqa: PLC0415  (a node starts without it)

    return f"{fault_line(what, error)}\n{''.join(traceback.format_exception(type(error), error, error.__traceback__))}".rstrip()


def fault(what: str, error: BaseException) -> Exception:
    """An error with that line and its cause."""
    failure = RuntimeError(fault_line(what, error))
    failure.__cause__ = error
    return failure


def _last_line(error: BaseException) -> str:
    import traceback  # noqa: PLC0415

    return traceback.format_exception_only(type(error), error)[-1].strip()
