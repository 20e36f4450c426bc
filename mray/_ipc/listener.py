"""Sockets that wait for connections, by a name in a directory of ours. In any process of a session."""

from __future__ import annotations

import os
import socket

#: Connections that may wait to be accepted.
_BACKLOG = 4096


def listen_at(path: str, backlog: int = _BACKLOG) -> socket.socket:
    """A socket that listens at `path`, and that only our user may connect to, whatever the umask. Inherited by nobody."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener
