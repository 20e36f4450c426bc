"""Where the processes of a session begin: node, zygote, workers with their own interpreter, package builders.

The driver starts one fresh interpreter, which immediately forks the zygote, so that both import concurrently, and then is the node.
The node must not import the graphs, so the zygote loads the workers' main function by name.

::

    driver ──exec──▶ [ entry ] ──fork──▶ zygote ──fork──▶ workers
             (or: ──exec──▶ template ──fork──▶, see `mray._runtime.processes.template`)
                         └─ becomes the node ──exec──▶ a worker with its own interpreter, a new zygote

If the job has variables that an interpreter reads when it starts, the zygote is started by exec, with them.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
from typing import TYPE_CHECKING, Any

from mray._common.kept import os, socket
from mray._ipc.frames import from_text
from mray._ipc.limits import explaining
from mray._ipc.process import close_all_but, die_with
from mray._runtime.processes.launch import LIFELINE_VARIABLE, RECIPE_VARIABLE, WORKER_VARIABLE, ZYGOTES, new_channel, start_zygote

if TYPE_CHECKING:
    from mray._runtime.processes.zygote import WorkerMain

#: Module with ``worker_main(start)``.
WORKER_MODULE = "mray._backends.worker_main"
#: Every worker needs them eventually: imported once, before the first fork.
WORKER_NEEDS = ("cloudpickle",)
#: Imported for workers that take part in graphs.
GRAPHS_NEED = "mray._backends.graph_host"

NODE_LISTENER, NODE_LOCK = 3, 4
WORKER_LIFELINE, WORKER_NODE = 3, 4


def main(role: str, session_dir: str, process: str, options: dict[str, Any]) -> None:
    sys.argv = [""]
    code = 1
    try:
        if role == "node":
            code = _run_node(session_dir, options)
        elif role == "template":
            code = _run_template(options)
        elif role == "zygote":
            code = _run_zygote(session_dir, options, *ZYGOTES)
        elif role == "builder":
            code = _run_builder()
        else:
            code = _run_worker(session_dir, process, options)
    except BaseException:  # the last frame of the process
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        # No finalization: user hooks have run already.
        os._exit(code)


def _settle(descriptors: tuple[int, ...]) -> None:
    """Make these descriptors private, close all others, and ignore the terminal's signals."""
    for fd in descriptors:
        os.set_inheritable(fd, False)
    close_all_but(descriptors)
    _be_deaf()


def _be_deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _import_face() -> None:
    if hasattr(sys.modules["mray"], "__version__"):
        return  # a template has done it
    del sys.modules["mray"]
    face = importlib.import_module("mray")
    for name, module in tuple(sys.modules.items()):
        parent, _dot, child = name.rpartition(".")
        if parent == "mray" and child not in face.__dict__:
            setattr(face, child, module)


def _load_worker_main(options: dict[str, Any]) -> WorkerMain:
    _import_face()
    module = importlib.import_module(options.get("worker_module") or WORKER_MODULE)
    for name in WORKER_NEEDS:
        importlib.import_module(name)
    if options.get("graphs"):
        importlib.import_module(GRAPHS_NEED)
    return module.worker_main  # type: ignore[no-any-return]


def _run_template(options: dict[str, Any]) -> int:
    os.setsid()
    template = importlib.import_module("mray._runtime.processes.template")
    _settle((template.TEMPLATE_DRIVER,))
    for name in ("mray._runtime.node.node", "mray._runtime.processes.zygote"):
        importlib.import_module(name)
    _load_worker_main(options)
    if options["numpy"]:
        importlib.import_module("numpy")
    return template.serve(_run_node)  # type: ignore[no-any-return]


def _run_node(session_dir: str, options: dict[str, Any]) -> int:
    os.setsid()
    # The zygote closes the last, a pidfd.
    _settle((NODE_LISTENER, NODE_LOCK, *((options["driver_pidfd"],) if "driver_pidfd" in options else ())))
    with explaining("The node could not start."):
        channel = new_channel()
        lifeline = os.pipe2(os.O_CLOEXEC)
        anew = options["at_start"]
        pid = start_zygote(session_dir, anew, channel[1].fileno(), lifeline[0], NODE_LOCK) if anew else os.fork()
    if not pid:
        os.close(lifeline[1])
        channel[0].close()
        os.close(NODE_LISTENER)
        return _run_zygote(session_dir, options, channel[1].detach(), lifeline[0], NODE_LOCK)
    channel[1].close()
    node = importlib.import_module("mray._runtime.node.node")
    return node.run(session_dir, options, NODE_LISTENER, NODE_LOCK, lifeline, pid, channel[0])  # type: ignore[no-any-return]


def _run_zygote(session_dir: str, options: dict[str, Any], node: int, lifeline: int, lock: int) -> int:
    _settle((node, lifeline, lock))
    zygote = importlib.import_module("mray._runtime.processes.zygote")
    server = zygote.Zygote(socket.socket(fileno=node), lifeline, lock, session_dir, options)
    return server.run(lambda: _load_worker_main(options))  # type: ignore[no-any-return]


def _run_builder() -> int:
    _settle((WORKER_LIFELINE,))
    die_with(WORKER_LIFELINE)
    builder = importlib.import_module("mray._runtime.environment.package_builder")
    return builder.build(from_text(RECIPE_VARIABLE, os.environ.pop(RECIPE_VARIABLE), dict))  # type: ignore[no-any-return]


def _run_worker(session_dir: str, process: str, options: dict[str, Any]) -> int:
    path = os.environ.pop(LIFELINE_VARIABLE, None)
    if path is None:
        lifeline, node = WORKER_LIFELINE, WORKER_NODE
        _settle((lifeline, node))
    else:
        # See Note [wrapped workers] in `mray._runtime.processes.wrapped`. FileNotFoundError: the node is dead already.
        lifeline = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        node = -1
        _be_deaf()
    zygote = importlib.import_module("mray._runtime.processes.zygote")
    environment = from_text(WORKER_VARIABLE, os.environ.pop(WORKER_VARIABLE), dict)
    return zygote.run_fresh_worker(lifeline, node, session_dir, process, environment, options, _load_worker_main(options))  # type: ignore[no-any-return]
