"""``ray._private.worker``: the verbs, and the calling process as an object."""

from __future__ import annotations

import hashlib
import logging
import math
import sys
from typing import IO, Any

from mray import ClusterID
from mray._api.context import SCRIPT_MODE, WORKER_MODE, GlobalWorker, runtime_context
from mray._api.current import backend_if_started, started_backend
from mray._api.init import RayContext
from mray._api.init import RayContext as BaseContext
from mray._api.init import after_init as _post_init_hooks
from mray._common.kept import os
from mray._libraries.core import gcs_client
from mray._libraries.core.core_worker import CoreWorker
from mray._libraries.core.serialization import SerializationContext

__all__ = [
    "SCRIPT_MODE",
    "WORKER_MODE",
    "BaseContext",
    "RayContext",
    "Worker",
    "_mode",
    "_post_init_hooks",
    "blocking_get_inside_async_warned",
    "get_dashboard_url",
    "get_resource_ids",
    "global_worker",
    "logger",
    "print_to_stdstream",
    "print_worker_logs",
]

#: Whether the warning about `get` in an event loop was given, or is not wanted: Ray Serve sets it.
blocking_get_inside_async_warned = False


class SessionNode:
    max_bytes = 100 << 20
    backup_count = 5

    @property
    def session_name(self) -> str:
        return os.path.basename(self.get_session_dir_path())

    @property
    def node_ip_address(self) -> str:
        return global_worker.node_ip_address

    @property
    def node_id(self) -> str:
        return runtime_context.get_node_id()

    @property
    def gcs_address(self) -> str:
        """``host:port``"""
        return runtime_context.gcs_address

    @property
    def address(self) -> str:
        """As `gcs_address`."""
        return self.gcs_address

    @property
    def address_info(self) -> dict[str, Any]:
        """As `init` returns it."""
        return dict(RayContext(started_backend().info()))

    @property
    def cluster_id(self) -> ClusterID:
        """Derived from the session's."""
        return ClusterID(hashlib.sha224(self.session_name.encode()).digest())

    def get_session_dir_path(self) -> str:
        """It is removed with the session."""
        return str(started_backend().info()["session_dir"])

    def get_logs_dir_path(self) -> str:
        """The directory of the log files of the session's processes."""
        return os.path.join(self.get_session_dir_path(), "logs")


_node = SessionNode()


class Worker(GlobalWorker):
    """The calling process."""

    core_worker = CoreWorker()
    gcs_client = gcs_client.connected
    #: Workers' output goes only to the drivers of their jobs.
    _filter_logs_by_job = True

    def get_serialization_context(self) -> SerializationContext:
        return SerializationContext()

    @property
    def node(self) -> SessionNode | None:
        """None without a session."""
        return _node if self.connected else None


global_worker = Worker()


def _mode(worker: GlobalWorker = global_worker) -> int | None:
    return worker.mode


def get_dashboard_url() -> str:
    """No address, as mray has no dashboard. Raises RaySystemError without a session."""
    started_backend()
    return ""


def get_resource_ids() -> dict[str, list[tuple[int, float]]]:
    """Resource -> pairs of a number and an amount, one for each whole, that the task or actor holds; {} in a driver."""
    worker = global_worker
    worker.check_connected()
    given = runtime_context.get_assigned_resources() if worker.mode == WORKER_MODE else {}
    return {name: [(at, min(1.0, amount - at)) for at in range(math.ceil(amount))] for name, amount in given.items()}


def print_worker_logs(data: dict[str, Any], print_file: IO[str], ignore_prefix: bool = False) -> None:
    """Write lines as a driver shows them, prefixed with the task or actor that wrote them."""
    who = " ".join(filter(None, (data.get("actor_name") or data.get("task_name"), f"pid={data.get('pid')},", f"ip={data.get('ip')}")))
    for line in data["lines"]:
        print(line if ignore_prefix else f"\x1b[36m({who})\x1b[0m {line}", file=print_file)


def print_to_stdstream(data: dict[str, Any], ignore_prefix: bool) -> None:
    print_worker_logs(data, sys.stderr if data["is_err"] else sys.stdout, ignore_prefix)


def __getattr__(name: str) -> Any:
    if name == "_global_node":
        return None if backend_if_started() is None else _node
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


#: the logger of Ray's own modules
logger = logging.getLogger("ray")
