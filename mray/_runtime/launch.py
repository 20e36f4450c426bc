"""How a process of a session is started by exec: the command line, and the options that it finds in the session's directory.

Driver (the node) and node (a new zygote, workers with an interpreter of their own). Small on purpose: it is on the way to the first fork.
"""

from __future__ import annotations

import marshal
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from mray._ipc.process import TITLE_ROOM, spawn

#: File with the options of the session, in its directory.
OPTIONS = "options"
#: Carries the variables of a worker that is started by exec (they are in its environment too, expanded).
WORKER_VARIABLE = "MRAY_WORKER_ENVIRONMENT"
#: Bytes of the largest packet between node and zygote (SPAWN, with the environment of a worker).
PACKET = 256 * 1024

# Note [face]
# Importing any module of the package would first import the package itself, the user's face with all that it needs: 30 ms before
# the first fork, and nothing that the node uses. So a process begins with an empty package in its place; those that run user code then
# import the real one (`mray._backends.entry`).
_CODE = """\
import sys, marshal
with open(sys.argv[2] + "/options", "rb") as file:
    options = marshal.load(file)
sys.path[:] = options["path"]
sys.modules["mray"] = face = type(sys)("mray")
face.__path__ = [options["package"]]
from mray._backends.entry import main
main(sys.argv[1], sys.argv[2], sys.argv[3], options)
"""


def write_options(session_dir: str, options: dict[str, Any]) -> None:
    """Leave the options for every process of the session; builtin values only."""
    options["package"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    options["path"] = [path or os.getcwd() for path in sys.path]
    with open(os.path.join(session_dir, OPTIONS), "wb") as file:
        marshal.dump(options, file)


def launch(role: str, session_dir: str, process: str, environment: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """Start an interpreter that runs `mray._backends.entry.main`; returns its pid."""
    # The last argument is room for the title that `ps` is to show.
    arguments = [sys.executable, "-c", _CODE, role, session_dir, process, " " * TITLE_ROOM]
    return spawn(sys.executable, arguments, environment, descriptors)


def new_channel() -> tuple[socket.socket, socket.socket]:
    """The two ends of the conversation between node and zygote."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PACKET)
    return pair
