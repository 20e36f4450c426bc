"""Ray's API on one host: tasks, actors, objects and compiled graphs in pure Python.

``import mray as ray`` runs programs written for Ray::

    @ray.remote
    class Counter:
        def add(self, n):
            ...

    counter = Counter.remote()
    ray.get(counter.add.remote(1))

The import is fast: the engine, numpy and asyncio are loaded when they are needed, subpackages when they are named.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if "t" in sys.abiflags:
    raise ImportError("mray does not run on free-threaded builds of Python, whatever PYTHON_GIL says: take the ordinary build.")

from mray._api.actor import method
from mray._api.context import SCRIPT_MODE, WORKER_MODE, get_runtime_context
from mray._api.decorator import remote
from mray._api.init import init
from mray._api.logging_config import LoggingConfig
from mray._api.object_ref import ObjectRef
from mray._api.ref_generator import DynamicObjectRefGenerator, ObjectRefGenerator
from mray._api.verbs import (
    available_resources,
    cancel,
    client,
    cluster_resources,
    get,
    get_actor,
    get_gpu_ids,
    is_initialized,
    kill,
    nodes,
    put,
    shutdown,
    timeline,
    wait,
)
from mray._common import settings as _settings
from mray._common.ids import (
    ActorClassID,
    ActorID,
    ClusterID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from mray._common.language import Language, java_actor_class, java_function
from mray._common.named_points import switch_on as _switch_on_points
from mray._common.own_frames import hide_from_now_on as _hide_frames_from_now_on
from mray._common.version import __version__

if TYPE_CHECKING:
    from mray import actor, cloudpickle, dag, exceptions, experimental, runtime_context, runtime_env, util


class _Documentation(str):
    """The docstring with the word by which pytest does not warn of an import before its own, and which `help` does not show."""

    __slots__ = ()

    def __contains__(self, text: object) -> bool:
        return text == "PYTEST_DONT_REWRITE" or str(text) in str(self)


__doc__ = _Documentation(__doc__)

_switch_on_points()
_hide_frames_from_now_on()
if _settings.LIBRARIES.get() or _settings.AS_RAY.get():
    importlib.import_module("mray.libraries" if _settings.LIBRARIES.get() else "mray.as_ray")

#: Ray's older name.
ObjectID = ObjectRef

_LAZY = frozenset(
    {"actor", "cloudpickle", "cross_language", "dag", "exceptions", "experimental", "job_config", "runtime_context", "runtime_env", "util"}
)

__all__ = [
    "SCRIPT_MODE",
    "WORKER_MODE",
    "ActorClassID",
    "ActorID",
    "ClusterID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "Language",
    "LoggingConfig",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "__version__",
    "actor",
    "available_resources",
    "cancel",
    "client",
    "cloudpickle",
    "cluster_resources",
    "dag",
    "exceptions",
    "experimental",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "java_actor_class",
    "java_function",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "runtime_context",
    "runtime_env",
    "shutdown",
    "timeline",
    "util",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"mray.{name}")
    raise AttributeError(f"module 'mray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__getattr__"])  # as in Ray, which has it too
