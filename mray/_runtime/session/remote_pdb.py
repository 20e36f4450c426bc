"""pdb over a socket, in a worker."""

from __future__ import annotations

import contextlib
import pdb
from types import FrameType
from typing import Any

from mray._common.kept import socket

#: Modules that are stepped over.
_OURS = "mray"
_READ_BYTES = 4096


class _Terminal:
    """The other end as a text file. Its end is the end of the input, and no error of the debugged program."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8", errors="replace")
        self.encoding = "utf-8"

    def readline(self) -> str:
        try:
            return self._lines.readline()
        except (OSError, ValueError):
            return ""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._connection.sendall(text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: output is unbuffered."""

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        """Hang up once the other end has shown all output, so that later output of the program follows it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while self._connection.recv(_READ_BYTES):  # input that was typed too late
                pass
        with contextlib.suppress(OSError):
            self._lines.close()
            self._connection.close()


class RemotePdb(pdb.Pdb):
    """A debugger for one stop.

    ``continue``, the end of the input, and the end of the user's outermost function hang up and let the program continue; ``quit``
    raises `bdb.BdbQuit` in it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._terminal = _Terminal(connection)
        files: Any = self._terminal
        super().__init__(stdin=files, stdout=files, skip=[f"{_OURS}.*"], nosigint=True, readrc=False)

    def _hang_up(self) -> None:
        self.clear_all_breaks()
        self._terminal.close()

    def do_continue(self, arg: str) -> bool | None:
        """continue: let the program continue."""
        self._hang_up()
        return super().do_continue(arg)

    def do_quit(self, arg: str) -> bool | None:
        """quit: end the program where it is, by an exception."""
        self._hang_up()
        return super().do_quit(arg)

    def do_EOF(self, arg: str) -> bool | None:  # noqa: N802  (pdb's name)
        """The end of the input: let the program continue."""
        return self.do_continue(arg)

    do_c = do_cont = do_continue
    do_q = do_exit = do_quit

    def dispatch_return(self, frame: FrameType, arg: Any) -> Any:
        """Hang up when the user's outermost function returns."""
        result = super().dispatch_return(frame, arg)
        caller = frame.f_back
        if caller is None or str(caller.f_globals.get("__name__", "")).partition(".")[0] == _OURS:
            self._hang_up()
            self.set_continue()
        return result
