"""The main function of a worker process: wires the runtime, the graphs and the user's API.

Called with the environment and output set up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
import sys
import traceback
from typing import Any

from mray._api.current import set_backend
from mray._api.logging_config import LoggingConfig
from mray._backends.native import NativeBackend
from mray._common.kept import os, socket
from mray._common.messages import CAUSE_REFUSED, EXITING, NO_PROCESS, ROLE_WORKER, SAVE, SETTING_UP
from mray._ipc.connection import Connection
from mray._ipc.kept_sessions import write_record
from mray._ipc.process import prefer_as_victim
from mray._ipc.reaper import session_of
from mray._runtime.client.client import Client
from mray._runtime.environment.environments import set_up
from mray._runtime.node.jobs import take_place
from mray._runtime.processes import line_coverage, stack_signal
from mray._runtime.session.breakpoints import Breakpoints
from mray._runtime.worker.own_process import OwnProcess
from mray._runtime.worker.worker import Worker


def worker_main(start: dict[str, Any]) -> int:
    """Join the session and serve until asked to end."""
    asked = start["options"]["coverage"]
    save = None if asked is None else line_coverage.begin(asked, session_of(start["session_dir"]))
    client = Client(start["session_dir"], start["process"], ROLE_WORKER)
    worker = Worker(client, OwnProcess())

    def save_and_die(_node: Connection, most: int) -> None:
        if most:
            write_record(client.session_dir, client.process, worker.record(), most)
        if save is not None:
            save()
        os.kill(os.getpid(), signal.SIGKILL)

    client.from_node.on({SAVE: save_and_die})
    node = start["node"]
    client.join(None if node < 0 else socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, node))
    prefer_as_victim(client.info["oom_score"])
    with contextlib.suppress(OSError):  # a negative value needs a privilege
        os.nice(client.info["niceness"])
    # Prints the location of a crash among the last lines of output, which are reported with the death. Python 3.14's C stack would fill
    # them all.
    faulthandler.enable(file=2, all_threads=False, **({"c_stack": False} if sys.version_info >= (3, 14) else {}))
    stack_signal.listen(client.session_dir)
    Breakpoints(client.session_dir, bool(client.info["terminal"]), lambda: worker.executor.shown).install()
    if client.info["logging_config"] is not None:
        LoggingConfig.from_dict(client.info["logging_config"]).apply()
    if client.info["place"] is not None:
        take_place(client.info["place"], start["options"]["prefix"])
    try:
        set_up(start["environment"], start["session_dir"], lambda what: client.node.send((SETTING_UP, what)))
    except Exception as error:  # raised by the user's hook
        why = "".join(traceback.format_exception(error))
        client.node.send((EXITING, CAUSE_REFUSED, f"{NO_PROCESS}: its runtime_env could not be set up:\n{why}"))
        raise
    backend = NativeBackend(client, None, worker)
    set_backend(backend)
    backend.graphs.offer()
    client.reactor.start_background_reader()
    client.reactor.guard.install()
    worker.run()
    return 0
