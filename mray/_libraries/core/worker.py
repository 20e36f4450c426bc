"""``ray._private.worker``: the verbs, and the calling process as an object."""

from __future__ import annotations

import logging

from mray import LoggingConfig, cancel, get, get_actor, get_gpu_ids, init, is_initialized, kill, put, remote, shutdown, wait
from mray._api.context import SCRIPT_MODE, WORKER_MODE, GlobalWorker, global_worker
from mray._api.init import RayContext

__all__ = [
    "RESTORE_WORKER_MODE",
    "SCRIPT_MODE",
    "SPILL_WORKER_MODE",
    "WORKER_MODE",
    "GlobalWorker",
    "LoggingConfig",
    "RayContext",
    "Worker",
    "cancel",
    "get",
    "get_actor",
    "get_gpu_ids",
    "global_worker",
    "init",
    "is_initialized",
    "kill",
    "logger",
    "put",
    "remote",
    "shutdown",
    "wait",
]

#: Processes that mray does not have, as Ray numbers them.
SPILL_WORKER_MODE = 2
RESTORE_WORKER_MODE = 3

Worker = GlobalWorker
#: The logger of Ray's own modules.
logger = logging.getLogger("ray")
