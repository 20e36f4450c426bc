"""The start of the native engine in a driver: the node's process begins before the driver imports the rest of the engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from mray._common.beside import JOINING, loaded
from mray._ipc.interrupts import guarded
from mray._ipc.limits import explaining
from mray._runtime.session.launching import launch_own_node

if TYPE_CHECKING:
    from mray._backends.native import NativeBackend
    from mray._common.options import SessionOptions
    from mray._runtime.session.session import SessionHold


def _native() -> type[NativeBackend]:
    return importlib.import_module("mray._backends.native").NativeBackend  # type: ignore[no-any-return]


def start(options: SessionOptions, find_engine: Callable[[], type[NativeBackend]] = _native) -> NativeBackend:
    """Start a session, whose driver this process becomes, or join the one that the options' address names."""
    with explaining("The session could not be started."), guarded():
        if options.address in (None, "local"):
            node = launch_own_node(options)
            try:
                engine = find_engine()
                start_session = importlib.import_module("mray._runtime.session.session").start_session
            except BaseException:
                node.end()
                raise
            session: SessionHold = start_session(node)
        else:
            engine = find_engine()
            session = loaded(JOINING).join_session(options)
        return engine.of_driver(session, options.log_to_driver)
